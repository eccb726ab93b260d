"""Polynormer's layers: maps of node features as one operation, attention over neighbours without a tensor of edges."""

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels import linear_attention
from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.gated_norm import gated_norm
from gt_models.kernels.graph_attention import graph_attention
from gt_models.kernels.multi_linear import multi_linear
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.csr import csr_edges
from gt_models.layers.dropout import Dropout
from gt_models.layers.dropout_hash import draw_seed
from gt_models.layers.gcn_sum import gcn_sum
from gt_models.polynormer import Attention, LocalLayer
from gt_models.polynormer.neighbours import GraphAttention, GraphConvolution
from gt_models.released.polynormer import ReleasedLocalLayer

Types = dict[str, type | tuple[type, ...]]
BOTH = ("cpu", "cuda")
LOCAL: Types = {"gate": nn.Linear, "local": (GraphAttention, GraphConvolution), "local.linear": nn.Linear}


# -- maps of a node's features -----------------------------------------------------------------------------------------


def local_layer(layer: LocalLayer, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
    """`LocalLayer.forward`."""
    h, value = _maps(x, layer.gate, layer.local.linear)  # type: ignore[arg-type]
    return layer.combine(h, _mix(layer, x, value, batch), v2)


def released_local_layer(layer: ReleasedLocalLayer, x: Tensor, batch: GraphBatch, v2: Tensor | None) -> Tensor:
    """`ReleasedLocalLayer.forward`."""
    x = x if layer.pre_norm is None else layer.pre_norm(x)
    h, value, skip = _maps(x, layer.gate, layer.local.linear, layer.skip)  # type: ignore[arg-type]
    return layer.combine(h, layer.skipped(_mix(layer, x, value, batch), skip), v2)


def _mix(layer: LocalLayer, x: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    """`LocalLayer.mix` of projected nodes."""
    a: Tensor = layer.local.attend(value, batch)  # type: ignore[operator]
    return a if layer.parallel is None else a + layer.parallel(x, batch, value)


def _maps(x: Tensor, *maps: nn.Linear) -> tuple[Tensor, ...]:
    return multi_linear(x, *(m.weight for m in maps), *(m.bias for m in maps))


def _local_why_not(layer: LocalLayer, x: Tensor, *_: object) -> str | None:
    return reads(layer, LOCAL)


def _released_why_not(layer: LocalLayer, x: Tensor, *_: object) -> str | None:
    return reads(layer, LOCAL | {"skip": nn.Linear})


attach(LocalLayer, "forward", "polynormer_local", [Form("one product", lambda: local_layer, _local_why_not, BOTH)])
attach(
    ReleasedLocalLayer, "forward", "polynormer_released_local",
    [Form("one product", lambda: released_local_layer, _released_why_not, BOTH)],
)  # fmt: skip
# -- attention ---------------------------------------------------------------------------------------------------------


def attend(layer: GraphAttention, value: Tensor, batch: GraphBatch) -> Tensor:
    """`GraphAttention.attend`."""
    edges = csr_edges(batch).csr
    return graph_attention(value, layer.att_source, layer.att_target, *edges, layer.negative_slope)


def convolve(layer: GraphConvolution, value: Tensor, batch: GraphBatch) -> Tensor:
    """`GraphConvolution.attend`."""
    if layer.bias is not None:
        return gcn_sum(value, csr_edges(batch))[0] + layer.bias
    edges = csr_edges(batch, self_loops=False)
    weight = edges.out_degree.to(value.dtype)[edges.csr[1]].reciprocal()
    return neighbour_sum(value, weight, *edges.csr)


attach(GraphAttention, "attend", "polynormer_neighbours", [Form("edges by node", lambda: attend, devices=BOTH)])
attach(GraphConvolution, "attend", "polynormer_convolution", [Form("edges by node", lambda: convolve, devices=BOTH)])


def in_chunks(layer: Attention, query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> Tensor:
    """`Attention.attend` of one graph, in chunks of nodes."""
    return linear_attention.in_chunks(*_heads(layer, query, key, value)).mT.flatten(1)


def _heads(layer: Attention, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (t.unflatten(1, (-1, layer.num_heads)).mT for t in (query, key, value))
    return query, key, value  # [N, H, C] each


def _too_short(layer: Attention, query: Tensor, key: Tensor, value: Tensor, batch: GraphBatch) -> str | None:
    if batch.num_graphs > 1:
        return "takes one graph"
    return f"fewer than {2 * linear_attention.CHUNK} nodes" if len(key) < 2 * linear_attention.CHUNK else None


attach(
    Attention, "attend", "polynormer_attention",
    [Form("in chunks", lambda: in_chunks, _too_short, devices=("cuda",))],
)  # fmt: skip


# -- what closes a layer, on a GPU -------------------------------------------------------------------------------------


def combine(layer: LocalLayer, h: Tensor, a: Tensor, v2: Tensor | None) -> Tensor:
    """`LocalLayer.combine`."""
    norm: nn.LayerNorm = layer.norm  # type: ignore[assignment]
    seed = draw_seed() if layer.dropout.active_rate else None
    return gated_norm(h, a, layer.beta(v2), norm.weight, norm.bias, norm.eps, layer.relu, seed, layer.dropout.rate)


def _combine_why_not(layer: LocalLayer, h: Tensor, a: Tensor, v2: Tensor | None) -> str | None:
    if v2 is not None:
        return "b differs from node to node"
    return reads(layer, {"norm": nn.LayerNorm, "dropout": Dropout})


for local, operation in ((LocalLayer, "polynormer_combine"), (ReleasedLocalLayer, "polynormer_released_combine")):
    attach(local, "combine", operation, [Form("triton", lambda: combine, _combine_why_not, ("cuda",))])
