"""Greedy ensembles: chosen on validation alone, and what `gt-bench try --search N --ensemble` compares."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from gt_bench import load_results
from gt_bench.analysis.ensemble import select
from gt_bench.api.ensemble import check_ensemble
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.store.predictions import Part, Predictions, load
from gt_bench.store.run_store import Store
from tests.gt_bench.cells import make_record

FAST = ["--seeds", "0-1", "--set", "epochs=3", "--set", "model.hidden_dim=8"]


def candidate(val, test, target, task="node-classification", metric="accuracy", direction="max", ids=None):
    """Returns predictions on validation and test with the same targets."""
    record = make_record("small/web/mlp", 0)
    record["deterministic"] |= {"metric": metric, "direction": direction}
    parts = {
        name: Part(torch.as_tensor(output), {"": torch.as_tensor(target)}, {}, ids, None)
        for name, output in (("val", val), ("test", test))
    }
    return Predictions(record, task, None, "node", parts)


TARGET = [0, 1, 0, 1]
# sure and right about the first two, unsure and wrong about the others; and the reverse
FIRST = torch.tensor([[4.0, 0.0], [0.0, 4.0], [0.0, 0.5], [0.5, 0.0]])
SECOND = torch.tensor([[0.0, 0.5], [0.5, 0.0], [4.0, 0.0], [0.0, 4.0]])


def test_complementary_candidates_are_combined():
    found = select({"a": candidate(FIRST, FIRST, TARGET), "b": candidate(SECOND, SECOND, TARGET)})
    assert found.weights == {"a": 0.5, "b": 0.5}
    assert (found.validation, found.test) == (1.0, 1.0)


def test_a_candidate_that_does_not_help_has_no_weight():
    right, wrong = 4 * torch.eye(2)[TARGET], 4 * torch.eye(2)[[1, 0, 1, 0]]
    found = select({"wrong": candidate(wrong, right, TARGET), "right": candidate(right, wrong, TARGET)})
    assert found.weights == {"right": 1.0}
    assert (found.validation, found.test) == (1.0, 0.0)


def test_the_choice_does_not_depend_on_the_test_part():
    rng = torch.Generator().manual_seed(0)
    target = torch.randint(3, (60,), generator=rng)
    outputs = [torch.eye(3)[target] + 1.5 * torch.randn(60, 3, generator=rng) for _ in range(6)]
    weights = []
    for test in (outputs, outputs[::-1], [torch.zeros(60, 3)] * 6):
        runs = {str(i): candidate(val, other, target) for i, (val, other) in enumerate(zip(outputs, test, strict=True))}
        found = select(runs)
        weights.append(found.weights)
        shares = sum(w * outputs[int(name)].double().softmax(-1) for name, w in found.weights.items())
        assert found.validation == pytest.approx((shares.argmax(-1) == target).double().mean())
    assert weights[0] == weights[1] == weights[2]
    assert sum(weights[0].values()) == pytest.approx(1.0)
    alone = max((output.argmax(-1) == target).double().mean() for output in outputs)
    assert found.validation >= alone


def test_errors_of_opposite_sign_cancel_where_smaller_is_better():
    target = torch.tensor([[1.0], [2.0], [3.0]])
    of = {"task": "graph-regression", "metric": "mae", "direction": "min"}
    runs = {"high": candidate(target + 1, target + 1, target, **of), "low": candidate(target - 1, target, target, **of)}
    found = select(runs)
    assert found.weights == {"high": 0.5, "low": 0.5}
    assert (found.validation, found.test) == (0.0, 0.5)


def test_runs_on_different_examples_are_not_combined():
    one = candidate(FIRST, FIRST, TARGET, ids=np.arange(4))
    with pytest.raises(RecipeError, match="the same val examples"):
        select({"a": one, "b": candidate(FIRST, FIRST, TARGET, ids=np.arange(1, 5))})


def test_three_columns(ours):
    command = ["try", "mlp", "web", *FAST, "--search", "3", "--ensemble", "--members", "2", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    columns = {one["name"]: one for one in found["tuned"]["columns"]}
    assert list(columns) == ["default", "tuned", "tuned and ensembled"]
    rows = {row["model"]: row for row in found["rows"]}
    assert columns["default"]["mean"] == rows["mlp-epochs-3-hidden-dim-8"]["mean"]
    assert columns["tuned"]["mean"] == rows["mlp-epochs-3-hidden-dim-8-searched"]["mean"]
    assert [(one["trials"], one["runs"]) for one in columns.values()] == [(0, 2), (3, 2), (3, 6)]
    assert columns["default"]["hours"] > 0
    assert 0 < columns["tuned"]["hours"] < columns["tuned and ensembled"]["hours"]
    # the ensemble of each seed, computed again from the stored predictions of its members
    weights = found["tuned"]["weights"]
    assert set(weights) == {"0", "1"}
    store, base = Store(), Path("tuned/tried/web/mlp-epochs-3-hidden-dim-8-searched.csv")
    with base.open() as file:
        trials = {float(row["optimizer.lr"]): f"trial {row['number']}" for row in csv.DictReader(file)}
    parts = {}
    for record in store.records():
        run = record["deterministic"]
        if run["test"] is not None:
            name = trials.get(run["recipe"]["optimizer"]["lr"], "default")
            parts[name, run["seed"]] = load("x", record, store).parts["test"]
    assert len(parts) == 6
    seconds = sum(record["measured"]["seconds"] for record in store.records())  # trials and runs
    assert columns["tuned and ensembled"]["hours"] == pytest.approx(seconds / 3600)
    for seed, members in weights.items():
        shares = sum(w * parts[name, int(seed)].output.double().softmax(-1) for name, w in members.items())
        labels = parts["default", int(seed)].labels
        expected = float((shares.argmax(-1) == labels).double().mean())
        assert columns["tuned and ensembled"]["values"][seed] == pytest.approx(expected)
    assert json.loads(base.with_suffix(".ensemble.json").read_text()) == found["tuned"]
    tried = load_results("tried")
    searched = tried["model"].str.endswith("searched")
    (row,) = tried[searched].to_dict("records")
    assert row["ensemble_mean"] == columns["tuned and ensembled"]["mean"]
    assert row["default_mean"] == columns["default"]["mean"]
    assert row["trials"] == columns["tuned"]["trials"] == 3
    assert any("ensemble of the search's trials, chosen on validation" in note for note in row["notes"])
    assert tried[~searched]["ensemble_mean"].isna().tolist() == [True]
    # everything is in the store: the same command computes nothing
    before = sorted(store.digests())
    again = CliRunner().invoke(app, command[:-1])
    assert sorted(store.digests()) == before
    assert "tuned and ensembled" in again.output
    assert "greedy selection with replacement on validation predictions" in " ".join(again.output.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ensemble"], "--ensemble is given and no search"),
        (["--search", "2", "--ensemble", "--members", "0"], "--members 0: expected 1 or more"),
        (
            ["--search", "2", "--ensemble", "--objective", "parameters"],
            "this search has the objectives validation, par",
        ),
        (["--sampler", "gp"], "--sampler gp is given and no search: add --search TRIALS"),
        (["--search", "2", "--sampler", "qmc"], "qmc samples numbers of a range, and model.num_layers has choices"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_runs(ours, options, says):
    done = CliRunner().invoke(app, ["try", "mlp", "web", *FAST, *options])
    assert says in str(done.exception)
    assert not list(Store().digests())


def test_no_predictions_no_ensemble(ours):
    Path("params.yaml").write_text("run: {predictions: 0, tracking: false}\n")
    with pytest.raises(
        RecipeError, match="--ensemble needs stored predictions, and run.predictions of params.yaml is 0"
    ):
        check_ensemble("node-classification", "accuracy", load_grid(), 2, ["validation"])
    with pytest.raises(RecipeError, match="predictions of the task isomorphism cannot be averaged"):
        check_ensemble("isomorphism", "accuracy", load_grid(), 2, ["validation"])
