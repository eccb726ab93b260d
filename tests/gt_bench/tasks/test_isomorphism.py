"""Small graphs that untrained models distinguish, and rounding that must not count as a difference."""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed_writer import pack
from gt_bench.tasks.isomorphism import compare, relabel
from gt_models import GraphBatch
from tests.gt_bench import runs
from tests.gt_bench.conftest import header_of
from tests.refusals import refused

ROOK = nx.convert_node_labels_to_integers(nx.line_graph(nx.complete_bipartite_graph(4, 4)))
STEPS = [(0, 1), (1, 0), (1, 1)]
SHRIKHANDE = nx.convert_node_labels_to_integers(
    nx.Graph([((a, b), ((a + x) % 4, (b + y) % 4)) for a in range(4) for b in range(4) for x, y in STEPS])
)
# the first two are 1-WL equivalent, the next two 3-WL equivalent; all others differ in their degrees
GRAPHS = [
    nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)), ROOK, SHRIKHANDE, nx.path_graph(6),
]  # fmt: skip
RECIPE = {"optimizer": {"lr": 1.0}, "precision": "float64", "epochs": 2, "seeds": [0]}
MODELS = {
    "gcn": ({"name": "gcn", "hidden_dim": 16, "num_layers": 3, "pooling": "sum"}, {}, {(0, 1), (2, 3)}),
    "edge-transformer": ({"name": "edge-transformer", "hidden_dim": 16, "num_layers": 2, "num_heads": 2}, {}, {(2, 3)}),
    "ppgt": ({"name": "ppgt", "hidden_dim": 16, "num_heads": 4, "num_layers": 2, "rrwp_dim": 9, "stem_dim": 16,
     "num_stem_ffn": 1}, {"rrwp": {"steps": 8}}, {(2, 3)}),
    "i2gnn-ppgt": ({"name": "i2gnn-ppgt", "hidden_dim": 16, "num_heads": 4, "num_layers": 1, "rrwp_dim": 9,
     "stem_dim": 16, "num_stem_ffn": 1, "subgraph_hops": 1, "gin_layers": 3}, {"rrwp": {"steps": 8}}, set()),
}  # fmt: skip


@pytest.fixture
def experiment(tmp_path):
    edges = [np.array(list(g.to_directed().edges), np.int64).T for g in GRAPHS]
    sizes = [len(g) for g in GRAPHS]
    pairs = {"metric": "pairs-distinguished", "num_splits": 0}
    header = header_of("few", "isomorphism", level="graph", in_dim=[1], out_dim=8, **pairs)
    arrays = {"num_nodes": sizes, "num_edges": [e.shape[1] for e in edges], "edge_index": np.concatenate(edges, 1)}
    arrays |= {"x": np.zeros((sum(sizes), 1), np.uint8), "y": np.arange(len(GRAPHS))}
    pack(tmp_path / "packed/few", header, arrays)
    return lambda **changes: runs.experiment(tmp_path, "few", **RECIPE | changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_separate_what_their_class_separates(experiment, name):
    model, encodings, same = MODELS[name]
    seen = []
    record, _ = experiment(model=model, encodings=encodings).run(
        0, on_epoch=lambda epoch, values: seen.append(values["distinguished"])
    )
    run = record.run
    assert (run.status, run.test) == ("ok", 10 - len(same))
    assert run.epochs["distinguished"] == seen == sorted(seen)
    assert run.test_metrics["accuracy"] == pytest.approx(1 - len(same) / 10)
    assert run.test_metrics["noise"] < 1e-10
    assert run.parameters > 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_record(experiment):
    model, encodings, _ = MODELS["ppgt"]
    one, other = (experiment(model=model, encodings=encodings, batch={"graphs": graphs}) for graphs in (2, 2))
    first, _ = one.run(0)
    assert one.store.folder(first.digest).exists()
    (one.store.folder(first.digest) / "record.json").unlink()
    assert other.run(0)[0].run == first.run


def test_relabelling_moves_features_and_edges_together():
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    batch = GraphBatch(torch.arange(5.0, dtype=torch.float64)[:, None], edges, torch.tensor([0, 3, 5]))
    moved = relabel(batch, torch.Generator().manual_seed(3))
    assert not torch.equal(moved.x, batch.x)
    old = moved.x[:, 0].long()  # old index of each node
    assert old[:3].max() < 3
    assert {tuple(e) for e in old[moved.edge_index].T.tolist()} == {tuple(e) for e in edges.T.tolist()}
    # edges have the same order, so edge features are unchanged
    assert torch.equal(old[moved.edge_index], edges)


def test_a_model_that_is_not_invariant_distinguishes_nothing():
    class FirstNode(torch.nn.Module):
        def forward(self, batch):
            return batch.x[batch.ptr[:-1]]

    x = torch.tensor([[1.0], [0.0], [2.0], [0.0]]).double()
    batch = GraphBatch(x, torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 2, 4]))
    swapped = GraphBatch(batch.x[[1, 0, 3, 2]], batch.edge_index, batch.ptr)
    apart, _, noise = compare(FirstNode(), [batch], [swapped])
    assert noise > 0
    assert not apart.any()


def test_single_precision_is_refused(experiment):
    with refused(RecipeError, file="recipe.yaml", place="precision", value="float32"):
        experiment(model=MODELS["gcn"][0], precision="float32").run(0)
