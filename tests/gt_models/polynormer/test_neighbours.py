"""Polynormer's layers over neighbours, compared with torch_geometric's."""

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv

from gt_models.polynormer.neighbours import GraphAttention, GraphConvolution
from tests.gt_models.polynormer.cases import messy_graph, redraw


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "width"), [(1, 8), (2, 4), (3, 5)])
def test_attention_equals_gatconv_with_its_gradients(heads, width):
    graph = messy_graph()
    ours, theirs = GraphAttention(4, heads * width, heads).double(), GATConv(4, width, heads, bias=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight)
        theirs.att_src.copy_(ours.att_source[None])
        theirs.att_dst.copy_(ours.att_target[None])
    x, y = graph.x.clone().requires_grad_(), graph.x.clone().requires_grad_()
    out, expected = ours(x, graph), theirs(y, graph.edge_index)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, other in [(x.grad, y.grad), (ours.linear.weight.grad, theirs.lin.weight.grad)]:
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.att_source.grad[None], theirs.att_src.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.att_target.grad[None], theirs.att_dst.grad, rtol=1e-10, atol=1e-10)


def test_attention_does_not_overflow():
    graph = messy_graph()
    layer = GraphAttention(4, 8, 2).double()
    graph.x *= 1e4
    assert layer(graph.x, graph).isfinite().all()


def test_convolution_equals_gcnconv_with_its_gradients():
    graph = messy_graph()
    ours, theirs = redraw(GraphConvolution(4, 8).double()), GCNConv(4, 8).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight)
        theirs.bias.copy_(ours.bias)
    x, y = graph.x.clone().requires_grad_(), graph.x.clone().requires_grad_()
    out, expected = ours(x, graph), theirs(y, graph.edge_index)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10)


def test_bad_arguments():
    with pytest.raises(ValueError, match="multiple"):
        GraphAttention(4, 9, 2)
    with pytest.raises(ValueError, match="random-walk"):
        GraphConvolution(4, 8, "gin")
