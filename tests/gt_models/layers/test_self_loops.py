"""One self-loop at each node, as in torch_geometric's layers."""

import pytest
import torch
from torch_geometric.nn import GATConv, GATv2Conv

from gt_models.layers import self_loops
from gt_models.layers.self_loops import attend, with_self_loops

# node 0 has two self-loops, node 3 has no incoming edge, (2, 1) is stored twice
EDGES = torch.tensor([[0, 0, 1, 2, 2, 3], [0, 0, 0, 1, 1, 2]])


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("kind", [GATConv, GATv2Conv])
def test_equals_the_layer_that_adds_them(kind, edge_dim, fixed, monkeypatch):
    monkeypatch.setattr(self_loops, "needs_static_shapes", lambda _: fixed)
    torch.manual_seed(0)
    adds = kind(4, 2, 3, edge_dim=edge_dim).double()
    bare = kind(4, 2, 3, edge_dim=edge_dim, add_self_loops=False).double()
    bare.load_state_dict(adds.state_dict())
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    features = None if edge_dim is None else torch.randn(6, edge_dim, dtype=torch.float64, requires_grad=True)
    edges = (EDGES,) if features is None else (EDGES, features)
    expected, found = adds(x, *edges), attend(bare, x, with_self_loops(x, *edges))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    leaves = [x, *edges[1:]]
    for one, other in zip(*(torch.autograd.grad(out.sin().sum(), leaves) for out in (expected, found)), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fixed", [False, True])
def test_no_edge_and_no_node(fixed, monkeypatch):
    monkeypatch.setattr(self_loops, "needs_static_shapes", lambda _: fixed)
    layer, none = GATConv(4, 2, add_self_loops=False), torch.empty(2, 0, dtype=torch.long)
    for nodes in (3, 0):
        x = torch.randn(nodes, 4)
        torch.testing.assert_close(attend(layer, x, with_self_loops(x, none)), layer.lin(x) + layer.bias)
