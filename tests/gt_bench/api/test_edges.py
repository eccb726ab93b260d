"""Targets of edges through `gt-bench try`: every node model by its defaults, a user's model, stored predictions,
and docs/link_prediction.md."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Data
from typer.testing import CliRunner

from gt_bench import evaluate
from gt_bench.api.needed_encodings import with_encodings
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.experiment.debug import Debugger
from gt_bench.experiment.run import Experiment
from gt_bench.plugins.datasets import dataset_name
from gt_bench.plugins.default_recipes import recipe_of
from gt_bench.store.run_store import Store
from gt_models.kernels import use
from gt_models.registry import list_models, model_info
from tests.conftest import ROOT
from tests.gt_bench.user_models import forgotten, forked, write  # noqa: F401 (fixtures)

NODE_MODELS = [name for name in list_models() if "node" in model_info(name).levels]
# they read continuous features, or marks of subgraphs
REFUSED = {"gin-bare", "classic-gnn", "ppgt-node2subgraph-released"}

NET = """
    import torch
    from torch_geometric.nn import GCNConv

    class Net(torch.nn.Module):
        def __init__(self, in_dim, out_dim, hidden=8):
            super().__init__()
            self.first, self.second = GCNConv(in_dim, hidden), GCNConv(hidden, out_dim)

        def forward(self, data):
            assert not hasattr(data, "edge_label_index") and data.y is None
            return self.second(self.first(data.x, data.edge_index).relu(), data.edge_index)
    """


def write_friends(folder: Path, nodes: int = 40) -> Path:
    """Writes two groups of people; most edges are within a group. Each edge has a class and a weight."""
    rng = np.random.default_rng(0)
    group = np.arange(nodes) % 2
    pairs = sorted({tuple(sorted(pair)) for pair in rng.integers(0, nodes, (6 * nodes, 2)).tolist()})
    pairs = [(a, b) for a, b in pairs if a != b and (group[a] == group[b] or rng.random() < 0.1)]
    folder.mkdir(parents=True)
    features = [f"p{i},{group[i] + rng.normal():.3f},{rng.normal():.3f}" for i in range(nodes)]
    (folder / "nodes.csv").write_text("\n".join(["id,a,b", *features]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"p{a},p{b}" for a, b in pairs)]) + "\n")
    return folder


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    """A folder with the prepared dataset `friends` of link prediction."""
    root = tmp_path_factory.mktemp("friends")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_friends(root / "lab/friends", nodes=24)
        dataset_name("lab/friends", Description(task="link-prediction", undirected=True))
        assert prepare("friends", Path("data"), [], print).state != "unavailable"
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NODE_MODELS) - REFUSED))
def test_every_node_model_trains_on_links_by_its_defaults(friends, monkeypatch, name):
    """By its equations: compiling the fast paths of all widths takes half a minute."""
    monkeypatch.chdir(friends)
    packed, info = PackedDataset.open("data/packed/friends"), model_info(name)
    with use("reference"):
        recipe = with_encodings(recipe_of(info, packed.header, {}, [0], None), info, packed)
        debugger = Debugger(Experiment(recipe, name, "friends", load_grid().run, Store()), 0)
        losses = [debugger.step(batch, rows) for _, (batch, rows) in zip(range(2), debugger.batches(), strict=False)]
        found = debugger.run._evaluate("val")["mrr"]
    assert all(np.isfinite(losses)), losses
    moved = [p.grad is not None and bool((p.grad != 0).any()) for p in debugger.model.node_model.parameters()]
    assert any(moved)
    assert np.isfinite(found)


def test_encodings_of_links_are_not_stored_because_they_would_be_those_of_the_whole_graph(friends, monkeypatch, capsys):
    from gt_bench.pipeline.encode import encode_dataset

    monkeypatch.chdir(friends)
    recipe = {
        "model": {"name": "gps"}, "encodings": {"rwse": {"steps": 4}}, "head": {"name": "product"},
        "batch": {"negatives": 1}, "optimizer": {"lr": 0.01}, "epochs": 1, "seeds": [0],
        "origin": {"all": "chosen: here"},
    }  # fmt: skip
    write("suites/mine/recipes/friends/gps.yaml", yaml.safe_dump(recipe))
    assert encode_dataset("friends", load_grid(), Path("data"), Path(), False, 1) == []
    assert "friends: encodings of link prediction are computed in each run" in capsys.readouterr().out
    assert not list(Path("data/encodings/friends").glob("*.safetensors"))


def invoke(*arguments):
    shown = CliRunner().invoke(app, list(arguments))
    assert shown.exit_code == 0, (shown.output, shown.exception)
    return shown


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_model_of_a_user_predicts_links_and_its_predictions_are_scored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_friends(tmp_path / "friends")
    write("net.py", NET)
    arguments = ["try", "net.py:Net", "friends", "--task", "link-prediction", "--metric", "hits@10", "--undirected"]
    shown = invoke(*arguments, "--seeds", "0,1", "--set", "epochs=5")
    assert "friends is now the dataset 'friends': link-prediction, hits@10, undirected" in shown.output
    assert "head.name=product" in shown.output
    assert "batch.negatives=1" in shown.output
    assert yaml.safe_load(Path("datasets.yaml").read_text())["friends"]["metric"] == "hits@10"
    runs = {record.run.seed: record.run for record in Store().records()}
    assert sorted(runs) == [0, 1]
    metrics = ["--metric", "hits@10", "--metric", "mrr", "--metric", "roc-auc", "--metric", "ap"]
    scored = json.loads(invoke("score", "tried/friends/net-epochs-5", *metrics, "--json").stdout)["metrics"]
    assert {int(s): v for s, v in scored["hits@10"]["seeds"].items()} == {s: run.test for s, run in runs.items()}
    assert all(0 < scored[name]["mean"] <= 1 for name in ("mrr", "roc-auc", "ap"))
    wrong = CliRunner().invoke(app, ["score", "tried/friends/net-epochs-5", "--metric", "accuracy"])
    assert "--metric accuracy: not a metric of link-prediction" in str(wrong.exception)


@pytest.mark.slow
def test_a_data_object_has_links_without_its_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("run: {tracking: false, parallel: 1}\n")
    Path("grid.yaml").write_text("datasets: []\nsuites: []\ncells: {}\n")
    pairs = torch.tensor([(i, (i + j) % 12) for i in range(12) for j in (1, 2, 5)]).T
    data = Data(x=torch.randn(12, 3), edge_index=pairs, y=torch.arange(12) % 2)
    settings = {"epochs": 2, "model.hidden_dim": 4}
    links = {"task": "link-prediction", "undirected": True}
    found = evaluate("gcn", data, 1, name="rings", set=settings | {"head.dim": 4}, track=False, **links)
    assert 0 < found.mean <= 1
    assert "targets   36 edges; 100 negatives of each on val and test" in capsys.readouterr().out
    assert np.load("data/own/rings.npz")["y"].tolist() == [1] * 36  # every edge is one
    other = evaluate("gcn", data, 1, name="halves", task="node-classification", set=settings, track=False)
    assert other.row["metric"] == "accuracy"


def test_a_model_without_embeddings_of_nodes_is_refused(friends, monkeypatch):
    monkeypatch.chdir(friends)
    wrong = CliRunner().invoke(app, ["try", "ppgn", "friends"])
    assert "dataset 'friends' needs embeddings of nodes, for its edges" in str(wrong.exception)


@pytest.fixture
def page(tmp_path, monkeypatch) -> str:
    """The text of docs/link_prediction.md, in a folder with the files that it asks for."""
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    text = (ROOT / "docs/link_prediction.md").read_text()
    for name, content in re.findall(r"`([\w./]+\.(?:py|csv))`:\n\n```\w*\n(.*?)```", text, re.DOTALL):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return text


@pytest.mark.slow
def test_the_page_on_link_prediction(page):
    for script in re.findall(r"\$ python (\S+\.py)", page):
        subprocess.run([sys.executable, script], check=True)
    commands = re.findall(r"^\$ gt-bench (.*)$", page, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        output = invoke(*command.split()).output
        for line in re.findall(r"^(?:people: link|  nodes  |  edges  |  targets  |  splits  ).*$", page, re.MULTILINE):
            assert line in output or "people --task" not in command
