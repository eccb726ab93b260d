"""Stage tune: on validation only, seeded, resumable, with pruning; its files list all trials."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.artifacts import search_summary
from tests.conftest import ROOT
from tests.forked import Forked

pytestmark = pytest.mark.slow

CELL = "small/web/mlp"
SEARCH = {
    "trials": 4,
    "seeds": [0, 1],
    "space": {"model.dropout": {"choices": [0.0, 0.5]}, "optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True}},
    "warmup_epochs": 1,
}


@pytest.fixture
def no_plots(monkeypatch):
    """Leave out the pictures of a search, which take longer than its trials."""
    monkeypatch.setattr("gt_bench.search.artifacts._plots", lambda *_: None)


def tune(**folders):
    grid = load_grid()
    return tune_cell(grid.find(CELL), grid, **folders)


def trials():
    with Path("tuned/small/web/mlp.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_trial_by_validation_becomes_the_recipe(project, capsys):
    project.recipe(search=SEARCH)
    chosen = tune()
    rows = trials()
    said = capsys.readouterr().out.splitlines()[-4:]
    assert said[0].startswith("best: trial ")
    assert f"optimizer.lr {chosen.optimizer.lr:.4g}" in said[0]
    assert said[1].startswith("importance")
    assert "optuna-dashboard studies/small/web/mlp/journal.log" in said[3]
    assert len(rows) == 4
    best = max((r for r in rows if r["state"] == "COMPLETE"), key=lambda r: float(r["value"]))
    assert chosen.optimizer.lr == float(best["optimizer.lr"])
    tuned = load_recipe("tuned/small/web/mlp.yaml")
    assert tuned.decisive() == chosen.decisive()
    assert tuned.search is None
    assert "trial" in tuned.origin["model.dropout"]
    for name in ("history", "importance", "parallel"):
        assert Path(f"tuned/small/web/mlp.{name}.png").stat().st_size > 1000
    assert search_summary(load_grid().find(CELL))["trials"] == 4
    # trials are runs that never evaluate the test split
    assert project.records()
    for record in project.records():
        assert record["deterministic"]["test"] is None
        assert record["deterministic"]["test_metrics"] == {}
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert result["status"] == "ok"
    assert result["search"]["trials"] == 4


def test_a_study_is_named_by_its_cell_and_a_digest(project, no_plots):
    import optuna

    project.recipe(search={**SEARCH, "trials": 2})
    tune()
    backend = optuna.storages.journal.JournalFileBackend("studies/small/web/mlp/journal.log")
    (name,) = optuna.get_all_study_names(optuna.storages.JournalStorage(backend))
    cell, digest = name.split(" ")
    assert (cell, len(digest)) == (CELL, 12)


def test_a_second_call_runs_no_trial_and_two_searches_agree(project, no_plots):
    project.recipe(search={**SEARCH, "pruner": "none"})
    tune()
    rows, text = trials(), Path("tuned/small/web/mlp.yaml").read_text()
    count = len(project.records())
    tune()
    assert (trials(), Path("tuned/small/web/mlp.yaml").read_text(), len(project.records())) == (rows, text, count)
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert trials() == rows


def test_a_value_that_was_edited_in_the_journal_is_no_best_one(project, no_plots):
    project.recipe(search={**SEARCH, "pruner": "none"})
    tune()
    journal, rows = Path("studies/small/web/mlp/journal.log"), trials()
    whole = journal.read_text()
    journal.write_text(whole.replace(f'"values":[{rows[0]["value"]}]', '"values":[0.99]'))
    assert journal.read_text() != whole
    with pytest.raises(
        RecipeError,
        match=r"journal.log: trial 0 has the value 0.99, but its records have 0\.\d+; move it away and search again",
    ):
        tune()
    journal.unlink()  # what to do
    tune()
    assert [row["value"] for row in trials()] == [row["value"] for row in rows]


def test_a_killed_search_queues_its_trial_again_and_ends_as_if_it_had_not_been_killed(project, no_plots):
    project.recipe(search={**SEARCH, "pruner": "none"}, epochs=60)
    process = Forked(tune, Path(), Path("log"))
    deadline = time.monotonic() + 120
    while not list(Path("store").rglob("record.json")) or not list(Path("store").rglob("checkpoint.safetensors")):
        assert time.monotonic() < deadline, "no trial got far enough"
        assert process.is_alive(), "the search ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    tune()
    rows = trials()
    assert [r["status"] for r in rows].count("killed, queued again") == 1
    finished = [(r["value"], r["model.dropout"], r["optimizer.lr"]) for r in rows if r["state"] == "COMPLETE"]
    assert len(finished) == 4
    summary = search_summary(load_grid().find(CELL))
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert search_summary(load_grid().find(CELL)) == summary  # text of reports about the search
    assert [(r["value"], r["model.dropout"], r["optimizer.lr"]) for r in trials()] == finished


class Killed(BaseException):
    pass


def test_killed_after_any_entry_of_its_journal_a_search_ends_as_if_it_had_not_been(project, monkeypatch):
    """Kill each worker one journal entry later than the last: between values, epochs, and before `study.tell`."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    write, left = JournalFileBackend.append_logs, [0]

    def append(self, logs):
        write(self, logs)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    def searched(folder):
        tune(store_root=Path(f"store-{folder}"), studies=Path(folder))
        journal = optuna.storages.JournalStorage(JournalFileBackend(f"{folder}/small/web/mlp/journal.log"))
        (study,) = optuna.get_all_study_names(journal)
        held = optuna.load_study(study_name=study, storage=journal).trials
        ended = [number for number, row in enumerate(trials()) if not row["status"].startswith("killed")]
        tried = [(held[n].state.name, held[n].params, held[n].value, held[n].intermediate_values) for n in ended]
        return tried, Path("tuned/small/web/mlp.yaml").read_text()

    monkeypatch.setattr(JournalFileBackend, "append_logs", append)
    monkeypatch.setattr("gt_bench.search.artifacts._plots", lambda *_: None)
    monkeypatch.setattr("gt_bench.search.artifacts.importance_of", lambda study: {})
    space = {"model.dropout": {"low": 0.0, "high": 0.9}, "optimizer.lr": {"low": 1e-6, "high": 1.0, "log": True}}
    project.recipe(
        search={"trials": 12, "seeds": [0], "space": space, "warmup_epochs": 1}, epochs=4
    )  # ten of them before TPE has a model
    undisturbed, kills = searched("undisturbed"), 0
    assert {"COMPLETE", "PRUNED"} == {state for state, *_ in undisturbed[0]}
    while True:
        left[0] = kills + 1
        try:
            found = searched("killed")
            break
        except Killed:
            kills += 1
    assert kills > 15
    assert found == undisturbed


def test_a_process_killed_while_it_writes_the_journal_blocks_nobody(project):
    from gt_bench.config.params import RunSettings
    from gt_bench.search.storage import open_study

    holds = (
        "import time; from pathlib import Path; from gt_bench.config.params import RunSettings; "
        "from gt_bench.search.storage import open_study; study = open_study(RunSettings(), Path(), 'c', 'x', ['max']); "
        "study._storage._backend._lock.acquire(); print(1, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holds], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert open_study(RunSettings(), Path(), "c", "x", ["max"]).ask().number == 0


def test_hopeless_trials_are_pruned(project, no_plots):
    space = {"optimizer.lr": {"choices": [0.05, 1e-9]}, "model.hidden_dim": {"choices": [8, 9, 10, 11, 12, 13]}}
    project.recipe(
        search={"trials": 20, "sampler": "grid", "space": space, "warmup_epochs": 2, "seeds": [0]}, epochs=12
    )
    tune()
    rows = trials()
    assert len({(r["optimizer.lr"], r["model.hidden_dim"]) for r in rows}) == len(rows) == 12
    pruned = [r for r in rows if r["state"] == "PRUNED"]
    assert pruned
    assert not list(Path("store").rglob("checkpoint.*"))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"model.droput": {"choices": [0.1]}}, ["search.space.model.droput", "did you mean 'dropout'"]),
        ({"model.hidden_dim": {"choices": [8, "wide"]}}, ["search.space.model.hidden_dim", "wide"]),
        ({"optimiser.lr": {"choices": [0.1]}}, ["search.space.optimiser.lr", "optimizer"]),
        ({"model.name": {"choices": ["gcn"]}}, ["search.space.model.name", "cannot be searched"]),
        (
            {"encodings.rrwp.steps": {"choices": [4]}},
            ["search.space.encodings.rrwp.steps", "does not have this encoding"],
        ),
        ({"epochs.foo": {"choices": [4]}}, ["epochs.foo", "epochs is a value and not a section"]),
        ({"model.dropout": {"choices": [0.1], "also": ["model.depth"]}}, ["search.space.model.dropout", "depth"]),
        ({"model.dropout": {"choices": [0.1], "also": ["seeds"]}}, ["search.space.seeds", "cannot be searched"]),
        (
            {"model.dropout": {"choices": [0.1], "also": ["optimizer.lr"]}, "optimizer.lr": {"choices": [0.1]}},
            ["duplicate key optimizer.lr"],
        ),
        ({"model.dropout": {"choices": [0.1, 0.1]}}, ["duplicate choices"]),
        ({"model.dropout": {"choices": [0, False]}}, ["duplicate choices"]),
        ({"optimizer.lr": {"low": 0.1, "high": float("inf")}}, ["finite"]),
    ],
)
def test_a_space_that_contradicts_the_recipe(project, space, words):
    project.recipe(search={"trials": 2, "space": space})
    with pytest.raises(RecipeError) as error:
        tune()
    for word in ["suites/small/recipes/web/mlp.yaml", *words]:
        assert word in str(error.value)


def test_keys_that_take_one_choice_together(project, no_plots):
    space = {"model.dropout": {"choices": [0.125, 0.25], "also": ["optimizer.weight_decay"]}}
    project.recipe(search={"trials": 2, "sampler": "grid", "space": space})
    tune()
    content = yaml.safe_load(Path("tuned/small/web/mlp.yaml").read_text())
    assert content["model"]["dropout"] == content["optimizer"]["weight_decay"] in (0.125, 0.25)
    assert content["origin"]["optimizer.weight_decay"] == content["origin"]["model.dropout"]
    ran = [r["deterministic"]["recipe"] for r in project.records()]
    assert sorted((r["model"]["dropout"], r["optimizer"]["weight_decay"]) for r in ran) == [
        (0.125, 0.125),
        (0.25, 0.25),
    ]


def test_trials_that_all_end_alike_are_no_error(project):
    project.recipe(
        search={"trials": 3, "space": {"model.dropout": {"choices": [0.1, 0.2, 0.3]}}},
        optimizer={"name": "sgd", "lr": 1e-12},
    )
    tune()
    assert len({r["value"] for r in trials()}) == 1
    assert Path("tuned/small/web/mlp.importance.png").stat().st_size > 1000


def test_limits_cut_trials_and_report_it(project, no_plots):
    project.recipe(search=SEARCH, limits={"small": {"trials": 1, "seeds": 1}})
    tune()
    assert len(trials()) == 1
    grid = load_grid()
    assert train_cell(grid.find(CELL), grid)["reduced"] == ["1 of 4 search trials", "1 of 2 seeds"]


def test_without_data_the_recipe_stays_as_it_is(project):
    project.recipe(search=SEARCH)
    Path("data/packed/web").rename("aside")
    recipe = tune()
    assert recipe.optimizer.lr == 0.01
    assert yaml.safe_load(Path("tuned/small/web/mlp.yaml").read_text())["optimizer"]["lr"] == 0.01
    assert trials() == []
    assert search_summary(load_grid().find(CELL)) is None


def test_a_changed_recipe_starts_a_new_study(project, no_plots):
    project.recipe(search=SEARCH)
    tune()
    project.recipe(search=SEARCH, epochs=3)
    tune()
    assert len(trials()) == 4
    assert {len(r["deterministic"]["epochs"]["epoch"]) for r in project.records()} == {3, 6}
