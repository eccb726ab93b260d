"""The Edge Transformer variant that the paper runs on BREC (Mueller and Morris, Section 6 and Appendix).

A feed-forward of one Linear, an additional LayerNorm on the fused values. The paper states no more; the rest is the
authors' code (https://github.com/luis-mueller/towards-principled-gts, expressivity/main.py): structure alone is read (2
on the diagonal, 1 on edges), one Linear serves for queries, keys and both values, and each layer adds a readout of its
own to the embedding.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.edge_transformer import PAPER, Triangles
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.registry import register_model


@register_model("edge-transformer-brec-released", levels=("graph",), cost="n^3 d", paper=PAPER)
class EdgeTransformerBRECReleased(GraphModel):
    """Graph embeddings [B, out_dim] from structure alone: neither node nor edge features are read.

    Args:
        in_dim: accepted for the common interface of all models; the input is the adjacency matrix.
        out_dim: width of the embedding; None is hidden_dim // 2.
        level: "graph".
        hidden_dim: width d of the pair states.
        num_layers: layers; each adds its own readout to the embedding.
        num_heads: must divide `hidden_dim`.
        shared_weights: one Linear for queries, keys and both values, one LayerNorm for queries, keys and fused values
            (as the authors' code has it); False gives each its own.
        output_norm: BatchNorm without affine map, momentum 1, on the embedding.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int] | None = None,
        out_dim: int | None = None,
        level: Literal["graph"] = "graph",
        hidden_dim: int = 32,
        num_layers: int = 5,
        num_heads: int = 4,
        shared_weights: bool = True,
        output_norm: bool = True,
    ):
        super().__init__()
        if level != "graph":
            raise ValueError(f"edge-transformer-brec-released cannot predict at level {level!r}; it predicts: graph")
        at_least(1, hidden_dim=hidden_dim, num_layers=num_layers)
        out_dim = hidden_dim // 2 if out_dim is None else out_dim
        self.layers = nn.ModuleList(
            BRECLayer(hidden_dim if i else 1, hidden_dim, num_heads, shared_weights) for i in range(num_layers)
        )
        self.readouts = nn.ModuleList(nn.Linear(2 * hidden_dim, out_dim) for _ in range(num_layers))
        self.output_norm = nn.BatchNorm1d(out_dim, momentum=1.0, affine=False) if output_norm else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights N(0, 0.02), biases zero, norms as new."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Sum over layers of Linear([largest diagonal entry, largest other entry]): [B, out_dim]."""
        # on the CPU only: elsewhere the question would wait for the device, and the entries of an empty graph are zeros
        if not needs_static_shapes(batch.ptr) and not batch.sizes.all():
            raise ValueError("a graph without nodes has no largest entry: leave empty graphs out of the batch")
        first, second = batch.pair_nodes
        diagonal = first == second  # [P]
        x = torch.zeros(first.numel(), 1, dtype=dtype_of(self), device=first.device)
        x = x.index_fill(0, batch.pair_of(*batch.edge_index), 1.0).masked_fill(diagonal[:, None], 2.0)  # [P, 1]
        owner = batch.batch[first]
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for layer, readout in zip(self.layers, self.readouts, strict=True):
            x = layer(x, batch)  # [P, d]
            largest = [_largest(x, at, owner, batch.num_graphs) for at in (diagonal, ~diagonal)]  # [B, d] each
            total = total + readout(torch.cat(largest, 1))
        return total

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """The batch norm of the embedding, where there is one: [B, out_dim] -> [B, out_dim]."""
        return features if self.output_norm is None else self.output_norm(features)


class BRECLayer(nn.Module):
    """X <- LN(Linear([X, A])): [P, c] -> [P, d].

    A is triangular attention with LayerNorm on queries, keys and fused values per head.
    """

    def __init__(self, in_dim: int, hidden_dim: int, num_heads: int, shared_weights: bool):
        super().__init__()
        at_least(1, num_heads=num_heads)
        if hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.num_heads, self.shared_weights = num_heads, shared_weights
        count, head_dim = 1 if shared_weights else 4, hidden_dim // num_heads
        self.projections = nn.ModuleList(nn.Linear(in_dim, hidden_dim) for _ in range(count))
        self.norms = nn.ModuleList(nn.LayerNorm(head_dim) for _ in range(1 if shared_weights else 3))
        self.triangles = Triangles()
        self.out = nn.Linear(in_dim + hidden_dim, hidden_dim)
        self.out_norm = nn.LayerNorm(hidden_dim)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, c] -> [P, d]."""
        projected = [linear(x).unflatten(1, (self.num_heads, -1)) for linear in self.projections]  # [P, H, d_h]
        q, k, v1, v2 = projected * 4 if self.shared_weights else projected
        norms = list(self.norms) * 3 if self.shared_weights else list(self.norms)
        stacked = torch.stack([norms[0](q), norms[1](k), v1, v2], 1)  # [P, 4, H, d_h]
        a = self.triangles(stacked, batch, norms[2]).to(x.dtype)  # [P, H, d_h]
        return self.out_norm(self.out(torch.cat([x, a.flatten(1)], 1)))


def _largest(x: Tensor, at: Tensor, owner: Tensor, num_graphs: int) -> Tensor:
    """Largest entry per graph [B, d] of those rows of x [P, d] that `at` [P] marks.

    Zero where it marks none (off the diagonal of one node).
    """
    # deviates: the authors' code takes the off-diagonal maximum over values of which the diagonal is lowered by a bound
    # over the whole batch, which is the same maximum wherever an off-diagonal entry exists
    x = x.masked_fill(~at[:, None], -torch.inf)
    largest = x.new_full((num_graphs, x.size(1)), -torch.inf).scatter_reduce(0, owner[:, None].expand_as(x), x, "amax")
    marked = torch.zeros(num_graphs, dtype=torch.long, device=x.device).index_add(0, owner, at.long())
    return largest.masked_fill((marked == 0)[:, None], 0.0)
