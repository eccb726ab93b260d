"""Several workers share a search."""

import csv
import re
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.pipeline.tune import tune_cell
from tests.forked import Forked
from tests.gt_bench.search.cases import GRID, trials, tune


def worker(name: str = "log") -> Forked:
    return Forked(tune, Path(), Path(name))


def finished_trials(said: str) -> int:
    return len(re.findall(r"search trial \d+ \(\d+/\d+\): ", said))


@pytest.mark.slow
@pytest.mark.parametrize("database", [False, True])
def test_two_processes_share_one_study_and_its_number_of_trials_is_exact(project, database):
    project.recipe(search=GRID, epochs=12, run={"study_storage": "sqlite:///studies.db"} if database else None)
    if database:  # two processes cannot create one SQLite database at the same time
        import optuna

        optuna.storages.RDBStorage("sqlite:///studies.db")
    both = [worker("first"), worker("second")]
    statuses = [process.end().status for process in both]
    said = [process.said for process in both]
    assert statuses == [0, 0], said
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
def test_two_cells_with_one_recipe_have_two_studies_in_one_database(project):
    for row in ("mlp", "twin"):
        project.recipe(row=row, search={**GRID, "trials": 2}, run={"study_storage": "sqlite:///a.db"})
    grid = load_grid()
    for row in ("mlp", "twin"):
        tune_cell(grid.find(f"small/web/{row}"), grid)
    with Path("tuned/small/web/twin.csv").open() as file:
        assert [row["number"] for row in csv.DictReader(file)] == ["0", "1"]
