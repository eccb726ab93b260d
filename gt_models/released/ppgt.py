"""PPGT as its authors released it, https://github.com/LiamMa/PPGT: what differs from the paper.

Always: the gate is 1 + phi (equation 5 has phi); <q, k> is not divided by the root of a head's width (equation 5
divides both terms); a degree counts neighbours, not edges that leave; the target of an edge is the query of its pair.
The last two are the same on undirected graphs. By default: a head of constant width; FFN blocks of the stem start as
the backbone does (`FFN.init_weights` reaches no layer).
"""

# mypy: disable-error-code="arg-type, misc, operator, union-attr"

from typing import Any, Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.settings import at_least
from gt_models.layers.signature import with_arguments_of
from gt_models.ppgt import PAPER, PPGT, SL2Attention
from gt_models.ppgt.class_attention import Residual
from gt_models.ppgt.norms import make_norm
from gt_models.ppgt.stem import PairStem
from gt_models.registry import register_model


class ReleasedAttention(SL2Attention):
    """The gate is 1 + phi, where equation 5 has phi."""

    def bias_and_gate(self, p: Tensor) -> Tensor:
        """theta(p) and, where there is a gate, 1 + phi(p): [P, pair_dim] -> [P, G H]."""
        theta, *phi = super().bias_and_gate(p).split(self.num_heads, 1)
        return torch.cat([theta, *(1 + t for t in phi)], 1)


@register_model("ppgt-released", levels=("graph", "node"), cost="n^2 d", encodings=("rrwp", "position"), paper=PAPER)
class PPGTReleased(PPGT):
    """Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        degree: whether log degree joins the nodes and 1 / degree the pairs.
        node_order: whether log order joins the nodes.
        position_dim: width of the node encoding "position" that joins nodes, and pairs as p_j - p_i (superpixels); 0
            for none.
        stem_ffn_init: FFN blocks of the stem: "truncated" normal 0.02, or "kaiming" uniform as published (Appendix
            B.2).
        stem_norm: one more norm on nodes before the backbone and on pairs before the stem's FFN blocks.
        layer_scale: initial scale of the branches of backbone and class attention; None for no scale.
        pool_norm: batch norm after pooling.
        out_norm: batch norm on the outputs (BREC).
        The others: see `PPGT`.

    Raises:
        ValueError: as `PPGT`.
        MissingEncoding: as `PPGT`.
    """

    scale_queries = False
    attention_class = ReleasedAttention

    @with_arguments_of(PPGT, head="constant")
    def __init__(
        self,
        degree: bool = True,
        node_order: bool = True,
        position_dim: int = 0,
        stem_ffn_init: Literal["truncated", "kaiming"] = "truncated",
        stem_norm: bool = False,
        layer_scale: float | None = None,
        pool_norm: bool = False,
        out_norm: bool = False,
        **paper: Any,
    ):
        if stem_ffn_init not in ("truncated", "kaiming"):
            raise ValueError(f"unknown stem_ffn_init {stem_ffn_init!r}; known: truncated, kaiming")
        at_least(0, position_dim=position_dim)
        # read by the constructor of the paper's model
        self.position_dim = position_dim
        channels = {"degree": int(degree), "order": int(node_order), "position": position_dim}
        self.node_extras = {name: width for name, width in channels.items() if width}
        self.pair_extras = 1 + 2 * degree + position_dim
        self.stem_class = ReleasedStem if stem_ffn_init == "truncated" else PrintedStartStem
        super().__init__(**paper)
        hidden_dim, norm, drop_path = paper["hidden_dim"], paper["norm"], paper["drop_path"]
        self.node_norm = make_norm(norm, hidden_dim) if stem_norm else nn.Identity()
        self.stem.pre_norm = make_norm(norm, paper["pair_dim"] or hidden_dim) if stem_norm else nn.Identity()
        self.pool_norm = nn.BatchNorm1d(hidden_dim) if pool_norm else nn.Identity()
        self.out_norm = nn.BatchNorm1d(paper["out_dim"]) if out_norm else nn.Identity()
        if layer_scale is not None:
            for layer in (*self.layers, *(self.class_attention.layers if self.class_attention else ())):
                layer.residual1, layer.residual2 = (
                    ScaledResidual(hidden_dim, drop_path, layer_scale) for _ in range(2)
                )

    def encode_nodes(self, batch: GraphBatch) -> Tensor:
        """As in `PPGT`, with one more norm before the backbone if `stem_norm` is set: nodes [N, hidden_dim]."""
        return self.node_norm(super().encode_nodes(batch))

    def extra_node_channels(self, batch: GraphBatch, dtype: torch.dtype) -> dict[str, Tensor]:
        """Degree and order as configured, and the position [N, position_dim] (superpixels)."""
        channels = super().extra_node_channels(batch, dtype)
        if self.position_dim:
            channels["position"] = batch.encoding("position", self.position_dim).to(dtype)
        return {name: channels[name] for name in self.node_extras}

    def extra_pair_channels(self, batch: GraphBatch, dtype: torch.dtype) -> list[Tensor]:
        """Differences of positions [P, position_dim] (superpixels), then order and degrees if configured, [P, 1]."""
        query, key = batch.pair_nodes
        order, *degrees = super().extra_pair_channels(batch, dtype)
        channels = [order, *degrees] if "degree" in self.node_extras else [order]
        if self.position_dim:
            position = batch.encoding("position", self.position_dim).to(dtype)
            channels.insert(0, position[key] - position[query])
        return channels

    def degree(self, batch: GraphBatch, dtype: torch.dtype) -> Tensor:
        """Neighbours of each node by edges in either direction (a self-loop counts once), [N]."""
        first, second = batch.edge_index
        joined = torch.zeros(batch.num_pairs, device=batch.ptr.device, dtype=dtype)
        joined = joined.index_fill(0, torch.cat([batch.pair_of(first, second), batch.pair_of(second, first)]), 1.0)
        return joined.new_zeros(batch.num_nodes).index_add(0, batch.pair_nodes[0], joined)

    def edge_ends(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """The target of an edge is the query of its pair; the paper has its source there."""
        return tuple(batch.edge_index.flip(0))

    def predict(self, h: Tensor) -> Tensor:
        """The head, with batch norms before and after it if configured: [rows, hidden_dim] -> [rows, out_dim]."""
        return self.out_norm(super().predict(self.pool_norm(h)))


class ReleasedStem(PairStem):
    """FFN blocks start truncated normal, as the backbone does.

    `pre_norm`, one more norm before them, is set by the model.
    """

    truncated = True

    def scale_branches(self, initial: float) -> None:
        """Multiply what each FFN block adds by a learnt vector that starts at `initial`."""
        self.initial_scale = initial
        self.scales = nn.ParameterList([torch.full((self.linear2.out_features,), initial) for _ in self.blocks])

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for block in self.blocks if self.truncated else ():
            nn.init.trunc_normal_(block.linear1.weight, std=0.02)
            nn.init.trunc_normal_(block.linear2.weight, std=0.02)
        for scale in getattr(self, "scales", ()):
            nn.init.constant_(scale, self.initial_scale)

    def embed(self, raw: Tensor, edge: Tensor | None) -> Tensor:
        """As in `PairStem`, with one more norm before the FFN blocks if `stem_norm` is set: pairs [P, pair_dim]."""
        return self.pre_norm(super().embed(raw, edge))

    def branch(self, i: int, p: Tensor) -> Tensor:
        """What FFN block `i` adds, scaled after `scale_branches`: [P, pair_dim] -> [P, pair_dim]."""
        branch = super().branch(i, p)
        return branch * self.scales[i] if hasattr(self, "scales") else branch


class PrintedStartStem(ReleasedStem):
    """FFN blocks start Kaiming uniform, as published (Appendix B.2)."""

    truncated = False


class ScaledResidual(Residual):
    """x + drop_path(scale * branch), the scale a learnt vector."""

    def __init__(self, dim: int, drop_path: float, initial: float):
        super().__init__(drop_path)
        self.initial, self.scale = initial, nn.Parameter(torch.full((dim,), initial))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, self.initial)

    def forward(self, x: Tensor, branch: Tensor, graph: Tensor | None, num_graphs: int | None) -> Tensor:
        """As of `Residual`."""
        return super().forward(x, branch * self.scale, graph, num_graphs)
