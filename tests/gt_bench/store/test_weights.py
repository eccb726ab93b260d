"""Weights of the best seed: saved, loaded, and evaluated again; `gt-bench history` and `gt-bench diff`."""

import json
import re
import statistics
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gt_bench.store import weights
from gt_bench.store.run_store import Store, best_run
from gt_bench.store.weights import WeightsError, load_trained, save_trained
from gt_bench.utils.errors import UserError
from tests.gt_bench.shipping import CELL, run, train
from tests.refusals import refused


def trained(project, **changes):
    project.recipe(**changes)
    return train()


def test_the_best_seed_keeps_its_weights_and_they_score_the_same(project):
    result = trained(project, seeds=[0, 1, 2])
    records = [Store().get(digest) for digest in result.runs]
    files = [Store().folder(digest) / "weights.safetensors" for digest in result.runs]
    best = best_run(records)
    assert max(r.run.val for r in records) == best.run.val
    assert [path.exists() for path in files] == [record is best for record in records]
    model = load_trained(next(path for path in files if path.exists()))
    assert sum(p.numel() for p in model.parameters()) == best.run.parameters
    assert best.measured.arguments["hidden_dim"] == 8
    assert "level" in best.measured.arguments
    assert best.measured.usage["epoch"][-1] == 6
    done = run("score", CELL)
    assert (done.exit_code, done.output.count(repr(best.run.test))) == (0, 2), done.output


def test_equal_weights_are_equal_bytes(tmp_path):
    state = {"weight": torch.arange(3.0), "äbias": torch.ones(1, dtype=torch.float64)}
    found = set()
    for _ in range(20):
        path = save_trained(tmp_path, state, "mlp", {"in_dim": 3, "µ": "ä"}, of_every_seed=True, head={"classes": 2})
        found.add(path.read_bytes())
    assert len(found) == 1
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["arguments"]) == {"in_dim": 3, "µ": "ä"}
        assert all(torch.equal(file.get_tensor(name), value) for name, value in state.items())


def test_damaged_weights_stop_no_training_and_are_named_when_they_are_scored(project):
    result = trained(project, seeds=[0, 1, 2])
    for digest in result.runs:
        (Store().folder(digest) / "weights.safetensors").write_bytes(b"no weights")
    assert trained(project, seeds=[0, 1, 2]) == result
    done = run("score", CELL)
    assert isinstance(done.exception, WeightsError)
    assert "weights.safetensors: no weights of a model" in str(done.exception)


@pytest.mark.parametrize("later", [False, True])
def test_weights_that_another_process_removes_meanwhile_stop_no_training(project, monkeypatch, later):
    """Two processes train one cell, and one deletes weights before or after the other reads them."""
    result = trained(project, seeds=[0, 1, 2])
    whole = next(path for digest in result.runs if (path := Store().folder(digest) / "weights.safetensors").exists())
    others = [path for digest in result.runs if not (path := Store().folder(digest) / "weights.safetensors").exists()]
    for path in others:
        path.write_bytes(whole.read_bytes())

    def about(path):
        if later:
            found = about_of(path)
            path.unlink()
            return found
        path.unlink()
        return about_of(path)

    about_of = weights._about
    monkeypatch.setattr(weights, "_about", about)
    assert trained(project, seeds=[0, 1, 2]) == result
    assert [path.exists() for path in (whole, *others)] == [True, False, False]


def test_weights_of_another_epoch_score_otherwise(project):
    result = trained(project, seeds=[0])
    path = Store().folder(result.runs[0]) / "weights.safetensors"
    with safe_open(path, "pt") as file:
        about = file.metadata()
    save_file({name: torch.zeros_like(value) for name, value in load_file(path).items()}, path, about)
    assert run("score", CELL).exit_code == 1
    path.write_bytes(b"no weights")
    with refused(WeightsError, file=str(path)) as error:
        load_trained(path)
    assert "no weights of a model" in error.value.problem
    path.unlink()
    with refused(WeightsError, file=str(path), problem="file not found"):
        raise run("score", CELL).exception


def test_history_and_diff_say_what_changed(project):
    trained(project, seeds=[0])
    trained(project, seeds=[0, 1])  # more seeds extend the same attempt
    trained(project, seeds=[0, 1], optimizer={"name": "adam", "lr": 0.5})
    said = run("history", CELL).output.splitlines()
    assert [line.split(" (")[0] for line in said if line.startswith("attempt")] == ["attempt 1", "attempt 2"]
    assert re.match(r"attempt 1 \(\d{4}-\d\d-\d\d \d\d:\d\d UTC, commit ", said[0])
    assert said[0].endswith("2/2 runs, ok")
    assert said[-1].endswith("<- current")
    assert "    recipe  optimizer.lr: 0.01 -> 0.5" in said
    said = run("diff", CELL).output
    assert said.startswith("recipe  optimizer.lr: 0.01 -> 0.5\nattempt 1 (")
    assert run("diff", CELL, "-1", "0").output == said
    done = [record.run for record in project.records()]
    tested = {(one.recipe["optimizer"]["lr"], one.seed): one.test for one in done}
    gaps = [100 * (tested[0.5, seed] - tested[0.01, seed]) for seed in (0, 1)]
    mean, std = statistics.fmean(gaps), statistics.pstdev(gaps)
    assert f"difference over 2 common seeds: {mean:.2f} ± {std:.2f} (standard deviation)" in said.replace("+", "")
    # with the first recipe, the first attempt is current again, and nothing is computed
    before = len(list(Path("store").glob("??/*/record.json")))
    trained(project, seeds=[0, 1])
    assert len(list(Path("store").glob("??/*/record.json"))) == before
    assert "attempt 2" in run("history", CELL).output.splitlines()[-1]
    with refused(UserError, value=7):
        raise run("diff", CELL, "7").exception
