"""The public library: listings, encodings of user-supplied graphs, and the examples of docs/library.md."""

import pydoc
import re
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import gt_models
from gt_models import create_model, list_models, model_info
from gt_models.encodings import EncodingError, compute
from gt_models.transforms import AddEncodings
from tests.conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.S)
EXAMPLES = [block for block in BLOCKS if "create_model" in block]


def ring(n: int, seed: int = 0) -> Data:
    around = torch.arange(n)
    edges = torch.stack([torch.cat([around, (around + 1) % n]), torch.cat([(around + 1) % n, around])])
    return Data(
        x=torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)), edge_index=edges, y=torch.tensor([n % 2])
    )


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r'create_model\(\s*"([\w-]+)"', text)[1])
def test_each_example_trains(example):
    assert len([line for line in example.splitlines() if line.strip()]) <= 13
    before, scope = example.partition("for batch in"), {}
    exec(before[0], scope)
    start = {name: value.clone() for name, value in scope["model"].named_parameters()}
    exec(before[1] + before[2], scope)
    assert scope["loss"].isfinite()
    assert any(not torch.equal(value, start[name]) for name, value in scope["model"].named_parameters())


def test_there_are_the_five_architectures():
    assert {re.search(r'create_model\(\s*"([\w-]+)"', text)[1] for text in EXAMPLES} == {
        "tokengt", "hot", "ppgt", "edge-transformer", "polynormer",
    }  # fmt: skip


def test_dir_and_help_show_what_there_is():
    assert set(gt_models.__all__) <= set(dir(gt_models))
    shown = pydoc.render_doc(gt_models, renderer=pydoc.plaintext)
    for name in ("create_model", "list_models", "model_info", "class GraphBatch", "AddEncodings"):
        assert name in shown
    with pytest.raises(AttributeError, match="it has: GraphBatch"):
        _ = gt_models.create_modle


@pytest.mark.slow
def test_the_list_of_models_costs_no_torch():
    code = "import sys, gt_models; gt_models.list_models(); dir(gt_models); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_every_model_has_a_card():
    for name in list_models():
        card = model_info(name)
        if not card.cls.__module__.startswith("gt_models.baselines."):
            assert card.expressivity != "not stated", f"{name} has no entry in gt_models/metadata.py"
        assert "http" in card.paper or card.paper.startswith("none: "), f"{name}: no link to its paper"
        assert card.cost
        assert card.levels
    shown = str(model_info("edge-transformer"))
    assert "n^3 d" in shown
    assert "at least 3-WL" in shown
    assert "hidden_dim: int = 64" in shown


def test_encodings_of_ones_own_graph():
    data = ring(5)
    assert compute("rrwp", data, steps=3)["rrwp"].shape == (25, 4)
    assert compute("laplacian", Batch.from_data_list([data, ring(4)]), k=2)["laplacian_eigenvectors"].shape == (9, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "arguments", "request_"),
    [
        ("ppgt", {"hidden_dim": 16, "num_heads": 2, "num_layers": 1, "rrwp_dim": 6}, ("rrwp", "steps", 5)),
        ("tokengt", {"hidden_dim": 16, "num_heads": 2, "num_layers": 1, "node_id_dim": 5}, ("laplacian", "k", 5)),
        ("gcn", {"rrwp_dim": 3}, ("rrwp", "steps", 2)),
        ("gcn", {}, None),
    ],
)
def test_a_transform_gives_what_a_model_reads(model, arguments, request_):
    net = create_model(model, in_dim=3, out_dim=2, level="graph", **arguments)
    net.train()
    transform = AddEncodings.for_model(net)
    graphs = [transform(ring(n)) for n in (4, 6, 5)]
    assert net.training
    if request_ is None:
        assert transform.requests == {}
    else:
        name, key, value = request_
        assert list(transform.requests) == [name]
        assert transform.requests[name][key] == value
    net.eval()
    together = net(next(iter(DataLoader(graphs, batch_size=3))))
    alone = torch.cat([net(graph) for graph in graphs])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_other_arguments_than_the_width():
    net = create_model("ppgt", in_dim=3, out_dim=2, level="graph", hidden_dim=16, num_heads=2, num_layers=1, rrwp_dim=6)
    transform = AddEncodings.for_model(net, {"rrwp": {"identity": False}})
    transform(ring(5))
    assert transform.requests["rrwp"] | {"steps": 6, "identity": False} == transform.requests["rrwp"]
    with pytest.raises(EncodingError, match="did you mean 'rrwp'"):
        AddEncodings.for_model(net, {"rrpw": {}})


def test_random_identifiers_go_with_the_graph():
    transform = AddEncodings({"orthogonal": {"k": 4}})
    one, other = transform(ring(5)), transform(ring(6))
    assert torch.equal(one.node_identifiers, transform(ring(5, seed=1)).node_identifiers)
    assert not torch.equal(one.node_identifiers, other.node_identifiers[:5])


@pytest.mark.slow
def test_numbers_of_edges_are_not_joined_by_a_loader():
    net = create_model(
        "graphormer", in_dim=3, out_dim=2, level="graph", edge_dim=None, hidden_dim=16, num_heads=2, num_layers=1
    )
    with pytest.raises(EncodingError, match="apply the transform to each batch"):
        AddEncodings.for_model(net)(ring(5))
    batch = Batch.from_data_list([ring(5), ring(4)])
    assert net(AddEncodings.for_model(net)(batch)).shape == (2, 2)
