"""Searches with several workers, in a journal or a database; fair searches; trials and plots in MLflow."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import SearchSection
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.artifacts import search_summary
from gt_bench.search.space import space_size, trials_of
from gt_bench.search.storage import STORAGE, FileWorkers, storage_url
from gt_bench.store.run_store import Store
from gt_bench.tracking.mirror import Mirror
from gt_bench.tracking.sync import complete, track_cells
from gt_bench.tracking.uri import tracking_uri
from tests.conftest import ROOT
from tests.gt_bench.search.cases import GRID, SPACE, trials

CELL = "small/web/mlp"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in (STORAGE, "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def tune(**folders):
    grid = load_grid()
    return tune_cell(grid.find(CELL), grid, **folders)


def worker():
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "stages.tune", CELL], env=environment, stdout=subprocess.PIPE, text=True
    )


def finished_trials(said: str) -> int:
    return len(re.findall(r"search trial \d+ \(\d+/\d+\): ", said))


@pytest.mark.slow
@pytest.mark.parametrize("database", [False, True])
def test_two_processes_share_one_study_and_its_number_of_trials_is_exact(project, database):
    project.recipe(search=GRID, epochs=12, run={"study_storage": "sqlite:///studies.db"} if database else None)
    if database:  # two processes cannot create one SQLite database at the same time
        import optuna

        optuna.storages.RDBStorage("sqlite:///studies.db")
    both = [worker(), worker()]
    said = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    rows = trials()
    assert [row["state"] for row in rows] == ["COMPLETE"] * 9
    # every point occurs once, and each worker ran some
    assert len({(row["model.dropout"], row["optimizer.lr"]) for row in rows}) == 9
    ran = [finished_trials(text) for text in said]
    assert sum(ran) == 9
    assert min(ran) >= 1, said
    assert load_recipe("tuned/small/web/mlp.yaml").search is None
    assert Path("studies/small/web/mlp/journal.log").exists() != database
    # the study is complete: a third worker runs nothing
    records = len(project.records())
    tune()
    assert (trials(), len(project.records())) == (rows, records)


@pytest.mark.slow
def test_a_killed_worker_s_trial_is_done_by_the_one_that_is_left(project):
    project.recipe(search={**GRID, "trials": 3}, epochs=200)
    doomed = worker()
    deadline = time.monotonic() + 120
    while not list(Path("store").rglob("checkpoint.safetensors")):
        assert time.monotonic() < deadline
        assert doomed.poll() is None
        time.sleep(0.01)
    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()
    project.recipe(search={**GRID, "trials": 3}, epochs=200)
    left = worker()
    said = left.communicate(timeout=600)[0]
    rows = trials()
    assert [row["state"] for row in rows].count("COMPLETE") == 3
    assert [row["status"] for row in rows].count("killed, queued again") == 1
    assert finished_trials(said) == 3
    assert search_summary(load_grid().find(CELL))["used"] == 3


def test_who_is_alive_is_told_by_locks(tmp_path):
    one, other = FileWorkers(tmp_path), FileWorkers(tmp_path)
    assert one.alive(other.name)
    assert one.alive(one.name)
    assert not one.alive("nobody")
    other.close()
    assert not one.alive(other.name)
    one.close()
    assert not list(tmp_path.glob("worker-*"))


def test_where_studies_live(project, monkeypatch):
    project.recipe(search=GRID, run={"study_storage": "sqlite:///a.db"})
    assert storage_url(load_grid().run) == "sqlite:///a.db"
    monkeypatch.setenv(STORAGE, "sqlite:///b.db")
    assert storage_url(load_grid().run) == "sqlite:///b.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite:////nowhere/at/all.db", "not usable"),
        ("mysql+nodriver://me:secret@host/db", "study storage mysql+nodriver://me:***@host/db"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named_without_its_password(project, url, says):
    project.recipe(search=GRID, run={"study_storage": url})
    with pytest.raises(RecipeError) as error:
        tune()
    assert says in str(error.value)
    assert "secret" not in str(error.value)
    assert not Path("tuned").exists()


@pytest.mark.slow
def test_two_cells_with_one_recipe_have_two_studies_in_one_database(project):
    for row in ("mlp", "twin"):
        project.recipe(row=row, search={**GRID, "trials": 2}, run={"study_storage": "sqlite:///a.db"})
    grid = load_grid()
    for row in ("mlp", "twin"):
        tune_cell(grid.find(f"small/web/{row}"), grid)
    with Path("tuned/small/web/twin.csv").open() as file:
        assert [row["number"] for row in csv.DictReader(file)] == ["0", "1"]


@pytest.mark.slow
def test_a_study_file_of_another_cell_and_one_that_is_none(project):
    project.recipe(search={**GRID, "trials": 1})
    tune()
    project.recipe(row="other", search={**GRID, "trials": 1})
    shutil.copytree("studies/small/web/mlp", "studies/small/web/other")
    grid = load_grid()
    with pytest.raises(RecipeError, match="contains the study of small/web/mlp, not of small/web/other"):
        tune_cell(grid.find("small/web/other"), grid)
    journal = Path("studies/small/web/mlp/journal.log")
    whole = journal.read_text()
    for content in ("what\n" * 3, "what\n", "[]\n", whole + "what\n" + whole):
        journal.write_text(content)
        with pytest.raises(
            RecipeError,
            match=r"journal.log: not a journal of studies .*move it away and search again: finished trials are in",
        ):
            tune()
        assert journal.read_text() == content


@pytest.mark.slow
def test_an_entry_that_was_only_begun_when_its_writer_was_killed_costs_nothing_else(project, capsys):
    project.recipe(search={**GRID, "trials": 3})
    tune()
    before, rows = project.records(), trials()
    journal = Path("studies/small/web/mlp/journal.log")
    content = journal.read_bytes()
    journal.write_bytes(content[:-40])
    tune()
    assert "removed an incomplete last entry" in capsys.readouterr().out
    assert sum(row["status"] == "ok" for row in trials()) == len(rows) == 3
    assert project.records() == before, "runs of the store are not repeated"
    journal.write_bytes(b"{")
    tune()
    assert project.records() == before


def test_a_space_with_values_that_the_model_refuses_together_names_them(project):
    space = {"model.dropout": {"choices": [7.0]}, "model.hidden_dim": {"choices": [8]}}
    project.recipe(search={"trials": 2, "space": space})
    with pytest.raises(
        RecipeError,
        match=r"mlp.yaml: search.space contains an invalid combination: model.dropout 7.0, model.hidden_dim 8; rem",
    ):
        tune()
    project.recipe(search={"trials": 2, "space": {"reduced": {"choices": ["a"]}}})
    with pytest.raises(RecipeError, match="search.space.reduced: this key cannot be searched"):
        tune()
    project.recipe(search={"trials": 2, "sampler": "grid", "space": {"model.dropout": {"low": 0.0, "high": 0.5}}})
    with pytest.raises(
        RecipeError, match="mlp.yaml: search.sampler: grid requires choices instead of a range for model.dropout"
    ):
        tune()


@pytest.mark.parametrize("space", [{}, {"model.dropout": {"choices": []}}, {"optimizer.lr": {"low": 0.1, "high": 0.1}}])
def test_an_empty_search_space(project, space):
    project.recipe(search={"trials": 2, "space": space})
    with pytest.raises(RecipeError, match="search.space"):
        load_recipe("suites/small/recipes/web/mlp.yaml")


def test_both_ends_of_a_range_must_fit_the_recipe(project):
    project.recipe(search={"trials": 2, "space": {"optimizer.weight_decay": {"low": -0.5, "high": 0.1}}})
    with pytest.raises(RecipeError, match=r"search.space.optimizer.weight_decay: -0.5 is not valid"):
        tune()
    project.recipe(search={"trials": 2, "space": {"schedule.factor": {"low": 0.1, "high": 3.0}}})
    with pytest.raises(RecipeError, match=r"search.space.schedule.factor: 3.0 is not valid"):
        tune()


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (SPACE, (9, 0)),
        ({"a": {"low": 0, "high": 1}}, (1, 1)),
        ({"a": {"low": 1, "high": 4, "integer": True}, "b": {"low": 0.0, "high": 0.5, "step": 0.1}}, (4 * 6, 0)),
        ({"a": {"low": 1e-4, "high": 1, "log": True}, "b": {"choices": [1, 2]}}, (2, 1)),
    ],
)
def test_the_size_of_a_space(space, size):
    assert space_size(SearchSection(trials=1, space=space)) == size


def fair(trials_each: int) -> None:
    path = Path("params.yaml")
    path.write_text(path.read_text() + f"fair_search: {{small: {trials_each}}}\n")


@pytest.mark.slow
def test_a_fair_search_gives_every_cell_the_same_trials_over_spaces_of_one_size(project):
    project.recipe(search=GRID)
    project.recipe(row="twin", search={**GRID, "trials": 2})
    project.recipe(row="untuned")
    fair(4)
    grid = load_grid()
    for row in ("mlp", "twin"):
        tune_cell(grid.find(f"small/web/{row}"), grid)
        summary = search_summary(grid.find(f"small/web/{row}"))
        assert (summary["used"], summary["space"], summary["keys"]) == (
            4,
            "9 points",
            ["model.dropout", "optimizer.lr"],
        )
    # another number than in the recipe is not reported as reduced
    assert train_cell(grid.find("small/web/twin"), grid)["reduced"] == []
    project.recipe(row="twin", search={**GRID, "space": {"model.dropout": {"choices": [0.1, 0.2]}}})
    fair(4)
    with pytest.raises(RecipeError) as error:
        trials_of(load_grid().find(CELL), load_grid(), load_recipe("suites/small/recipes/web/mlp.yaml"))
    for text in (
        "fair_search.small: search spaces differ in size",
        "9 points: small/web/mlp",
        "2 points: small/web/twin",
    ):
        assert text in str(error.value)
    Path("params.yaml").write_text(Path("params.yaml").read_text().replace("{small: 4}", "{smal: 4}"))
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        load_grid()


def shown(suite: str) -> dict[str, dict]:
    """Returns what an experiment shows, by name of the run."""
    mirror = Mirror(tracking_uri(), suite)
    return {
        run.info.run_name: {
            "status": run.info.status,
            "params": run.data.params,
            "metrics": run.data.metrics,
            "tags": {k: v for k, v in run.data.tags.items() if k.startswith("gt.")},
            "artifacts": sorted(a.path for a in mirror.client.list_artifacts(run.info.run_id)),
        }
        for run in mirror.runs.values()
    }


@pytest.mark.slow
def test_trials_are_in_an_experiment_of_their_own_and_pictures_with_the_cell(project, monkeypatch):
    project.recipe(search={**GRID, "trials": 2}, run={"tracking": True}, seeds=[0], epochs=2)
    tune()
    searched = shown("small-search")
    assert sorted(searched) == ["web mlp search", "web mlp trial 0", "web mlp trial 1"]
    rows = trials()
    assert searched["web mlp trial 1"]["params"] == {k: rows[1][k] for k in SPACE}
    assert searched["web mlp trial 1"]["metrics"] == {"result/validation": float(rows[1]["value"])}
    pictures = ["search.history.png", "search.importance.png", "search.parallel.png"]
    assert searched["web mlp search"]["artifacts"] == pictures
    assert shown("small") == {}
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert shown("small") == {}, "a short cell is tracked by the leaderboard"
    track_cells([grid.find(CELL)])
    cell = shown("small")
    assert sorted(cell) == ["web mlp", "web mlp seed 0"]
    assert set(pictures) < set(cell["web mlp"]["artifacts"])
    # a tracking store that is rebuilt from the records is equal
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///again/mlflow.db")
    complete("small", [result], {r["digest"]: r for r in project.records()}, store=Store())
    assert shown("small-search") == searched
    assert shown("small") == cell
