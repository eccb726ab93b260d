"""GAT, GraphSAGE, GIN and GCNII: their equations, and checks of every model."""

import pytest
import torch

from gt_models.batch import GraphBatch, MissingEncoding
from tests.gt_models import checks
from tests.gt_models.baselines.message_passing_cases import build, graphs

VARIANTS = [
    ("gat", {}),
    ("gat", {"edge_dim": 3, "num_heads": 2, "residual": True}),
    ("gat", {"version": "v2", "edge_dim": 3, "num_heads": 4, "normalisation": "layer"}),
    ("gat", {"version": "v2", "self_loops": False, "rrwp_dim": 2}),
    ("sage", {}),
    ("sage", {"aggregation": "max", "residual": True, "normalisation": "layer"}),
    ("sage", {"aggregation": "sum", "unit_norm": True, "activation": "gelu", "pooling": "max"}),
    ("gin", {"mlp_norm": False, "normalisation": "none"}),
    ("gin", {"mlp_norm": False, "normalisation": "layer", "edge_dim": 3, "train_eps": True, "readout": "all"}),
    ("gcnii", {}),
    ("gcnii", {"shared_weights": False, "residual": True, "normalisation": "layer"}),
]
NAMES = sorted({name for name, _ in VARIANTS})


@pytest.mark.slow
@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_sound(name, arguments, level):
    checks.assert_sound(lambda: build(name, level, **arguments), graphs(), level, ("rrwp",))


@pytest.mark.parametrize("name", NAMES)
def test_batch_norm(name):
    model = build(name, "graph", normalisation="batch", num_layers=3)
    model(checks.collate(graphs()))
    assert model.norms[2].running_mean.abs().max() > 0
    checks.assert_batch_equals_singles(model, graphs())
    checks.assert_equivariant(model, graphs()[0], "graph", ("rrwp",))


@pytest.mark.parametrize("name", NAMES)
def test_unusual_graphs(name):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64),
            edges,
            torch.tensor([0, n]),
            torch.randn(len(pairs), 3, dtype=torch.float64),
        )

    # empty, one node, isolated nodes, a self-loop with a directed and a doubled edge
    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(4, [(0, 0), (0, 1), (2, 3), (2, 3)])]
    edges = {"edge_dim": 3} if name in ("gat", "gin") else {}
    for level, rows in (("node", 8), ("graph", 4)):
        model = build(name, level, **edges)
        assert model(checks.collate(unusual)).shape == (rows, 2)
        assert model(checks.collate(unusual)).isfinite().all()
        checks.assert_batch_equals_singles(model, unusual)


def test_bad_arguments_and_input():
    for name in NAMES:
        with pytest.raises(ValueError, match="it predicts: node, graph"):
            build(name, "pair")
        with pytest.raises(ValueError, match="at least one layer"):
            build(name, num_layers=0)
        with pytest.raises(MissingEncoding, match="compute it wider"):
            build(name, rrwp_dim=4)(graphs()[0])
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        build("gat", num_heads=3)
    with pytest.raises(ValueError, match="known: v1, v2"):
        build("gat", version="v3")
    with pytest.raises(ValueError, match="known: mean, max, sum"):
        build("sage", aggregation="median")
    with pytest.raises(ValueError, match="known: last, all"):
        build("gin", readout="first")
    graph = graphs()[0]
    graph.edge_attr = None
    with pytest.raises(ValueError, match="the batch has no edge_attr"):
        build("gin", edge_dim=3)(graph)
