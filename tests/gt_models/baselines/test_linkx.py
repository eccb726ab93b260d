"""LINKX: its equations with a dense matrix, torch_geometric's LINKX, symmetries, invalid input."""

import torch
from torch import nn
from torch_geometric import nn as pyg

from gt_bench.training.loader import induced
from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_models import checks
from tests.gt_models.baselines.cases import redrawn


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    model = create_model(
        "linkx",
        **{"in_dim": 4, "out_dim": 3, "hidden_dim": 6, "num_nodes": 8, "num_layers": 2, "dropout": 0.0} | arguments,
    )
    return redrawn(model, vectors=False).double()


def with_numbers(sizes=(5, 3, 7)) -> list[GraphBatch]:
    graphs = checks.random_graphs(sizes)
    for graph in graphs:
        graph.edge_index, graph.edge_attr = graph.edge_index[:, 1:], graph.edge_attr[1:]  # not symmetric
        graph.encodings |= compute("number", graph)
    return graphs


def test_against_torch_geometric():
    graph, model = with_numbers((8,))[0], build().eval()
    other = pyg.LINKX(8, 4, 6, 3, 2).double().eval()
    mine, theirs = model.state_dict(), other.state_dict()
    theirs |= {"edge_lin.weight": mine["adjacency.weight"].T, "edge_lin.bias": mine["adjacency.bias"]}
    theirs |= {f"node_mlp.lins.0.{part}": mine[f"encoder.linear.{part}"] for part in ("weight", "bias")}
    left, right = mine["joint.weight"].split(6, 1)
    theirs |= {"cat_lin1.weight": left, "cat_lin2.weight": right, "cat_lin1.bias": mine["joint.bias"]}
    theirs["cat_lin2.bias"] = torch.zeros(6, dtype=torch.float64)
    theirs |= {
        f"final_mlp.lins.{i}.{part}": mine[f"linears.{i}.{part}"] for i in range(2) for part in ("weight", "bias")
    }
    theirs |= {
        key: mine[key.replace("final_mlp.norms.0.module", "norms.0")]
        for key in theirs
        if key.startswith("final_mlp.norms")
    }
    other.load_state_dict(theirs)
    torch.testing.assert_close(model(graph), other(graph.x, graph.edge_index), rtol=1e-10, atol=1e-10)


def test_a_part_of_a_graph_keeps_the_weights_of_its_nodes():
    graph, model = with_numbers((7,))[0], build().eval()
    nodes = torch.tensor([6, 2, 5])
    part, alone = induced(graph, nodes), GraphBatch(graph.x, graph.edge_index, graph.ptr, encodings=graph.encodings)
    inside = torch.isin(graph.edge_index, nodes).all(0)
    alone.edge_index = graph.edge_index[:, inside]
    torch.testing.assert_close(model(part), model(alone)[nodes], rtol=1e-10, atol=1e-10)
