"""`Experiment`: the digest of a run, the record from the store or by training, and errors in the recipe's model."""

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import run as module
from gt_bench.experiment.run import Experiment, prepare_process
from gt_bench.pipeline.train import train_cell
from gt_bench.store.archive import record_problems
from gt_bench.store.run_store import Store
from gt_bench.training.failures import OutOfMemory
from gt_bench.training.loader import Loader
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from tests.conftest import ROOT
from tests.gt_bench.conftest import pack_web


@pytest.fixture
def make(project):
    """`make(dataset, row, **changes of the recipe)` creates the experiment of small/DATASET/ROW."""

    def experiment(dataset="web", row="mlp", **changes) -> Experiment:
        path = project.recipe(dataset, row, **changes)
        grid = load_grid()
        name = f"suites/small/recipes/{dataset}/{row}.yaml"
        return Experiment(load_recipe(path), name, dataset, grid.run, Store(), Path("data"))

    return experiment


def test_a_run_is_computed_once_and_then_read_from_the_store(make):
    experiment = make()
    started, epochs = [], []
    record, computed = experiment.run(
        0, on_start=lambda *run: started.append(run), on_epoch=lambda epoch, values: epochs.append(epoch)
    )
    assert computed
    assert started == [(0, experiment.digest(0))]
    assert epochs == [1, 2, 3, 4, 5, 6]
    assert record["digest"] == experiment.digest(0)
    assert record_problems(record) == []
    again, computed = experiment.run(0, on_start=lambda *run: pytest.fail("computed again"))
    assert (again, computed) == (record, False)
    assert experiment.settled(0) == record
    assert experiment.settled(1) is None


def test_a_trial_has_a_digest_of_its_own_and_no_test_value(make):
    experiment = make()
    record, _ = experiment.run(0, test=False)
    assert record["digest"] == experiment.digest(0, test=False) != experiment.digest(0)
    assert record["deterministic"]["test"] is None
    assert record["deterministic"]["test_metrics"] == {}
    assert record["deterministic"]["val"] is not None


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"epochs": 7}, False),
        ({"loss": "weighted-cross-entropy"}, False),
        ({"precision": "float64"}, False),
        ({"split": 1}, False),
        ({"seeds": [0, 1, 2]}, True),
        ({"keep_weights": True}, True),
        ({"run": {"time_limit_hours": 1.0, "checkpoint_seconds": 5.0}}, True),
    ],
)
def test_the_digest_depends_on_what_decides_numbers_only(make, changes, same):
    assert (make().digest(0) == make(**changes).digest(0)) is same


def test_the_digest_depends_on_data_versions_and_modified_code(make, monkeypatch):
    experiment = make()
    digests = {experiment.digest(0), experiment.digest(1)}
    with monkeypatch.context() as patched:
        patched.setattr(module, "run_versions", lambda *_: {"model": 2, "task": 1, "trainer": 1})
        digests.add(make().digest(0))
    with monkeypatch.context() as patched:
        patched.setattr(module.golden_values, "differences", lambda wanted: dict.fromkeys(wanted, "losses[0] differs"))
        digests.add(make().digest(0))
    assert make().digest(0) in digests
    pack_web(Path("data"), seed=1)
    digests.add(make().digest(0))
    assert len(digests) == 5


@pytest.mark.parametrize(
    "path",
    ["suites/small/recipes/web/mlp.yaml", "/installed/suites/small/recipes/web/mlp.yaml", "tuned/small/web/mlp.yaml"],
)
def test_golden_values_are_those_of_the_cell_of_the_recipe(make, monkeypatch, path):
    found = []
    monkeypatch.setattr(module.golden_values, "reference_cell", lambda *names: found.append(names))
    assert replace(make(), path=path).modified is None
    assert found == [("small/web/mlp", "mlp", "node-classification")]


def test_the_digest_states_whether_the_last_batch_is_joined(make):
    """The dataset `many` has 10 training graphs."""
    assert "last_batch" in make("many", batch={"graphs": 3}).digests
    assert "last_batch" not in make("many", batch={"graphs": 4}).digests
    assert "last_batch" not in make("many", batch={"graphs": 3, "last": "alone"}).digests
    assert "last_batch" not in make("many", batch={"graphs": 1}).digests
    assert "last_batch" in make("many", batch={"nodes": 20}).digests


@pytest.mark.slow
def test_a_copy_in_another_process_has_the_same_digest(make):
    experiment = make()
    Path("experiment.pickle").write_bytes(pickle.dumps(experiment))
    code = "import pickle; print(pickle.load(open('experiment.pickle', 'rb')).digest(0))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == experiment.digest(0)


def test_out_of_memory_is_stored_only_if_the_run_had_the_memory_for_itself(make, monkeypatch):
    experiment = make()

    def no_memory():
        raise OutOfMemory("no memory left")

    monkeypatch.setattr(experiment, "build", no_memory)
    record, computed = experiment.run(0, shared=True)
    assert (record["deterministic"]["status"], computed) == ("oom", True)
    assert experiment.store.get(experiment.digest(0)) is None
    record, _ = experiment.run(0)
    assert experiment.store.get(experiment.digest(0)) == record


def test_nothing_is_stored_if_data_were_edited_during_the_run(make, monkeypatch):
    experiment = make()
    compute = experiment._compute

    def compute_from_other_data(*arguments):
        record = copy.deepcopy(compute(*arguments))
        record["deterministic"]["digests"]["data"] = "0" * 64
        return record

    monkeypatch.setattr(experiment, "_compute", compute_from_other_data)
    with pytest.raises(RecipeError, match=r"mlp.yaml: seed 0: data changed during the run, .* nothing is stored"):
        experiment.run(0)
    assert not list(experiment.store.records())


def test_a_record_without_the_weights_that_another_cell_needs_is_computed_again(make):
    experiment = make(keep_weights=True)
    digest = experiment.run(0)[0]["digest"]
    folder = experiment.store.folder(digest)
    (folder / "weights.safetensors").unlink()
    (checkpoint := folder / "checkpoint.safetensors").write_bytes(b"x")
    assert experiment.settled(0) is None
    assert experiment.take(digest) is None
    assert checkpoint.exists()
    assert experiment.run(0)[1]
    assert (folder / "weights.safetensors").exists()
    assert experiment.take(digest) is not None


def test_a_recipe_that_starts_from_another_cell_needs_its_experiment(make):
    source = make(row="other", keep_weights=True)
    tuned = make(start={"cell": "small/web/other"})
    with pytest.raises(RecipeError, match="start: small/web/other is not available here; run the cell with `python -m"):
        tuned.digest(0)
    tuned.source = source
    assert tuned.decisive(0)["start"] == {"load": "all", "run": source.digest(0)}


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        (
            "web",
            {"model": {"name": "mlp", "hidden_dim": 0, "num_layers": 2}},
            "model: .* give each layer a width above 0",
        ),
        ("web", {"model": {"name": "gcn", "hidden_dim": -1}}, "model: "),
        (
            "web",
            {"epochs": None, "phases": [{"name": "local", "epochs": 1}]},
            "phases: model 'mlp' does not support phases; use epochs",
        ),
    ],
)
def test_a_model_that_cannot_be_built_names_the_recipe(make, dataset, changes, message):
    with pytest.raises(RecipeError, match=f"^suites/small/recipes/{dataset}/mlp.yaml: {message}"):
        make(dataset, **changes).build()


def test_the_loader_follows_the_recipe(make):
    assert type(make().loader(0)) is Loader
    around = make(subgraphs={"hops": 1, "max_nodes": 4}, batch={"graphs": 8}).loader(0)
    assert type(around) is SubgraphLoader
    scaled = make("many", targets="train", batch={"graphs": 4}).loader(0)
    assert type(scaled.packed) is StandardisedTargets
    assert make(precision="float64").loader(0).dtype == torch.float64


def test_constructor_arguments_are_those_of_the_dataset_and_the_recipe(make):
    given = make().constructor()
    assert given == {"in_dim": 5, "out_dim": 3, "level": "node", "hidden_dim": 8, "num_layers": 2, "dropout": 0.2}


def test_an_unknown_device_is_an_error_in_params(make):
    settings = make().settings.model_copy(update={"device": "cuda:99"})
    with pytest.raises(RecipeError, match=r"^params\.yaml: "):
        prepare_process(settings)


def test_the_record_on_disk_is_the_one_that_run_returns(make):
    experiment = make(seeds=[3])
    record, _ = experiment.run(3)
    path = experiment.store.folder(record["digest"]) / "record.json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(record))
    measured = record["measured"]
    assert measured["forms"].keys() == {"training", "evaluation"}
    assert measured["arguments"]["hidden_dim"] == 8
    assert measured["code"] == experiment.code


def test_padded_batches_from_the_device_are_noted_in_the_record(project):
    """The settings of a recipe and of params.yaml reach the run; the record has what they did."""
    changes = {"model": {"name": "gin", "hidden_dim": 8, "num_layers": 1}, "seeds": [0], "epochs": 2}
    project.recipe("many", "gin", batch={"graphs": 4, "static": True}, run={"data_on": "device"}, **changes)
    grid = load_grid()
    assert train_cell(grid.find("small/many/gin"), grid)["status"] == "ok"
    (record,) = project.records()
    assert not record_problems(record)
    noted = record["measured"]["static"]
    assert noted["mode"] is None
    assert noted["batches"]["padded"] >= 2 * 3 + 2 * 3
    assert record["deterministic"]["recipe"]["batch"] == {"bucket": False, "graphs": 4, "static": True}
    project.recipe("web", "mlp", compile="default", batch={"parts": 2})
    grid = load_grid()
    with pytest.raises(RecipeError, match=r"web/mlp\.yaml: compile cannot be combined with batch\.parts"):
        train_cell(grid.find("small/web/mlp"), grid)
