"""The planner: missing runs, their order, and runs that share a process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import Cell, load_grid
from gt_bench.config.params import Limits
from gt_bench.forecasting import cache
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import take_part
from gt_bench.scheduling.planner import Missing, Plan, cheapest_first, jobs_of, longest_first, plan
from gt_bench.search.study import Trials
from tests.gt_bench.runs import Killed

CELL = "small/web/mlp"
HOUR = 3600.0


@pytest.fixture
def measured(monkeypatch):
    """Replace measurements; returns the names of the cells that were measured."""
    names, cost = [], ForecastCost(HOUR, 100.0, search_seconds=HOUR)
    monkeypatch.setattr(cache, "_measured", lambda cell, grid, data: names.append(cell.cell) or cost)
    return names


def run(model: str, seconds: float | None = HOUR, seed: int = 0, **changes: object) -> Missing:
    cell = Cell(key=f"s-d-{model}", cell=f"s/d/{model}", dataset="d", model=model, settings="recipes")
    return replace(Missing(cell, seed, threads=1, cost=ForecastCost(seconds)), **changes)


SEARCHED = run("searched", searched=False, cost=ForecastCost(1.0, search_seconds=1000.0))


def own_first(missing: list[Missing]) -> list[Missing]:
    return cheapest_first(missing, lambda cell: cell.model == "own")


ORDERS = {
    longest_first: [
        run("unknown", None), SEARCHED, run("long", 900.0), run("own", 40.0), run("own", 40.0, seed=1),
        run("begun", 100.0, done=0.9), run("short", 1.0),
    ],
    own_first: [
        run("own", 40.0), run("own", 40.0, seed=1), run("own", None, seed=2), run("short", 1.0),
        run("begun", 100.0, done=0.9), run("long", 900.0), SEARCHED, run("unknown", None),
    ],
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_runs_are_ordered_by_length_and_own_numbers_come_first_under_a_limit(order):
    by_name = sorted(ORDERS[order], key=lambda one: one.run)
    assert order(by_name) == ORDERS[order]


def whole(*runs: Missing, **changes: object) -> Plan:
    return replace(Plan(list(runs), {}, [], 0, []), **changes)


def test_short_runs_of_a_cell_share_a_job():
    a, b, c = ([run(name, seconds, seed) for seed in range(5)] for name, seconds in zip("abc", (100.0, HOUR, None)))
    jobs = jobs_of(whole(a[0], b[0], *a[1:], b[1], *c[:2]), shared=300)
    assert [(job.name[-1], job.seeds) for job in jobs] == [
        ("a", (0, 1, 2)), ("b", (0,)), ("a", (3, 4)), ("b", (1,)), ("c", (0,)), ("c", (1,)),
    ]  # fmt: skip
    assert jobs[0].seconds == 300


def test_data_and_a_search_come_before_the_runs_that_need_them():
    jobs = jobs_of(whole(run("a"), run("b"), data=["d"], searches={"s/d/b": Trials(1, 1)}))
    assert [(job.kind, job.name) for job in jobs] == [
        ("data", "d"), ("runs", "s/d/a"), ("search", "s/d/b"), ("runs", "s/d/b"),
    ]  # fmt: skip
    data, a, search, b = jobs
    assert [job.waits_for(data) for job in jobs] == [False, True, True, True]
    assert [job.waits_for(search) for job in jobs] == [False, False, False, True]
    assert not any(job.waits_for(a) or job.waits_for(b) for job in jobs)
    assert [replace(b, after="s/d/a", seeds=(seed,)).waits_for(a) for seed in (0, 7)] == [True, False]


@pytest.mark.parametrize(
    ("seconds", "left", "expected"),
    [
        (1000.0, 10, [(3, 300.0), (3, 300.0), (3, 300.0), (1, 300.0)]),  # one need for all jobs: they are one array
        (1000.0, 2, [(2, 200.0)]),
        (1000.0, 0, [(0, None)]),  # the process that should have written the result was killed
        (0.0, 3, [(1, None)] * 3),  # no forecast
    ],
)
def test_short_trials_share_a_job(seconds, left, expected):
    one = run("a", searched=False, cost=ForecastCost(60.0, search_seconds=seconds))
    found = jobs_of(whole(one, searches={"s/d/a": Trials(left, 10)}), shared=300)
    assert [(job.trials, job.seconds) for job in found if job.kind == "search"] == expected
    assert [job.number for job in found if job.kind == "search"] == list(range(len(expected)))


def test_stored_runs_are_not_missing(project, measured):
    project.recipe(seeds=[0, 1, 2])
    project.recipe(row="same", seeds=[0, 1, 2])
    grid = load_grid()
    cells = list(grid.cells.values())
    found = plan(cells, grid)
    assert [one.run for one in found.missing] == [(CELL, 0), (CELL, 1), (CELL, 2)]  # equal recipes have the same runs
    assert (found.stored, found.problems, found.data) == (0, [], [])
    train_cell(cells[0], grid.model_copy(update={"limits": {CELL: Limits(seeds=1)}}))
    found = plan(cells, grid)
    assert [one.seed for one in found.missing] == [1, 2]
    assert found.stored == 1
    assert measured == [CELL]  # once, cached from then on
    assert found.missing[0].cost.seconds < 60  # of its record on this device


def test_a_cell_whose_runs_are_stored_under_another_name_lacks_its_result(project, measured):
    for row in ("mlp", "same"):
        project.recipe(row=row, seeds=[0])
    grid = load_grid()
    train_cell(grid.find(CELL), grid)
    found = plan(grid.cells.values(), grid)
    assert not found.missing
    assert [job.runs for job in found.unwritten] == [[("small/web/same", 0)]]


def test_a_run_of_several_processes_gets_cores_and_memory_for_all(project, measured):
    project.recipe("many", batch={"graphs": 4}, seeds=[0], processes=3, threads=2)
    grid = load_grid()
    (job,) = jobs_of(plan(grid.cells.values(), grid))
    assert (job.threads, job.processes, job.memory_mib) == (6, 3, 300)


def test_the_part_in_a_checkpoint_is_done(project, measured):
    project.recipe(seeds=[0], epochs=8)
    grid = load_grid()
    cell = grid.find(CELL)

    notices = iter([None, None, Killed()])

    def kill():
        if error := next(notices):
            raise error

    with pytest.raises(Killed):
        train_cell(cell, grid, notice=kill)
    (one,) = plan([cell], grid).missing
    assert (one.done, one.seconds) == (2 / 8, 0.75 * HOUR)
    (checkpoint,) = Path("store").glob("??/*/checkpoint.safetensors")
    checkpoint.write_bytes(b"damaged")
    assert plan([cell], grid).missing[0].done == 0


def test_the_cell_whose_weights_are_needed_is_planned_too(project, measured):
    project.recipe(row="base", seeds=[0, 1], keep_weights=True)
    project.recipe(row="tuned", seeds=[0, 1], start={"cell": "small/web/base"})
    grid = load_grid()
    jobs = jobs_of(plan([grid.find("small/web/tuned")], grid))
    assert {job.name for job in jobs} == {"small/web/base", "small/web/tuned"}
    waits = {(job.name, other.name) for job in jobs for other in jobs if job.waits_for(other)}
    assert waits == {("small/web/tuned", "small/web/base")}


def test_a_search_and_missing_data_are_planned(project, measured):
    project.recipe(row="searched", search={"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.1]}}})
    project.recipe(dataset="many", row="mlp")
    grid = load_grid()
    for path in (project.root / "data/packed/many").iterdir():
        path.unlink()
    found = plan(grid.cells.values(), grid)
    assert found.searches == {"small/web/searched": (2, 2)}
    assert found.data == ["many"]
    assert {one.digest is None for one in found.missing} == {True}


@pytest.mark.slow
def test_finished_trials_are_not_left_and_planning_creates_no_study(project, measured):
    search = {"trials": 3, "space": {"model.dropout": {"choices": [0.0, 0.1]}}}
    project.recipe(seeds=[0], search=search)
    grid = load_grid()
    cell = grid.find(CELL)
    assert plan([cell], grid).searches == {cell.cell: (3, 3)}
    assert not Path("studies").exists()
    assert take_part(cell, grid, 2) == (2, None)
    assert plan([cell], grid).searches == {cell.cell: (1, 3)}
    project.recipe(seeds=[0], epochs=7, search=search)  # another recipe is another search
    assert plan([cell], load_grid()).searches == {cell.cell: (3, 3)}


def test_a_cell_with_an_invalid_recipe_stops_no_other(project, measured):
    project.recipe(row="mlp")
    project.recipe(row="wrong", model={"name": "mlp", "hidden_dim": 8, "num_layers": 2, "widht": 3})
    grid = load_grid()
    found = plan(grid.cells.values(), grid)
    assert {one.cell.model for one in found.missing} == {"mlp"}
    (problem,) = found.problems
    assert "model.widht" in problem


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:40], lambda text: text.replace('"seconds": 3600.0', '"seconds": "an hour"'), lambda text: "[]"],
)
def test_a_damaged_file_of_costs_is_measured_again(project, measured, damage):
    project.recipe()
    grid = load_grid()
    cells = list(grid.cells.values())
    plan(cells, grid)
    path = Path("store/forecasts.json")
    intact = path.read_text()
    path.write_text(damage(intact))
    assert path.read_text() != intact
    assert plan(cells, grid, measure=False).missing[0].seconds is None
    assert plan(cells, grid).missing[0].seconds == HOUR
    assert len(measured) == 2
    assert len(json.loads(path.read_text())) == 1
