"""The planner: missing runs, their order, and runs that share a process."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import Cell, Limits, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.forecasting import cache as costs_room
from gt_bench.forecasting.cache import Cost
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import take_part
from gt_bench.scheduling.plan_file import Entry
from gt_bench.scheduling.planner import OWN, QUOTED, UNPRINTED, Missing, Plan, jobs_of, plan, printed
from gt_bench.search.optimize import Trials
from tests.conftest import ROOT

HOUR = 3600.0


@pytest.fixture
def forecasts(monkeypatch):
    """Replace measurements: `forecasts[cell]` is the cost of a cell, `forecasts["asked"]` the requested cells."""
    said, asked = {}, []

    def measured(cell, grid, data):
        asked.append(cell.cell)
        return said.get(cell.cell, Cost(HOUR, 100.0))

    monkeypatch.setattr(costs_room, "_measured", measured)
    said["asked"] = asked
    return said


def run(
    model: str,
    place: int = 1,
    hours: float | None = 1.0,
    rank: int = OWN,
    numbers: int = 1,
    entry: int = 0,
    done: float = 0.0,
) -> Missing:
    cell = Cell(key=f"s-d-{model}", cell=f"s/d/{model}", dataset="d", model=model, settings="recipes")
    cost = Cost(None if hours is None else hours * HOUR)
    return Missing(
        cell, Limits(), entry, seed=place - 1, place=place, rank=rank, numbers=numbers, threads=1, done=done, cost=cost
    )


def test_the_order_of_runs():
    in_order = [
        run("own", 1, numbers=2),  # 2 / 2 an hour
        run("begun", 1, done=0.25),  # 1 / 2 / 0.75
        run("other", 1),  # 1 / 2
        run("own", 2, numbers=2),  # 2 / 6
        run("quick", 3, hours=0.5),  # 1 / 12 / 0.5
        run("other", 2, hours=2),  # 1 / 6 / 2, a tie: the earlier place first
        run("quick", 3, hours=1),
        run("long", 1, hours=24),
        replace(run("searched", 1), searched=False, cost=Cost(HOUR, search_seconds=47 * HOUR)),
        run("unknown", 1, hours=None),
        run("rival", 1, hours=0.01, rank=QUOTED, numbers=5),
        run("nobody's", 1, hours=0.001, rank=UNPRINTED, numbers=0),
        run("later", 1, hours=0.001, numbers=9, entry=1),
    ]
    shuffled = in_order[:]
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=lambda one: one.order) == in_order


def test_the_values_of_all_runs_sum_to_the_published_numbers():
    values = [run("own", n, numbers=3).value for n in range(1, 11)]
    assert values[0] == 1.5
    assert sum(values[:3]) == pytest.approx(3 * 0.75)
    assert sum(values) == pytest.approx(3 * (1 - 1 / 11))


def whole(runs, **changes):
    return replace(Plan(list(runs), {}, [], 0, {}, []), **changes)


def test_short_runs_of_a_cell_share_a_job():
    short = [run("a", n, hours=100 / HOUR) for n in range(1, 6)]
    long = [run("b", n) for n in (1, 2)]
    jobs = jobs_of(whole([short[0], long[0], *short[1:], long[1], run("c", 1, None), run("c", 2, None)]), shared=300)
    assert [(job.name, job.seeds) for job in jobs] == [
        ("s/d/a", (0, 1, 2)), ("s/d/b", (0,)), ("s/d/a", (3, 4)), ("s/d/b", (1,)), ("s/d/c", (0,)), ("s/d/c", (1,)),
    ]  # fmt: skip
    assert jobs[0].seconds == pytest.approx(300)


def test_data_and_a_search_come_before_the_runs_that_need_them():
    jobs = jobs_of(whole([run("a"), run("b")], data=["d"], searches={"s/d/b": Trials(1, 1)}))
    assert [(job.kind, job.name) for job in jobs] == [
        ("data", "d"),
        ("runs", "s/d/a"),
        ("search", "s/d/b"),
        ("runs", "s/d/b"),
    ]
    data, a, search, b = jobs
    assert [job.waits_for(data) for job in jobs] == [False, True, True, True]
    assert [job.waits_for(search) for job in jobs] == [False, False, False, True]
    assert not any(job.waits_for(a) or job.waits_for(b) for job in jobs)
    tuned = replace(b, after="s/d/a")
    assert tuned.waits_for(a)
    assert not replace(tuned, seeds=(7,)).waits_for(a)


def test_trials_that_are_left_are_jobs_of_their_own_and_short_ones_share():
    runs = [replace(run("a"), searched=False, cost=Cost(60.0, 100.0, search_seconds=10 * 100.0))]

    def jobs(left):
        found = [
            job
            for job in jobs_of(whole(runs, searches={"s/d/a": Trials(left, 10)}), shared=300)
            if job.kind == "search"
        ]
        assert [job.number for job in found] == list(range(len(found)))
        return [(job.trials, job.seconds) for job in found]

    assert jobs(10) == [(3, 300.0), (3, 300.0), (3, 300.0), (1, 300.0)]  # one need for all jobs: they are one array
    assert jobs(2) == [(2, 200.0)]
    # all trials are done, but the process that should have written the result was killed
    assert jobs(0) == [(0, None)]
    unknown = [replace(runs[0], cost=Cost())]
    assert [
        job.trials for job in jobs_of(whole(unknown, searches={"s/d/a": Trials(3, 3)})) if job.kind == "search"
    ] == [1, 1, 1]


@pytest.mark.slow
def test_what_the_store_has_is_not_missing(project, forecasts):
    project.recipe(seeds=[0, 1, 2])
    grid = load_grid()
    cell = grid.find("small/web/mlp")
    entries = [Entry((cell,), Limits(seeds=1)), Entry((cell,))]
    found = plan(entries, grid)
    # the first seed belongs only to the first entry
    assert [(one.entry, one.seed, one.place) for one in found.missing] == [(0, 0, 1), (1, 1, 2), (1, 2, 3)]
    assert (found.stored, found.problems, found.data) == (0, [], [])
    train_cell(cell, grid.model_copy(update={"limits": {cell.cell: Limits(seeds=1)}}))
    found = plan(entries, grid)
    assert [one.seed for one in found.missing] == [1, 2]
    assert (found.stored, list(found.begun)) == (1, [cell])
    assert forecasts["asked"] == ["small/web/mlp"]  # once, cached from then on
    # the time of its record on this device replaces the forecast
    assert found.missing[0].cost.seconds < 60


def test_a_run_of_several_processes_has_cores_and_memory_for_all(project, forecasts):
    project.recipe("many", batch={"graphs": 4}, seeds=[0], processes=3, threads=2)
    grid = load_grid()
    found = plan([Entry((grid.find("small/many/mlp"),))], grid)
    (one,) = found.missing
    assert one.cost.memory_mib == 100
    (job,) = jobs_of(found)
    assert (job.threads, job.processes, job.memory_mib) == (6, 3, 300)


def test_the_part_that_a_checkpoint_has(project, forecasts):
    project.recipe(seeds=[0], epochs=8)
    grid = load_grid()
    cell = grid.find("small/web/mlp")

    class Killed(BaseException):
        pass

    epochs = iter(range(1, 9))

    def kill():
        if next(epochs) == 3:
            raise Killed

    with pytest.raises(Killed):
        train_cell(cell, grid, notice=kill)
    (one,) = plan([Entry((cell,))], grid).missing
    assert one.done == 2 / 8
    assert one.seconds == 0.75 * HOUR
    (checkpoint,) = Path("store").glob("??/*/checkpoint.safetensors")
    checkpoint.write_bytes(b"damaged")
    assert plan([Entry((cell,))], grid).missing[0].done == 0


def test_what_a_cell_starts_from_comes_first(project, forecasts):
    project.recipe(row="base", seeds=[0, 1, 2], keep_weights=True)
    project.recipe(row="tuned", seeds=[0, 1], start={"cell": "small/web/base"})
    grid = load_grid()
    found = plan([Entry((grid.find("small/web/tuned"),), Limits(seeds=2))], grid)
    assert {(one.cell.model, one.seed) for one in found.missing} == {
        ("base", 0),
        ("base", 1),
        ("tuned", 0),
        ("tuned", 1),
    }


def test_a_search_that_is_not_done_and_data_that_are_not_there(project, forecasts):
    project.recipe(row="searched", search={"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.1]}}})
    project.recipe(dataset="many", row="mlp")
    grid = load_grid()
    for path in (project.root / "data/packed/many").iterdir():
        path.unlink()
    found = plan([Entry(tuple(grid.cells.values()))], grid)
    assert found.searches == {"small/web/searched": (2, 2)}
    assert found.data == ["many"]
    assert {one.digest is None for one in found.missing} == {True}


@pytest.mark.slow
def test_trials_that_a_study_has_are_not_left_and_asking_makes_no_study(project, forecasts):
    project.recipe(seeds=[0], search={"trials": 3, "space": {"model.dropout": {"choices": [0.0, 0.1]}}})
    grid = load_grid()
    cell = grid.find("small/web/mlp")
    assert plan([Entry((cell,))], grid).searches == {cell.cell: (3, 3)}
    assert not Path("studies").exists()
    assert take_part(cell, grid, 2) == (2, None)
    assert plan([Entry((cell,))], grid).searches == {cell.cell: (1, 3)}
    # another recipe is another search, with no trials
    project.recipe(seeds=[0], epochs=7, search={"trials": 3, "space": {"model.dropout": {"choices": [0.0, 0.1]}}})
    assert plan([Entry((cell,))], load_grid()).searches == {cell.cell: (3, 3)}
    assert len(optuna_studies(cell)) == 1


def optuna_studies(cell):
    import optuna
    from optuna.storages.journal import JournalFileBackend

    storage = optuna.storages.JournalStorage(JournalFileBackend(f"studies/{cell.cell}/journal.log"))
    return optuna.get_all_study_names(storage)


def test_a_cell_that_cannot_run_is_named_and_costs_no_other(project, forecasts):
    project.recipe(row="mlp")
    project.recipe(row="wrong", model={"name": "mlp", "hidden_dim": 8, "num_layers": 2, "widht": 3})
    grid = load_grid()
    found = plan([Entry(tuple(grid.cells.values()))], grid)
    assert {one.cell.model for one in found.missing} == {"mlp"}
    assert len(found.problems) == 1
    assert found.problems[0].startswith(
        "small/web/wrong: suites/small/recipes/web/wrong.yaml: unknown key 'model.widht'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [lambda text: text[:40], lambda text: text.replace('"seconds": 3600.0', '"seconds": "an hour"'), lambda text: "[]"],
)
def test_a_damaged_file_of_costs_is_measured_again(project, forecasts, damage):
    project.recipe()
    grid = load_grid()
    entries = [Entry(tuple(grid.cells.values()))]
    plan(entries, grid)
    path = Path("store/forecasts.json")
    whole = path.read_text()
    path.write_text(damage(whole))
    assert path.read_text() != whole
    assert plan(entries, grid, measure=False).missing[0].seconds is None
    assert plan(entries, grid).missing[0].seconds == HOUR
    assert len(forecasts["asked"]) == 2
    assert len(json.loads(Path("store/forecasts.json").read_text())) == 1


def test_whose_number_a_cell_has(monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    assert printed(grid.find("edge-transformer/texas/edge-transformer")) == (OWN, 1)
    assert printed(grid.find("edge-transformer/texas/gcn")) == (QUOTED, 1)
    assert printed(grid.find("embedded/chains/mlp")) == (UNPRINTED, 0)
    assert load_recipe("suites/ppgt/recipes/brec/ppgt.yaml").published
    assert printed(grid.find("ppgt/brec/ppgt"))[1] > 1  # its categories count as numbers too
