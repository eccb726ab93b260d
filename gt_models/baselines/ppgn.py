"""Provably powerful graph network (Maron et al., NeurIPS 2019, https://arxiv.org/abs/1905.11136).

Products of matrices over pairs of nodes.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.features import FeatureEncoder, with_columns
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model


@register_model("ppgn", levels=("graph",), cost="n^3 d + n^2 d^2")
class PPGN(GraphModel):
    """Graph [B, out_dim].

    A block maps X [n, n, c] to Linear([X, m_1(X) m_2(X)]), one product of matrices per channel (Section 6); the output
    is the sum over blocks of a Linear of [maximum over the diagonal, maximum off it].

    X begins as adjacency, edge features where there are any, and node features on the diagonal (categories embedded to
    `hidden_dim`).

    Args:
        in_dim, edge_dim: node and edge features: widths of continuous ones, vocabulary sizes of categories.
        out_dim: targets or classes.
        level: "graph".
        features: False: X begins as A + I, whatever the features are.
        hidden_dim: channels of each block.
        num_layers: blocks.
        mlp_layers: (Linear, ReLU) in m_1 and m_2.
        normalisation: "batch": of pairs after each block and of the outputs, without parameters; evaluation takes the
            statistics of the last batch of training, as BREC's code does.

    Raises:
        ValueError: another level, an unknown normalisation, no block, and a batch without the edge features that it was
            built for.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        features: bool = True,
        hidden_dim: int = 64,
        num_layers: int = 3,
        mlp_layers: int = 2,
        normalisation: Literal["none", "batch"] = "none",
    ):
        super().__init__()
        if level != "graph":
            raise ValueError(f"ppgn cannot predict at level {level!r}; it predicts: graph")
        if normalisation not in ("none", "batch"):
            raise ValueError(f"unknown normalisation {normalisation!r}; known: none, batch")
        if num_layers < 1 or mlp_layers < 1:
            raise ValueError(f"ppgn needs at least one block with one layer, not {num_layers} with {mlp_layers}")
        self.encoder = FeatureEncoder(in_dim, hidden_dim) if features and not isinstance(in_dim, int) else None
        self.edge_encoder = (
            FeatureEncoder(edge_dim, hidden_dim)
            if features and edge_dim is not None and not isinstance(edge_dim, int)
            else None
        )
        self.in_dim, self.edge_dim, self.features = in_dim, edge_dim, features
        node_width = in_dim if isinstance(in_dim, int) else hidden_dim
        edge_width = 0 if edge_dim is None else edge_dim if isinstance(edge_dim, int) else hidden_dim
        width = 1 + (node_width + edge_width if features else 0)
        self.blocks = nn.ModuleList(
            Block(hidden_dim if i else width, hidden_dim, mlp_layers) for i in range(num_layers)
        )
        batch = normalisation == "batch"
        self.norms = (
            nn.ModuleList(nn.BatchNorm1d(hidden_dim, momentum=1.0, affine=False) for _ in range(num_layers))
            if batch
            else None
        )
        self.out_norm = nn.BatchNorm1d(out_dim, momentum=1.0, affine=False) if batch else None
        self.heads = nn.ModuleList(nn.Linear(2 * hidden_dim, out_dim) for _ in range(num_layers))
        self._reset_linears()

    def reset_parameters(self) -> None:
        for module in [self.encoder, self.edge_encoder, *(self.norms or ()), self.out_norm]:
            if module is not None:
                module.reset_parameters()
        self._reset_linears()

    def _reset_linears(self) -> None:
        for module in [*self.blocks.modules(), *self.heads]:
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.zeros_(module.bias)

    def forward_features(self, batch: GraphBatch) -> list[Tensor]:
        """[maximum over the diagonal, maximum off it] after each block, [B, 2 d] each."""
        x, nodes = self.pairs(batch), torch.arange(batch.num_nodes, device=batch.ptr.device)
        diagonal = batch.pair_of(nodes, nodes)  # [N]
        off = torch.ones(batch.num_pairs, dtype=torch.bool, device=nodes.device).index_fill(0, diagonal, False)
        owner = batch.batch[batch.pair_nodes[0]]  # [P]
        pooled = []
        for i, block in enumerate(self.blocks):
            x = block(x, batch)  # [P, d]
            x = x if self.norms is None else self.norms[i](x)
            # deviates: where entries tie the authors' gradient goes to one of them; here to all, so that it does not
            # depend on the order of nodes
            rest = _largest(x.masked_fill(~off[:, None], -torch.inf), owner, batch)
            pooled.append(torch.cat([_largest(x[diagonal], batch.batch, batch), rest], 1))
        return pooled

    def forward_head(self, features: list[Tensor], batch: GraphBatch) -> Tensor:
        """What is pooled after each block -> outputs [B, out_dim]."""
        out = torch.stack([head(pooled) for head, pooled in zip(self.heads, features, strict=True)]).sum(0)
        return out if self.out_norm is None else self.out_norm(out)

    def pairs(self, batch: GraphBatch) -> Tensor:
        """The X of the first block, [P, c]."""
        dtype, nodes = dtype_of(self.heads[0]), torch.arange(batch.num_nodes, device=batch.ptr.device)
        diagonal, edges = batch.pair_of(nodes, nodes), batch.pair_of(*batch.edge_index)
        adjacency = torch.zeros(batch.num_pairs, 1, dtype=dtype, device=nodes.device).index_fill(0, edges, 1.0)
        if not self.features:
            return adjacency.index_add(0, diagonal, torch.ones(len(nodes), 1, dtype=dtype, device=nodes.device))
        channels = [adjacency]
        if self.edge_dim is not None:
            e = batch.edge_features()
            e = with_columns(e, self.edge_dim) if self.edge_encoder is None else self.edge_encoder(e)
            e = e.to(dtype)  # [E, c]
            channels.append(e.new_zeros(batch.num_pairs, e.size(1)).index_add(0, edges, e))
        x = with_columns(batch.x, self.in_dim) if self.encoder is None else self.encoder(batch.x)
        x = x.to(dtype)  # [N, c]
        channels.append(x.new_zeros(batch.num_pairs, x.size(1)).index_copy(0, diagonal, x))
        return torch.cat(channels, 1)


class Block(nn.Module):
    """Linear([X, m_1(X) m_2(X)]): flat pairs [P, in_dim] -> [P, dim]."""

    def __init__(self, in_dim: int, dim: int, mlp_layers: int):
        super().__init__()
        self.first, self.second = (
            nn.ModuleList(nn.Linear(dim if i else in_dim, dim) for i in range(mlp_layers)) for _ in range(2)
        )
        self.skip = nn.Linear(in_dim + dim, dim)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Flat pairs [P, in_dim] -> [P, dim]."""
        first, second = x, x
        for one, other in zip(self.first, self.second, strict=True):
            first, second = one(first).relu(), other(second).relu()
        # padding is zero and adds nothing
        first, second = (batch.pairs_to_dense(m).permute(0, 3, 1, 2) for m in (first, second))  # [B, d, n, n]
        product = batch.pairs_from_dense((first @ second).permute(0, 2, 3, 1))  # [P, d]
        return self.skip(torch.cat([x, product.to(x.dtype)], 1))


def _largest(x: Tensor, owner: Tensor, batch: GraphBatch) -> Tensor:
    """Per graph [B, d]; 0 where all is -inf (off the diagonal of one node)."""
    out = x.new_full((batch.num_graphs, x.size(1)), -torch.inf).scatter_reduce(
        0, owner[:, None].expand_as(x), x, "amax"
    )
    return out.masked_fill(out == -torch.inf, 0.0)
