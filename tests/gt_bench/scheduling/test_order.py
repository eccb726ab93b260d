"""No idle core: the order in which cells, seeds and jobs start, simulated on 2, 16 and 64 cores."""

import random
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.pipeline import train_cells as room
from gt_bench.runtime.worker_pool import WorkerPool
from gt_bench.scheduling.order import WorkItem, shared_seconds, tasks_of
from gt_bench.scheduling.planner import SHARED, Job, Missing, Plan, jobs_of, longest_first


def drawn(kind: str) -> tuple[dict[str, list[int]], dict[str, float]]:
    rng = random.Random(kind)
    if kind == "one long cell":  # 60 % of the work
        seconds = {"long": 60.0} | {f"c{n}": 4.0 for n in range(10)}
    elif kind == "equal":
        seconds = {f"c{n}": 30.0 for n in range(25)}
    else:  # two powers of ten
        seconds = {f"c{n}": 10 ** rng.uniform(0.5, 2.5) for n in range(40)}
    return {cell: list(range(10)) for cell in seconds}, seconds


def test_the_order_of_tasks():
    tasks = tasks_of({"short": [0, 1], "new": [5, 6, 7], "long": [0, 3]}, {"short": 1.0, "long": 9.0})
    assert tasks[:3] == [WorkItem("new"), WorkItem("long"), WorkItem("short")]  # no forecast, then longest first
    # those that the process of the cell would begin last: at 18, 9, 9 and 1 s
    assert tasks[3:] == [WorkItem("new", 7), WorkItem("new", 6), WorkItem("long", 3), WorkItem("short", 1)]
    assert tasks_of({}, {}) == []
    assert tasks_of({"none": ()}, {}) == [WorkItem("none")]


# -- jobs of `gt-bench work` -------------------------------------------------------------------------------------------


def jobs(runs: list[Missing], cores: int) -> list[Job]:
    known = sum(run.seconds or 0.0 for run in runs)
    return jobs_of(Plan(longest_first(runs), {}, [], 0, []), shared=shared_seconds(known, cores, SHARED))


# -- the real thing ----------------------------------------------------------------------------------------------------


def test_a_task_that_is_no_longer_needed_is_dropped():
    needed = {1, 3}
    with WorkerPool(lambda task, tell: task, 1, fresh=True) as pool:
        found = pool.run([1, 2, 3], is_needed=lambda task: task in needed)
    assert set(found) == {1, 3}


def test_without_free_cores_cells_start_by_length(project, monkeypatch):
    """With `run.parallel: 1` no seed is computed ahead."""
    begun = []
    monkeypatch.setattr(room.WorkerPool, "run", lambda pool, tasks, **_: begun.extend(tasks) or {})
    for row in ("short", "long"):
        project.recipe(row=row, seeds=[0, 1], run={"parallel": 1})
    costs = {"small/web/short": ForecastCost(1.0), "small/web/long": ForecastCost(9.0)}
    monkeypatch.setattr(room, "counted_costs", lambda grid: costs)
    grid = load_grid()
    room.train_cells(list(grid.cells.values()), grid, 2)
    assert begun == [WorkItem("small/web/long"), WorkItem("small/web/short")]


@pytest.mark.slow
def test_free_cores_take_seeds_of_the_last_cell_and_change_no_number(project, monkeypatch):
    """One cell with four seeds on three cores; records equal those of one process."""
    plain = room._compute_ahead

    def noted(cell, grid, seed, notice, **folders):
        before = len(project.records())
        plain(cell, grid, seed, notice, **folders)
        Path(f"ahead-{seed}").write_text(str(len(project.records()) > before))

    monkeypatch.setattr(room, "_compute_ahead", noted)
    monkeypatch.setattr(room, "at_once", lambda *_, **__: 3)
    project.recipe(seeds=[0, 1, 2, 3], epochs=300, run={"parallel": "auto", "checkpoint_seconds": 60})
    grid = load_grid()
    cells = list(grid.cells.values())
    assert room.train_cells(cells, grid, 3) == []
    assert "True" in {path.read_text() for path in Path().glob("ahead-*")}
    together = {record.digest: record.run for record in project.records()}
    Path("store").rename("together")
    monkeypatch.setattr(room, "at_once", lambda *_, **__: 1)
    assert room.train_cells(cells, grid, 1) == []
    assert {record.digest: record.run for record in project.records()} == together
    assert len(together) == 4
