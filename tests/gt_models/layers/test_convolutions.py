"""Convolutions without messages begin, compute and learn as those of torch_geometric."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.utils import add_remaining_self_loops

from gt_models.batch import GraphBatch
from gt_models.layers.convolutions import GraphAttention, GraphConvolution, MeanAndSelf, SumAndSelf
from gt_models.layers.csr import csr_edges

# ours, torch_geometric's, whether each node is its own neighbour, whether theirs adds the self-loops
PAIRS = {
    "gcn": (lambda: GraphConvolution(4, 8), lambda: GCNConv(4, 8), True, True),
    "gat": (lambda: GraphAttention(4, 8, 2), lambda: GATConv(4, 4, 2, bias=False), True, True),
    "gat-bias": (lambda: GraphAttention(4, 8, 1, bias=True), lambda: GATConv(4, 8), True, True),
    "gat-no-loops": (
        lambda: GraphAttention(4, 8, 2),
        lambda: GATConv(4, 4, 2, add_self_loops=False, bias=False),
        False,
        False,
    ),
    "sage": (lambda: MeanAndSelf(4, 8), lambda: SAGEConv(4, 8), True, False),
    "gin": (lambda: SumAndSelf(nn.Linear(4, 8)), lambda: GINConv(nn.Linear(4, 8)), False, False),
    "gin-eps": (
        lambda: SumAndSelf(nn.Linear(4, 8), True),
        lambda: GINConv(nn.Linear(4, 8), train_eps=True),
        False,
        False,
    ),
}
# node 5 has no edge, (0, 1) is there twice, node 3 has a self-loop
EDGES = torch.tensor([[0, 0, 1, 2, 3, 3, 4, 1], [1, 1, 0, 1, 3, 2, 0, 4]])


@pytest.mark.parametrize("edge_index", [EDGES, EDGES[:, :0]], ids=["edges", "none"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_convolution_is_that_of_torch_geometric(name, edge_index):
    *builders, loops, adds = PAIRS[name]
    modules = []
    for build in builders:
        torch.manual_seed(0)
        modules.append(build())
    ours, theirs = (module.state_dict() for module in modules)
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)

    x = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = GraphBatch(x, edge_index, torch.tensor([0, 6]))
    theirs = add_remaining_self_loops(edge_index, num_nodes=6)[0] if loops and not adds else edge_index
    results = []
    for module, edges in zip(modules, (csr_edges(batch, self_loops=loops), theirs), strict=True):
        out = module.double()(x, edges)
        results.append([out, *torch.autograd.grad(out.sin().sum(), list(module.parameters()))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)
