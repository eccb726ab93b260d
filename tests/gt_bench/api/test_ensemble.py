"""What `gt-bench try --search N --ensemble` compares: default, tuned, and tuned and ensembled."""

import csv
import json
from pathlib import Path

import pytest
from scipy.special import softmax
from typer.testing import CliRunner

from gt_bench import load_results
from gt_bench.api.ensemble import check_ensemble
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.store.predictions import load
from gt_bench.store.run_store import Store
from tests.refusals import refused

FAST = ["--seeds", "0-1", "--set", "epochs=3", "--set", "model.hidden_dim=8"]


@pytest.mark.slow
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
        rows = [row for row in csv.DictReader(file) if not row["origin"]]  # trial 0 has the values of the default
        trials = {float(row["optimizer.lr"]): f"trial {row['number']}" for row in rows}
    parts = {}
    for record in store.records():
        run = record.run
        if run.test is not None:
            name = trials.get(run.recipe["optimizer"]["lr"], "default")
            parts[name, run.seed] = load("x", record, store).parts["test"]
    assert len(parts) == 6
    seconds = sum(record.measured.seconds for record in store.records())  # trials and runs
    assert columns["tuned and ensembled"]["hours"] == pytest.approx(seconds / 3600)
    for seed, members in weights.items():
        shares = sum(w * softmax(parts[name, int(seed)].output, -1) for name, w in members.items())
        labels = parts["default", int(seed)].labels
        expected = (shares.argmax(-1) == labels).mean()
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
    "options",
    [
        ["--ensemble"],
        ["--search", "2", "--ensemble", "--members", "0"],
        ["--search", "2", "--ensemble", "--objective", "parameters"],
        ["--sampler", "gp"],
        ["--search", "2", "--sampler", "qmc"],
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_runs(ours, options):
    CliRunner().invoke(app, ["try", "mlp", "web", *FAST, *options])
    assert not list(Store().digests())


def test_no_predictions_no_ensemble(ours):
    Path("params.yaml").write_text("run: {predictions: 0, tracking: false}\n")
    with refused(RecipeError, place="--ensemble", value=0):
        check_ensemble("node-classification", "accuracy", load_grid(), 2, ["validation"])
    with refused(RecipeError, place="--ensemble", value="isomorphism"):
        check_ensemble("isomorphism", "accuracy", load_grid(), 2, ["validation"])
