"""Stage tune: on validation only, seeded, resumable, with pruning; its files list all trials."""

import csv
from pathlib import Path

import pytest
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.artifacts import search_summary
from tests.refusals import refused

pytestmark = pytest.mark.slow

CELL = "small/web/mlp"
SEARCH = {
    "trials": 4,
    "seeds": [0, 1],
    "space": {"model.dropout": {"choices": [0.0, 0.5]}, "optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True}},
    "warmup_epochs": 1,
}


def tune(**folders):
    grid = load_grid()
    return tune_cell(grid.find(CELL), grid, **folders)


def trials():
    with Path("tuned/small/web/mlp.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_trial_by_validation_becomes_the_recipe(project, pictures, capsys):
    project.recipe(search=SEARCH)
    chosen = tune()
    rows = trials()
    best, *_ = capsys.readouterr().out.splitlines()[-3:]
    assert f"optimizer.lr {chosen.optimizer.lr:.4g}" in best
    assert len(rows) == 4
    best = max((r for r in rows if r["state"] == "COMPLETE"), key=lambda r: float(r["value"]))
    assert chosen.optimizer.lr == float(best["optimizer.lr"])
    tuned = load_recipe("tuned/small/web/mlp.yaml")
    assert tuned.decisive() == chosen.decisive()
    assert tuned.search is None
    assert "trial" in tuned.origin["model.dropout"]
    for name in ("history", "importance", "parallel"):
        assert Path(f"tuned/small/web/mlp.{name}.png").stat().st_size > 1000
    assert search_summary(load_grid().find(CELL)).trials == 4
    # trials are runs that never evaluate the test split
    assert {(record.run.test, *record.run.test_metrics) for record in project.records()} == {(None,)}
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert result.status == "ok"
    assert result.search.trials == 4


def test_a_second_call_runs_no_trial_and_two_searches_agree(project):
    project.recipe(search={**SEARCH, "pruner": "none"})
    tune()
    rows, text = trials(), Path("tuned/small/web/mlp.yaml").read_text()
    count = len(project.records())
    tune()
    assert (trials(), Path("tuned/small/web/mlp.yaml").read_text(), len(project.records())) == (rows, text, count)
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert trials() == rows


def test_a_value_that_was_edited_in_the_journal_is_no_best_one(project):
    project.recipe(search={**SEARCH, "pruner": "none"})
    tune()
    journal, rows = Path("studies/small/web/mlp/journal.log"), trials()
    whole = journal.read_text()
    journal.write_text(whole.replace(f'"values":[{rows[0]["value"]}]', '"values":[0.99]'))
    assert journal.read_text() != whole
    with refused(RecipeError, file=str(journal), place="trial 0", value=0.99):
        tune()
    journal.unlink()  # what to do
    tune()
    assert [row["value"] for row in trials()] == [row["value"] for row in rows]


def test_hopeless_trials_are_pruned(project):
    space = {"optimizer.lr": {"choices": [0.05, 1e-9]}, "model.hidden_dim": {"choices": [8, 9, 10, 11, 12, 13]}}
    search = {"trials": 20, "sampler": "grid", "space": space, "warmup_epochs": 2, "seeds": [0]}
    project.recipe(search=search, epochs=12)
    tune()
    rows = trials()
    assert len({(r["optimizer.lr"], r["model.hidden_dim"]) for r in rows}) == len(rows) == 12
    assert "PRUNED" in {r["state"] for r in rows}
    assert not list(Path("store").rglob("checkpoint.*"))


DROPOUT = {"choices": [0.1]}


@pytest.mark.parametrize(
    ("space", "place", "problem"),
    [
        ({"model.droput": {"choices": [0.1]}}, ".model.droput", "did you mean 'dropout'?"),
        ({"model.hidden_dim": {"choices": [8, "wide"]}}, ".model.hidden_dim", "given: 'wide'"),
        ({"optimiser.lr": {"choices": [0.1]}}, ".optimiser.lr", "did you mean 'optimizer'?"),
        ({"model.name": {"choices": ["gcn"]}}, ".model.name", "cannot be searched"),
        ({"encodings.rrwp.steps": {"choices": [4]}}, ".encodings.rrwp.steps", "does not have this encoding"),
        ({"epochs.foo": {"choices": [4]}}, ".epochs.foo", "epochs is a value and not a section"),
        ({"model.dropout": {"choices": [0.1], "also": ["model.depth"]}}, ".model.dropout", "model.depth: unknown key"),
        ({"model.dropout": {"choices": [0.1], "also": ["seeds"]}}, ".seeds", "cannot be searched"),
        ({"model.dropout": DROPOUT | {"also": ["optimizer.lr"]}, "optimizer.lr": DROPOUT}, "", "duplicate key"),
        ({"model.dropout": {"choices": [0.1, 0.1]}}, ".model.dropout.choices", "duplicate choices"),
        ({"model.dropout": {"choices": [0, False]}}, ".model.dropout.choices", "duplicate choices"),
        ({"optimizer.lr": {"low": 0.1, "high": float("inf")}}, ".optimizer.lr.high", "finite number"),
    ],
)
def test_a_space_that_contradicts_the_recipe(project, space, place, problem):
    project.recipe(search={"trials": 2, "space": space})
    with refused(RecipeError, place=f"search.space{place}") as error:
        tune()
    assert problem in error.value.problem


def test_keys_that_take_one_choice_together(project):
    space = {"model.dropout": {"choices": [0.125, 0.25], "also": ["optimizer.weight_decay"]}}
    project.recipe(search={"trials": 2, "sampler": "grid", "space": space})
    tune()
    content = yaml.safe_load(Path("tuned/small/web/mlp.yaml").read_text())
    assert content["model"]["dropout"] == content["optimizer"]["weight_decay"] in (0.125, 0.25)
    assert content["origin"]["optimizer.weight_decay"] == content["origin"]["model.dropout"]
    ran = [record.run.recipe for record in project.records()]
    pairs = {(r["model"]["dropout"], r["optimizer"]["weight_decay"]) for r in ran}
    assert pairs == {(0.125, 0.125), (0.25, 0.25)}


def test_trials_that_all_end_alike_are_no_error(project, pictures):
    search = {"trials": 3, "space": {"model.dropout": {"choices": [0.1, 0.2, 0.3]}}}
    project.recipe(search=search, optimizer={"name": "sgd", "lr": 1e-12})
    tune()
    assert len({r["value"] for r in trials()}) == 1
    assert Path("tuned/small/web/mlp.importance.png").stat().st_size > 1000


def test_limits_cut_trials_and_report_it(project):
    project.recipe(search=SEARCH, limits={"small": {"trials": 1, "seeds": 1}})
    tune()
    assert len(trials()) == 1
    grid = load_grid()
    assert [*map(str, train_cell(grid.find(CELL), grid).reduced)] == ["1 of 4 search trials", "1 of 2 seeds"]


def test_without_data_the_recipe_stays_as_it_is(project):
    project.recipe(search=SEARCH)
    Path("data/packed/web").rename("aside")
    recipe = tune()
    assert recipe.optimizer.lr == 0.01
    assert yaml.safe_load(Path("tuned/small/web/mlp.yaml").read_text())["optimizer"]["lr"] == 0.01
    assert trials() == []
    assert search_summary(load_grid().find(CELL)) is None


def test_a_changed_recipe_starts_a_new_study(project):
    project.recipe(search=SEARCH)
    tune()
    project.recipe(search=SEARCH, epochs=3)
    tune()
    assert len(trials()) == 4
    assert {len(r.run.epochs["epoch"]) for r in project.records()} == {3, 6}
