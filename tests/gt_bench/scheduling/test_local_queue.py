"""The queue of one machine: complete cells, time limits, memory, other processes, lost jobs and a full disk."""

import csv
import json
import os
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.forecasting import cache
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.pipeline.do_job import do
from gt_bench.pipeline.train import train_cell
from gt_bench.scheduling import local_queue
from gt_bench.scheduling.local_queue import work
from gt_bench.scheduling.planner import plan
from gt_bench.store.run_store import Store
from gt_bench.utils.io import WriteError
from tests.forked import Forked, do_in_fork, fork
from tests.refusals import refused

CELL = "small/web/mlp"


@pytest.fixture(autouse=True)
def costs(monkeypatch):
    """Costs of the cells by their model; the others cost a second."""
    known, usual = {}, ForecastCost(1.0, 100.0, search_seconds=600.0, record_bytes=5000, checkpoint_bytes=9000)
    monkeypatch.setattr(cache, "_measured", lambda cell, grid, data: known.get(cell.model, usual))
    return known


def queued(*names: str, **options) -> tuple[bool, list[str]]:
    """Whether all is stored, and what the queue printed."""
    grid, said = load_grid(), []
    return work(grid.chosen(names), grid, say=said.append, **options), said


@pytest.fixture
def launched(monkeypatch):
    """Instead of computing, a job is written to a file, and ends as `outcomes[model]` says (by default "ok")."""
    outcomes = {}

    def launch(most, alone, job, tell):
        with Path("launched").open("a") as file:
            file.write(f"{job.name} {'' if alone.isdisjoint(job.runs) else 'alone'}\n")
        outcome = outcomes.get(job.name.split("/")[-1], "ok")
        if outcome == "killed":
            os.kill(os.getpid(), 9)
        for seed in job.seeds:
            tell({"seed": seed, "outcome": outcome, "why": "as requested"})
        return 0

    monkeypatch.setattr(local_queue, "_launch", launch)
    file = Path("launched")
    return SimpleNamespace(
        outcomes=outcomes,
        jobs=lambda: [line.strip() for line in file.read_text().splitlines()] if file.exists() else [],
    )


@pytest.mark.slow
def test_at_the_end_of_its_hours_a_run_keeps_a_checkpoint(project, monkeypatch):
    project.recipe(epochs=100_000, seeds=[0])
    grid, clock = load_grid(), SimpleNamespace(ahead=0.0)
    passing = SimpleNamespace(monotonic=lambda: time.monotonic() + clock.ahead, sleep=time.sleep)
    for module in ("gt_bench.scheduling.local_queue", "gt_bench.runtime.worker_pool"):
        monkeypatch.setattr(f"{module}.time", passing)

    def say(line):
        if line.endswith("started"):
            until = time.monotonic() + 60
            while not list(Path("store").glob("??/*/checkpoint.safetensors")):
                assert time.monotonic() < until
                time.sleep(0.02)
            clock.ahead = 2 * 3600.0

    assert not work(list(grid.cells.values()), grid, hours=1, jobs=1, say=say)
    (left,) = plan(grid.cells.values(), grid).missing
    assert left.done > 0
    assert not list(Path("store").glob("??/*/record.json"))


def test_under_a_time_limit_own_numbers_come_first_then_the_cheapest_and_none_that_cannot_end(project, costs, launched):
    seconds = {"own": 900.0, "own-day": 86400.0, "short": 1.0, "long": 400.0, "day": 86400.0}
    for width, (row, took) in enumerate(seconds.items(), 4):  # equal recipes would share their runs
        costs[row] = ForecastCost(took, 100.0)
        project.recipe(row=row, seeds=[0], model={"name": "mlp", "hidden_dim": width, "num_layers": 2})
    project.recipe(row="after-day", seeds=[0], start={"cell": "small/web/own-day"})
    assert not queued(hours=1, jobs=1, is_first=lambda cell: cell.model.startswith("own"))[0]
    assert launched.jobs() == ["small/web/own", "small/web/short", "small/web/long"]
    Path("launched").unlink()
    assert not queued(jobs=1)[0]  # without a limit: everything, the longest first
    assert launched.jobs()[2:] == ["small/web/own", "small/web/long", "small/web/short", "small/web/after-day"]


@pytest.mark.parametrize(("option", "value"), [("hours", 0), ("hours", -1), ("jobs", 0)])
def test_no_hours_and_no_jobs_are_refused(project, option, value):
    project.recipe()
    with refused(OptionError, place=f"--{option}", value=value):
        queued(**{option: value})


@pytest.mark.slow
def test_a_full_disk_ends_the_queue_and_it_states_what_it_would_need(project):
    project.recipe(seeds=list(range(20)))
    store = project.root / "store"
    store.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(store)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        with pytest.raises(WriteError) as error:
            queued(jobs=1)
        kept = len(list(store.glob("??/*/record.json")))
        assert 0 < kept < 20
        assert f"about {(20 - kept) * 5000 / 1024 + 9000 / 1024:.3g} KiB in store/" in str(error.value)
        # no file is incomplete
        assert sum(Store().get(path.parent.name) is not None for path in store.glob("??/*/record.json")) == kept
    finally:
        subprocess.run(["umount", str(store)], check=True)


def outcomes_of(seeds: list[int]) -> list[tuple[int, str]]:
    lines = []
    content = {"kind": "runs", "name": CELL, "seeds": seeds, "shared": False}
    do(content, lambda **line: lines.append(line))
    return [(line["seed"], line["outcome"]) for line in lines if "outcome" in line]


def test_a_run_that_another_process_computes_is_left_to_it(project):
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    first, _ = plan(grid.cells.values(), grid).missing
    with FileLock(Store().folder(first.digest) / "lock"):
        assert outcomes_of([0, 1]) == [(0, "elsewhere"), (1, "ok")]
        assert outcomes_of([0, 1]) == [(0, "elsewhere"), (1, "stored")]
    assert not Path(f"results/{CELL}.json").exists()
    assert outcomes_of([0, 1]) == [(0, "ok"), (1, "stored")]
    assert json.loads(Path(f"results/{CELL}.json").read_text())["status"] == "ok"


@pytest.mark.parametrize(
    ("outcome", "jobs", "launches", "kills"),
    [
        ("killed", 1, 2, 0),  # probably by the kernel, because memory ran out: it runs again alone
        ("killed", 2, 2, 0),
        ("killed", 2, 2, 1),
        ("oom", 2, 2, 0),
        ("failed", 2, 1, 0),
    ],
)
def test_a_job_that_dies_or_fails_stops_no_other(project, launched, monkeypatch, outcome, jobs, launches, kills):
    for width, row in enumerate(("bad", "mlp"), 4):
        project.recipe(row=row, seeds=[0], model={"name": "mlp", "hidden_dim": width, "num_layers": 2})
    launched.outcomes["bad"] = outcome
    monkeypatch.setattr(local_queue, "oom_kills", lambda: len(launched.jobs()) * kills)
    assert not queued(jobs=jobs)[0]
    tried = [job for job in launched.jobs() if "bad" in job]
    assert tried == ["small/web/bad", "small/web/bad alone"][:launches]
    assert launched.jobs().count(CELL) == 1
    assert [record.run.status for record in project.records()] == ["oom"] * kills


DIES = """
import os
from pathlib import Path
import gt_bench.search.optimize as optimize

run_trial = optimize._run_trial

def dies_once(*arguments, **options):
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), 9)
    return run_trial(*arguments, **options)

optimize._run_trial = dies_once
"""


@pytest.mark.slow
def test_a_lost_trial_is_computed_by_another_worker(project, monkeypatch):
    """The first job dies during its trial; each value of the grid is still computed once, and then the seed.

    The first job runs the code of the queue, although another clone comes first in PYTHONPATH. The following jobs do
    not need a process that imports everything again.
    """
    search = {"trials": 2, "sampler": "grid", "pruner": "none", "space": {"model.dropout": {"choices": [0.0, 0.1]}}}
    project.recipe(seeds=[0], search=search, epochs=20)
    clone = project.root / "clone"
    for name in ("gt_bench/__init__.py", "gt_bench/pipeline/__init__.py"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    (clone / "gt_bench/pipeline/job.py").write_text('print(\'{"say": "of another clone"}\')')
    (clone / "sitecustomize.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", str(clone))
    launch = local_queue._launch

    def then_fork(most, alone, job, tell):
        return (do_in_fork if Path("died").exists() else launch)(most, alone, job, tell)

    monkeypatch.setattr(local_queue, "_launch", then_fork)
    done, said = queued(jobs=1)
    assert done, said
    with Path(f"tuned/{CELL}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["model.dropout"] for row in rows if row["status"] == "ok") == ["0.0", "0.1"]
    assert [row["status"] for row in rows].count("killed, queued again") == 1
    assert len(project.records()) == 3
    assert json.loads(Path(f"results/{CELL}.json").read_text())["status"] == "ok"


def test_a_run_that_does_not_fit_into_memory_is_not_started(project, costs, launched):
    costs["mlp"] = ForecastCost(1.0, 1e9)
    project.recipe(seeds=[0])
    done, said = queued()
    assert not done
    assert any(CELL in line and "1,000,000,000 MiB" in line for line in said)
    assert launched.jobs() == []


@pytest.mark.parametrize(("free", "expected"), [(1e6, 3), (250.0, 2)])
def test_as_many_jobs_start_as_cores_and_memory_allow(project, launched, monkeypatch, free, expected):
    """Three cores; each run needs 110 MiB with its margin."""
    project.recipe(seeds=[0, 1, 2, 3])
    grid = load_grid()
    queue = local_queue._Queue(grid, 3, print, None)
    jobs = local_queue.jobs_of(plan(grid.cells.values(), grid), shared=0)
    monkeypatch.setattr(local_queue, "resident_mib", lambda pid: 1e6)
    running = []
    monkeypatch.setattr(local_queue, "available_mib", lambda: free - 110.0 * len(running))
    while queue._ready(jobs[len(running)], [], running):
        running.append(jobs[len(running)])
    assert len(running) == expected


@pytest.mark.slow
def test_two_machines_write_equal_records(project):
    """Without a lock the work is done twice; the second record replaces the first, and nothing is damaged."""
    project.recipe(seeds=[0, 1], epochs=60)
    both_begin = fork.Barrier(2)

    def write() -> None:
        Store.lock = lambda self, digest: nullcontext()  # as on another machine whose file system shares no locks
        both_begin.wait(60)
        train_cell(load_grid().find(CELL), load_grid(), bar=False)

    both = [Forked(write, project.root, project.root / f"{number}.log") for number in range(2)]
    assert [one.end().status for one in both] == [0, 0], [one.said for one in both]
    together = {record.digest: record.run for record in project.records()}
    assert [Store().get(digest).run for digest in together] == list(together.values())
    assert not list(Path("store").glob("??/*/checkpoint*"))
    Path("store").rename("together")
    assert outcomes_of([0, 1]) == [(0, "ok"), (1, "ok")]
    assert {record.digest: record.run for record in project.records()} == together
