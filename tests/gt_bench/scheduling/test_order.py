"""No idle core: the order in which cells, seeds and jobs start, simulated on 2, 16 and 64 cores."""

import heapq
import random
from pathlib import Path

import pytest

from gt_bench.config.grid import Cell, load_grid
from gt_bench.forecasting.cache import Cost
from gt_bench.forecasting.counted import counted_costs
from gt_bench.runtime.worker_pool import WorkerPool
from gt_bench.scheduling import train_cells as room
from gt_bench.scheduling.order import LEAST_SHARED, Task, shared_seconds, tasks_of
from gt_bench.scheduling.planner import SHARED, Job, Missing, Plan, jobs_of, longest_first

CORES = (2, 16, 64)


def simulated_cells(seeds: dict[str, list[int]], seconds: dict[str, float], cores: int) -> float:
    """When `train_cells` ends: cores take the first task that is ready, and a cell skips the seeds that others took."""
    waiting = tasks_of(seeds, seconds)
    taken: set[tuple[str, int]] = set()  # computed, or being computed
    running: dict[str, list[float]] = {cell: [] for cell in seeds}  # ends of seeds that are computed ahead
    active: set[str] = set()
    events: list[tuple[float, int, str, bool]] = []  # end of a seed, its cell, whether of the cell's own process
    free, now, number = cores, 0.0, 0

    def own_step(cell: str) -> None:
        nonlocal number, free
        number += 1
        left = [seed for seed in seeds[cell] if (cell, seed) not in taken]
        if left:
            taken.add((cell, left[0]))
            heapq.heappush(events, (now + seconds[cell], number, cell, True))
            return
        pending = [end for end in running[cell] if end > now]
        if pending:  # waits for the lock of a seed that another process computes
            heapq.heappush(events, (max(pending), number, cell, True))
            return
        active.discard(cell)
        free += 1

    while waiting or events:
        for task in list(waiting):
            if not free:
                break
            if task.seed is None:
                waiting.remove(task)
                free -= 1
                active.add(task.cell)
                own_step(task.cell)
            elif (task.cell, task.seed) in taken:
                waiting.remove(task)
            elif task.cell in active:
                waiting.remove(task)
                free -= 1
                number += 1
                taken.add((task.cell, task.seed))
                end = now + seconds[task.cell]
                running[task.cell].append(end)
                heapq.heappush(events, (end, number, task.cell, False))
        if not events:
            break
        now, _, cell, own = heapq.heappop(events)
        if own:
            own_step(cell)
        else:
            free += 1
    assert taken == {(cell, seed) for cell in seeds for seed in seeds[cell]}  # each seed once
    return now


def bound(works: list[float], cores: int) -> float:
    """No order ends earlier."""
    return max(max(works), sum(works) / cores)


def drawn(kind: str) -> tuple[dict[str, list[int]], dict[str, float]]:
    rng = random.Random(kind)
    if kind == "one long cell":  # 60 % of the work
        seconds = {"long": 60.0} | {f"c{n}": 4.0 for n in range(10)}
    elif kind == "equal":
        seconds = {f"c{n}": 30.0 for n in range(25)}
    else:  # two powers of ten
        seconds = {f"c{n}": 10 ** rng.uniform(0.5, 2.5) for n in range(40)}
    return {cell: list(range(10)) for cell in seconds}, seconds


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("kind", ["one long cell", "equal", "mixed"])
def test_cells_end_within_a_run_of_the_lower_bound(kind, cores):
    seeds, seconds = drawn(kind)
    works = [seconds[cell] for cell in seeds for _ in seeds[cell]]
    end = simulated_cells(seeds, seconds, cores)
    assert end <= bound(works, cores) + max(works)
    if sum(works) / cores > 4 * max(works):
        assert end <= 1.1 * bound(works, cores)


def test_without_splitting_the_last_cell_leaves_a_core_idle():
    """Two equal cells and a third: one of two cores had nothing to do for the last third."""
    seeds, seconds = {cell: list(range(10)) for cell in "abc"}, dict.fromkeys("abc", 6.0)
    assert simulated_cells(seeds, seconds, 2) == pytest.approx(90.0)  # one cell at a time on each core: 120


@pytest.mark.parametrize("cores", CORES)
def test_the_shipped_suites(cores):
    """With the forecasts of docs/scale.json."""
    grid = load_grid()
    costs = {name: cost.seconds for name, cost in counted_costs(grid).items() if cost.seconds}
    for suite in ("embedded", "edge-transformer", "hot", "polynormer", "ppgt", "tokengt"):
        cells = [cell.cell for cell in grid.suite(suite) if cell.cell in costs]
        seeds, seconds = {cell: list(range(10)) for cell in cells}, {cell: costs[cell] for cell in cells}
        works = [seconds[cell] for cell in cells for _ in range(10)]
        assert simulated_cells(seeds, seconds, cores) <= bound(works, cores) + max(works)


def test_the_order_of_tasks():
    tasks = tasks_of({"short": [0, 1], "new": [5, 6, 7], "long": [0, 3]}, {"short": 1.0, "long": 9.0})
    assert tasks[:3] == [Task("new"), Task("long"), Task("short")]  # no forecast, then longest first
    # those that the process of the cell would begin last: at 18, 9, 9 and 1 s
    assert tasks[3:] == [Task("new", 7), Task("new", 6), Task("long", 3), Task("short", 1)]
    assert tasks_of({}, {}) == []
    assert tasks_of({"none": ()}, {}) == [Task("none")]


# -- jobs of `gt-bench work` -------------------------------------------------------------------------------------------


def missing(model: str, seed: int, seconds: float | None) -> Missing:
    cell = Cell(key=f"s-d-{model}", cell=f"s/d/{model}", dataset="d", model=model, settings="recipes")
    return Missing(cell, seed, threads=1, cost=Cost(seconds))


def jobs(runs: list[Missing], cores: int) -> list[Job]:
    known = sum(run.seconds or 0.0 for run in runs)
    return jobs_of(Plan(longest_first(runs), {}, [], 0, []), shared=shared_seconds(known, cores, SHARED))


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("kind", ["one long cell", "equal", "mixed"])
def test_jobs_end_near_the_lower_bound(kind, cores):
    seeds, seconds = drawn(kind)
    runs = [missing(cell, seed, seconds[cell]) for cell in seeds for seed in seeds[cell]]
    works = [run.seconds for run in runs]
    free, found = [0.0] * cores, jobs(runs, cores)
    for job in found:
        heapq.heapreplace(free, free[0] + job.seconds)
    end = max(free)
    assert end <= bound(works, cores) + max(job.seconds for job in found)
    if sum(works) / cores > 4 * max(works):
        assert end <= 1.15 * bound(works, cores)


def test_many_cores_share_less():
    assert shared_seconds(1e6, 2, SHARED) == SHARED
    assert shared_seconds(12_800, 64, SHARED) == 50
    assert shared_seconds(100, 64, SHARED) == LEAST_SHARED


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
    costs = {"small/web/short": Cost(1.0), "small/web/long": Cost(9.0)}
    monkeypatch.setattr(room, "counted_costs", lambda grid: costs)
    grid = load_grid()
    room.train_cells(list(grid.cells.values()), grid, 2)
    assert begun == [Task("small/web/long"), Task("small/web/short")]


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
    together = {record["digest"]: record["deterministic"] for record in project.records()}
    Path("store").rename("together")
    monkeypatch.setattr(room, "at_once", lambda *_, **__: 1)
    assert room.train_cells(cells, grid, 1) == []
    assert {record["digest"]: record["deterministic"] for record in project.records()} == together
    assert len(together) == 4
