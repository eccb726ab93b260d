"""The schedule, the arithmetic of the forecast, and the synthetic records and runs that are measured."""

from pathlib import Path

import pytest

from benchmarks import scale_counts, scale_devices, scale_schedule, scale_store
from gt_bench.config.grid import load_grid
from gt_bench.scheduling.planner import Job
from gt_bench.store.record_checks import record_problems
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import read
from tests.conftest import ROOT
from tests.gt_bench.conftest import lock_file, project  # noqa: F401 - fixtures

HOUR = 3600.0


def job(name: str, seconds: float, kind: str = "runs", number: int = 0, after: str | None = None) -> Job:
    return Job(
        kind,
        name,
        "d",
        (number,) if kind == "runs" else (),
        number=number,
        after=after,
        seconds=seconds,
    )


@pytest.fixture(autouse=True)
def _no_start(monkeypatch):
    monkeypatch.setattr(scale_schedule, "START", 0.0)


def test_work_that_can_be_spread_is_bound_by_work_and_one_long_run_by_its_chain():
    many = [job(f"a{i}", HOUR) for i in range(16)]
    one, eight = scale_schedule.simulate(many, 1), scale_schedule.simulate(many, 8)
    assert (one.makespan, eight.makespan) == (16 * HOUR, 2 * HOUR)
    assert (one.utilisation, eight.utilisation) == (1.0, 1.0)
    assert eight.bound == "work"
    long = scale_schedule.simulate([*many, job("long", 20 * HOUR)], 8)
    assert (long.makespan, long.chain) == (22 * HOUR, 20 * HOUR)
    assert long.bound == "its longest chain"
    assert scale_schedule.simulate([job("a", HOUR), job("b", HOUR), job("c", HOUR)], 2).bound == "the last jobs"


def test_runs_wait_for_the_trials_of_their_search_and_for_the_cell_that_they_start_from():
    jobs = [
        job("b", HOUR, after="a"),
        *(job("a", HOUR, "search", i) for i in range(3)),
        job("a", 2 * HOUR),
        job("c", HOUR),
    ]
    found = scale_schedule.simulate(jobs, 2)
    # two trials, then the third together with c, then the run of a alone, then that of b
    assert found.makespan == 5 * HOUR
    assert found.chain == 4 * HOUR
    assert scale_schedule.simulate(jobs, 64).makespan == 4 * HOUR


def test_counts_of_a_run_follow_the_forecast_s_arithmetic(project):  # noqa: F811
    """A cell of one graph: products per epoch and per evaluation, times their numbers in the recipe."""
    from gt_bench.config.cell_recipe import settings_of
    from gt_bench.experiment.cell import experiment_of

    found = []
    for epochs in (10, 20):
        project.recipe(epochs=epochs, model={"name": "mlp", "hidden_dim": 8, "num_layers": 2})
        grid = load_grid()
        cell = grid.find("small/web/mlp")
        experiment = experiment_of(cell, settings_of(cell), grid, Store("store"), Path("data"))
        found.append(scale_counts.run_of(experiment, 1.0))
    # ten more epochs are ten steps and ten evaluations; both runs also evaluate the test part once
    ten, twenty = (run["products"] for run in found)
    evaluation = 2 * ten - twenty
    step = (twenty - ten) / 10 - evaluation
    # a backward pass has two products for each of the forward pass, except for the gradient of the features
    assert step == 3 * evaluation - 2 * 60 * 5 * 8
    for epochs, run in zip((10, 20), found, strict=True):
        assert run["calls"] > 10 * epochs
        assert run["bytes"] > run["product_bytes"] > 0
        assert run["optimiser_bytes"] > 0


def test_a_device_takes_the_longest_of_what_it_has_to_do():
    device = scale_devices.Device("d", products=10.0, bandwidth=5.0, launch=1.0)
    run = {"products": 100.0, "product_bytes": 15.0, "optimiser_bytes": 5.0, "bytes": 195.0, "calls": 3.0}
    assert (device.floor(run), device.unfused(run)) == (10.0, 40.0)
    assert device.unfused(run | {"calls": 100.0}) == 100.0
    assert scale_devices.serial(device, run) == 10.0 + 40.0 + 3.0


@pytest.mark.slow
def test_a_cell_without_a_count_is_taken_by_one_of_its_model_times_steps_and_nodes():
    grid = load_grid()
    donor, cell, other = (grid.find(f"edge-transformer/{name}") for name in ("csl/gin", "exp/gin", "exp/gcn"))
    (steps, nodes), (donor_steps, donor_nodes) = scale_counts.extent(cell), scale_counts.extent(donor)
    run = {part: 100.0 for part in scale_counts.PARTS} | {"seeds": 5, "search_runs": 0}
    found = scale_counts.filled({donor.cell: run, other.cell: run}, grid)[cell.cell]
    assert found["estimated"] == donor.cell  # the model is checked before the dataset
    assert found["calls"] == pytest.approx(100 * steps / donor_steps)
    assert found["bytes"] == pytest.approx(100 * nodes / donor_nodes)
    assert "edge-transformer/brec/gin" not in scale_counts.filled(
        {donor.cell: run}, grid
    )  # its protocol is not a sequence of steps


@pytest.mark.slow
def test_hyperedges_are_counted_batch_by_batch(tmp_path):
    """gps has 1,036 training hyperedges in batches of 96: ten steps per epoch, each over its 221 nodes."""
    grid = load_grid()
    cell = grid.find("hot/gps/hyper-sagnn-e")
    assert scale_counts.extent(cell) == (300 * 10, 300 * 10 * 221)
    counted = scale_counts.cost_of(cell, grid, tmp_path)
    # a step of Adam reads weights, gradients and two moments, and writes weights and two moments: 79,683 numbers each
    assert counted["optimiser_bytes"] == pytest.approx(300 * 10 * 79_683 * 4 * 7, rel=0.01)


def test_records_that_are_made_are_sound_and_no_two_alike(tmp_path, monkeypatch):
    path = min((ROOT / "suites").glob("*/records/*/*.json.gz"), key=lambda p: p.stat().st_size)
    record = next(r for r in read(path).records if r.run.status == "ok")
    store = Store(tmp_path)
    for trial in (False, True):
        form = scale_store.Form(record.to_disk(), trial)
        digests = [scale_store.put(tmp_path, form, seed) for seed in (5, 6)]
        assert len(set(digests)) == 2
        for digest, seed in zip(digests, (5, 6), strict=True):
            made = store.get(digest)
            assert record_problems(made) == []
            assert made.run.seed == seed
    assert len(list(store.digests())) == len(list(store.records())) == 4
