"""Attention over neighbours without a tensor of edges and channels."""

from torch import Tensor

from gt_models.kernels.dispatch import Form, attach
from gt_models.kernels.graph_attention import graph_attention
from gt_models.layers.convolutions import NEGATIVE_SLOPE, GraphAttention
from gt_models.layers.csr import Edges


def attend(layer: GraphAttention, value: Tensor, edges: Edges) -> Tensor:
    """`GraphAttention.attend`."""
    return graph_attention(value, layer.att_src[0], layer.att_dst[0], *edges.csr, NEGATIVE_SLOPE)


attach(GraphAttention, "attend", "gat_neighbours", [Form("edges by node", lambda: attend, devices=("cpu", "cuda"))])
