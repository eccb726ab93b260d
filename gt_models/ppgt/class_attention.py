"""A class token that reads a graph off its nodes (PPGT, Section 3.3, after CaiT), and the residual that all of the backbone shares."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.drop_path import DropPath
from gt_models.ppgt.norms import make_norm

MASKED = -1e9  # finite: attention to no node stays a number, and so do its gradients


class Residual(nn.Module):
    """x + drop_path(branch)."""

    def __init__(self, drop_path: float):
        super().__init__()
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, branch: Tensor, graph: Tensor | None, num_graphs: int | None) -> Tensor:
        """`graph`: of each row of x [rows, dim], with `num_graphs`; None where a row is a graph."""
        return x + self.drop_path(branch, graph, num_graphs)


class ClassAttention(nn.Module):
    """A class token per graph queries the nodes through some layers (Section 3.3, after CaiT), [N, dim] -> [B, dim].

    The token starts as a learnt vector plus an MLP of the graph's number of nodes; no pair bias and no gate, since it has no place.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        expansion: int,
        norm: str,
        attention: str,
        scale_queries: bool,
        attn_dropout: float,
        drop_path: float,
        num_layers: int,
    ):
        super().__init__()
        self.token = nn.Parameter(torch.empty(dim))
        # unstated: the MLP of the order; half as wide and begun as the backbone is, from the authors' implementation
        self.order1, self.order2 = nn.Linear(1, dim // 2), nn.Linear(dim // 2, dim)
        layer = (dim, num_heads, expansion, norm, attention, scale_queries, attn_dropout, drop_path)
        self.layers = nn.ModuleList([ClassAttentionLayer(*layer) for _ in range(num_layers)])
        self.norm = make_norm(norm, dim)

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Nodes [N, dim] -> class tokens [B, dim]."""
        order = batch.sizes.to(self.order1.weight.dtype)[:, None]
        token = self.token + self.order2(F.gelu(self.order1(order)))  # [B, d]
        for layer in self.layers:
            token = layer(token, x, batch)
        return self.norm(token)


class ClassAttentionLayer(nn.Module):
    """One layer of `ClassAttention`: the token attends to nodes, as the backbone's last norm left them, then an MLP on the token."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        expansion: int,
        norm: str,
        attention: str,
        scale_queries: bool,
        attn_dropout: float,
        drop_path: float,
    ):
        super().__init__()
        self.num_heads, self.dropout, root = num_heads, attn_dropout, (dim // num_heads) ** 0.5
        self.scale = 1.0 / root if scale_queries else 1.0
        self.key_scale = -0.5 / root if attention == "sl2" else 0.0
        self.norm1, self.norm2 = make_norm(norm, dim), make_norm(norm, dim)
        self.query, self.key_value, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)
        self.residual1, self.residual2 = Residual(drop_path), Residual(drop_path)

    def forward(self, token: Tensor, x: Tensor, batch: GraphBatch) -> Tensor:
        """Class tokens [B, dim] and nodes `x` [N, dim] -> class tokens [B, dim]."""
        graphs, h = batch.num_graphs, self.num_heads
        q = self.query(self.norm1(token)).view(graphs, h, 1, -1)  # [B, H, 1, d / H]
        kv = batch.to_dense(self.key_value(x))  # [B, n, 2 d]
        k, v = kv.view(graphs, batch.max_nodes, 2, h, -1).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, n, d / H] each
        mask = (self.key_scale * k.square().sum(-1)).masked_fill(~batch.node_mask[:, None], MASKED)[
            :, :, None
        ]  # [B, H, 1, n]
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=self.scale)
        token = self.residual1(token, self.out(y.reshape(graphs, -1)), None, None)
        return self.residual2(token, self.linear2(F.gelu(self.linear1(self.norm2(token)))), None, None)
