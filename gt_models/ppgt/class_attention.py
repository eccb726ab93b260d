"""Pooling by a class token that attends to the nodes of a graph (PPGT, Section 3.3, as in CaiT)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.drop_path import DropPath
from gt_models.layers.precision import dtype_of, full_precision
from gt_models.ppgt.norms import make_norm

MASKED = -1e9  # finite, so that attention in a graph without nodes, and its gradients, are not NaN


class Residual(nn.Module):
    """Residual connection with stochastic depth, x + drop_path(branch)."""

    def __init__(self, drop_path: float):
        super().__init__()
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, branch: Tensor, graph: Tensor | None, num_graphs: int | None) -> Tensor:
        """Adds a branch.

        Args:
            x: [rows, dim].
            branch: [rows, dim].
            graph: graph of each row, long [rows]. None if each row is a graph.
            num_graphs: number of graphs, if `graph` is given.
        """
        return x + self.drop_path(branch, graph, num_graphs)


class ClassAttention(nn.Module):
    """A class token per graph that attends to the nodes in each layer.

    The token is initialised as a learnt vector plus an MLP of the number of nodes of the graph. It is not a node of
    the graph, so it has no pair bias and no gate.

    Args:
        dim: width.
        norm: see `make_norm`.
        layer: returns a new `ClassAttentionLayer`.
        num_layers: number of layers.
    """

    def __init__(self, dim: int, norm: str, layer: Callable[[], nn.Module], num_layers: int):
        super().__init__()
        self.token = nn.Parameter(torch.empty(dim))
        # unstated: the MLP of the order; half as wide and begun as the backbone is, from the authors' implementation
        self.order1, self.order2 = nn.Linear(1, dim // 2), nn.Linear(dim // 2, dim)
        self.layers = nn.ModuleList([layer() for _ in range(num_layers)])
        self.norm = make_norm(norm, dim)

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] -> class tokens [B, dim]."""
        order = batch.sizes.to(dtype_of(self.order1))[:, None]
        token = self.token + self.order2(F.gelu(self.order1(order)))  # [B, d]
        for layer in self.layers:
            token = layer(token, x, batch)
        return self.norm(token)


class ClassAttentionLayer(nn.Module):
    """One layer of `ClassAttention`: the token attends to the nodes (equation 4), then an MLP (equation 7).

    Arguments are those of `gt_models.ppgt.SL2Attention` and `gt_models.ppgt.PPGTLayer`.
    """

    def __init__(
        self, dim: int, num_heads: int, attention: str, scale_queries: bool, attn_dropout: float,
        expansion: int, norm: str, drop_path: float,
    ):  # fmt: skip
        super().__init__()
        root = (dim // num_heads) ** 0.5
        self.num_heads, self.dropout = num_heads, nn.Dropout(attn_dropout)
        self.scale = 1.0 / root if scale_queries else 1.0
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.query, self.key_value, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(drop_path), Residual(drop_path)

    def forward(self, token: Tensor, x: Tensor, batch: GraphBatch) -> Tensor:
        """Class tokens [B, dim] and nodes `x` [N, dim] -> class tokens [B, dim]."""
        token = self.residual1(token, self.out(self.attend(self.norm1(token), x, batch)), None, None)
        return self.residual2(token, self.linear2(F.gelu(self.linear1(self.norm2(token)))), None, None)

    def attend(self, token: Tensor, x: Tensor, batch: GraphBatch) -> Tensor:
        """Attention of the tokens [B, dim] to the nodes [N, dim] -> [B, dim]."""
        query = self.query(token)
        return self.read(query, self.key_value(x), batch).to(query.dtype)

    @full_precision
    def read(self, query: Tensor, key_value: Tensor, batch: GraphBatch) -> Tensor:
        """Equation 4 for all heads: queries [B, dim], keys and values [N, 2 dim] -> [B, dim]."""
        q = query.unflatten(1, (self.num_heads, 1, -1))  # [B, H, 1, d]
        split = batch.to_dense(key_value).unflatten(2, (2, self.num_heads, -1))  # [B, n, 2, H, d]
        k, v = split.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, n, d] each
        scores = self.scale * q @ k.mT  # equation 2, [B, H, 1, n]
        if self.key_scale:
            scores = scores + self.key_scale * k.square().sum(-1)[:, :, None]  # equation 4
        weights = scores.masked_fill(~batch.node_mask[:, None, None], MASKED).softmax(-1)
        return (self.dropout(weights) @ v).flatten(1)
