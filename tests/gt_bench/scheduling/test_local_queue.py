"""The queue of one machine: complete cells, stops and resumes, other processes, and a full disk."""

import contextlib
import csv
import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.forecasting import cache
from gt_bench.forecasting.cache import Cost
from gt_bench.pipeline.grid import main as write_grid
from gt_bench.scheduling import local_queue
from gt_bench.scheduling.job import do, run_job, sources
from gt_bench.scheduling.local_queue import work
from gt_bench.scheduling.plan_file import Entry
from gt_bench.scheduling.planner import plan
from gt_bench.scheduling.run_lock import claimed
from gt_bench.store.run_store import Store
from gt_bench.utils.io import WriteError, write_bytes
from gt_bench.utils.paths import record_file
from tests.conftest import ROOT

CELL = "small/web/mlp"


@pytest.fixture(autouse=True)
def forecasts(monkeypatch):
    cost = Cost(1.0, 100.0, search_seconds=600.0, record_bytes=5000, checkpoint_bytes=9000)
    monkeypatch.setattr(cache, "_measured", lambda cell, grid, data: cost)


def entries(grid) -> list[Entry]:
    return [Entry(tuple(grid.cells.values()))]


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_from_nothing_to_exported_cells_and_verdicts(tmp_path, monkeypatch):
    """Run a real cell on generated data, including its data, its export and its result; a second call does nothing."""
    monkeypatch.chdir(tmp_path)
    path = Path("suites/embedded/recipes/chains/mlp.yaml")
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / path, path)
    Path("params.yaml").write_text("limits: {embedded: {epochs: 1, seeds: 2}}\n")
    assert write_grid([]) == 0
    said = []
    assert work(entries(load_grid()), load_grid(), jobs=2, export=Path("out"), say=said.append)
    text = "\n".join(said)
    assert [str(path) for path in Path("out").rglob("*.gz")] == ["out/embedded/records/chains/mlp.json.gz"]
    assert json.loads(Path("results/embedded/chains/mlp.json").read_text())["reduced"] == [
        "2 of 3 seeds",
        "1 of 30 epochs",
    ]
    assert len(list(Path("store").glob("??/*/record.json"))) == 2
    assert "chains data and encodings: ok" in text
    assert text.count("new result: embedded/chains/mlp: accuracy ↑ %") == 1
    assert "2 runs computed; 0 of 2 are missing" in text
    said.clear()
    assert work(entries(load_grid()), load_grid(), jobs=2, export=Path("out"), say=said.append)
    assert said == ["0 runs computed; 0 of 2 are missing"]


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_at_the_end_of_its_hours_a_run_keeps_a_checkpoint(project, monkeypatch):
    project.recipe(epochs=100_000, seeds=[0])
    grid, said, clock = load_grid(), [], SimpleNamespace(ahead=0.0)
    passing = SimpleNamespace(monotonic=lambda: time.monotonic() + clock.ahead, sleep=time.sleep)
    for module in ("gt_bench.scheduling.local_queue", "gt_bench.runtime.worker_pool"):
        monkeypatch.setattr(f"{module}.time", passing)

    def say(line):
        said.append(line)
        if line.endswith("started"):
            until = time.monotonic() + 60
            while not list(Path("store").glob("??/*/checkpoint.safetensors")):
                assert time.monotonic() < until
                time.sleep(0.02)
            clock.ahead = 2 * 3600.0

    assert not work(entries(grid), grid, hours=1, jobs=1, say=say)
    assert said[-2:] == [
        "0 runs computed; 1 of 1 are missing",
        "the time limit is reached; run the same command again to resume",
    ]
    (left,) = plan(entries(grid), grid).missing
    assert left.done > 0
    assert not list(Path("store").glob("??/*/record.json"))


@pytest.mark.parametrize(
    ("hours", "jobs", "says"), [(0, None, "--hours 0: "), (-1, None, "--hours -1: "), (None, 0, "--jobs 0: ")]
)
def test_no_hours_and_no_jobs(project, hours, jobs, says):
    project.recipe()
    with pytest.raises(RecipeError, match=says):
        work(entries(load_grid()), load_grid(), hours, jobs)


def test_the_command_names_what_a_plan_misses(project):
    project.recipe()
    Path("plan.yaml").write_text("runs:\n- {cells: [small/web/mpl]}\n")
    shown = CliRunner().invoke(app, ["work", "--plan", "plan.yaml"])
    assert isinstance(shown.exception, RecipeError)
    assert "plan.yaml: entry 1: no cell 'small/web/mpl'" in str(shown.exception)


@pytest.mark.usefixtures("forks")
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
        grid, said = load_grid(), []
        with pytest.raises(WriteError) as error:
            work(entries(grid), grid, jobs=1, say=said.append)
        kept = len(list(store.glob("??/*/record.json")))
        assert 0 < kept < 20
        assert "the disk is full" in str(error.value)
        assert f"the missing runs need about {(20 - kept) * 5000 / 1024 + 9000 / 1024:.3g} KiB in store/" in str(
            error.value
        )
        # no file is incomplete
        assert sum(Store().get(path.parent.name) is not None for path in store.glob("??/*/record.json")) == kept
    finally:
        subprocess.run(["umount", str(store)], check=True)


def told(seeds, began=None, limits=None):
    lines = []
    content = {"kind": "runs", "name": CELL, "seeds": seeds, "limits": limits or {}, "shared": False}
    do(content, lambda **line: lines.append(line), sources() if began is None else began)
    return [(line["seed"], line["outcome"]) for line in lines if "outcome" in line], [
        line for line in lines if "whole" in line
    ]


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_a_run_that_another_process_is_at_is_left_to_it(project):
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    first, second = plan(entries(grid), grid).missing
    # a claim of a queue, and the lock of a process that trains without claims
    with claimed(Store(), first.digest) as mine:
        assert mine
        assert told([0, 1]) == ([(0, "elsewhere"), (1, "ok")], [])
    with FileLock(Store().folder(first.digest) / "lock"):
        assert told([0, 1]) == ([(0, "elsewhere"), (1, "stored")], [])
    assert told([0, 1]) == ([(0, "ok"), (1, "stored")], [{"whole": True}])
    assert Store().get(second.digest)


def test_no_run_is_computed_by_code_that_changed_since(project):
    project.recipe(seeds=[0])
    assert told([0], began={}) == ([(0, "changed")], [])
    assert not list(Path("store").glob("??/*/record.json"))


def test_what_an_entry_cuts_is_cut(project):
    project.recipe(seeds=[0, 1, 2])
    assert told([0], limits={"seeds": 1}) == ([(0, "ok")], [{"whole": True}])
    assert json.loads(Path(f"results/{CELL}.json").read_text())["reduced"] == ["1 of 3 seeds"]


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_a_cell_whose_runs_were_computed_under_another_name_is_finished(project, monkeypatch):
    """Two cells with equal recipes have the same runs; the second one gets its result and its export from them."""

    def export(cell, root, store, dirty):  # the dataset of this project is not in the catalog
        return write_bytes(record_file(cell.cell, root), b"")

    monkeypatch.setattr("gt_bench.provenance.transfer.export_cell", export)
    for row in ("mlp", "same"):
        project.recipe(row=row, seeds=[0, 1])
    assert told([0, 1]) == ([(0, "ok"), (1, "ok")], [{"whole": True}])
    grid, said = load_grid(), []
    (other,) = [cell for cell in grid.cells.values() if cell.model == "same"]
    assert work([Entry((other,))], grid, jobs=1, export=Path("out"), say=said.append)
    assert said[-2:] == [
        "small/web/same: finished, out/small/records/web/same.json.gz",
        "0 runs computed; 0 of 2 are missing",
    ]
    first, second = (json.loads(Path(f"results/small/web/{row}.json").read_text()) for row in ("mlp", "same"))
    assert second["runs"] == first["runs"]
    assert [line for line in said if line.startswith("skipped")] == []
    # what is missing is exported, and a complete cell is left alone
    Path("out/small/records/web/same.json.gz").unlink()
    said.clear()
    assert work([Entry((other,))], grid, jobs=1, export=Path("out"), say=said.append)
    assert said[0] == "small/web/same: finished, out/small/records/web/same.json.gz"
    said.clear()
    assert work([Entry((other,))], grid, jobs=1, export=Path("out"), say=said.append)
    assert said == ["0 runs computed; 0 of 2 are missing"]


def test_a_run_whose_process_knows_it_by_another_key_is_an_error(project, monkeypatch):
    """Otherwise the run would be computed, reported as done, and still be missing."""
    project.recipe(seeds=[0])

    def launch(shared, alone, job, tell):
        tell({"seed": 0, "outcome": "ok", "why": "done", "key": "f" * 64, "root": "/another/clone"})
        return 0

    monkeypatch.setattr(local_queue, "_launch", launch)
    monkeypatch.setattr(local_queue._Queue, "_export", lambda *_: None)
    grid, said = load_grid(), []
    assert not work(entries(grid), grid, jobs=1, say=said.append)
    (line,) = [line for line in said if line.startswith("error:")]
    assert re.match(
        rf"error: {CELL} seed 0: stored under the key f{{16}}, expected [0-9a-f]{{16}}: its process ran the code in "
        r"/another/clone",
        line,
    )


@pytest.mark.slow
def test_a_job_runs_the_code_of_the_queue_whatever_else_is_installed(project, monkeypatch):
    for name in ("gt_bench/__init__.py", "gt_bench/scheduling/__init__.py"):
        (project.root / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        (project.root / "clone" / name).touch()
    (project.root / "clone/gt_bench/scheduling/job.py").write_text('print(\'{"say": "of another clone"}\')')
    monkeypatch.setenv("PYTHONPATH", str(project.root / "clone"))
    project.recipe(seeds=[0], epochs=1)
    lines = []
    content = {"kind": "runs", "name": CELL, "seeds": [0], "trials": 0, "limits": {}, "shared": False}
    assert run_job(json.dumps(content), lines.append) == 0
    (line,) = [line for line in lines if "outcome" in line]
    (record,) = project.records()
    assert (line["outcome"], line["key"], line["root"]) == ("ok", record["digest"], str(ROOT))


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_a_job_that_dies_or_fails_costs_no_other(project, monkeypatch):
    """The process of the first cell is killed, the second cell fails; the third is computed."""
    for row in ("killed", "failing", "mlp"):
        project.recipe(row=row, seeds=[0])

    def launch(shared, alone, job, tell):
        if job.name == "small/web/killed":
            os.kill(os.getpid(), 9)
        outcome = {"small/web/failing": "failed", CELL: "ok"}[job.name]
        tell({"seed": 0, "outcome": outcome, "why": "as requested"})
        return 0

    monkeypatch.setattr(local_queue, "_launch", launch)
    grid, said = load_grid(), []
    assert not work(entries(grid), grid, jobs=1, say=said.append)
    assert "skipped: small/web/killed seed 0: killed by signal 9: probably out of memory" in said
    assert "skipped: small/web/failing seed 0: as requested" in said
    assert f"{CELL} seed 0: ok, as requested" in said
    assert said[-1] == "1 runs computed; 3 of 3 are missing"


@pytest.mark.usefixtures("forks")
@pytest.mark.slow
def test_workers_share_a_search_and_a_killed_one_s_trial_is_found_again(project):
    """The job of one trial is killed: each trial still runs once, also that one, and then the seed of the cell."""
    search = {"trials": 2, "sampler": "grid", "pruner": "none", "space": {"model.dropout": {"choices": [0.0, 0.1]}}}
    project.recipe(seeds=[0], search=search, epochs=300)
    grid, said, killed = load_grid(), [], []

    def kill():
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for path in Path("store").glob("??/*/checkpoint.safetensors"):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if any(file.path == str(path.parent.resolve() / "lock") for file in process.open_files()):
                            killed.append(process.pid)
                            process.kill()
                            return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    assert work(entries(grid), grid, jobs=2, export=Path("out"), say=said.append), said
    killer.join()
    assert killed
    assert f"{CELL} search: its process ended with status -9; its trial is queued again" in said
    with Path(f"tuned/{CELL}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["model.dropout"] for row in rows if row["status"] == "ok") == ["0.0", "0.1"]
    assert [row["status"] for row in rows].count("killed, queued again") == 1
    assert len(rows) == 3
    # two trials with one record each, and the seed
    assert len(project.records()) == 3
    assert json.loads(Path(f"results/{CELL}.json").read_text())["status"] == "ok"


@pytest.mark.slow
def test_one_that_is_out_of_memory_next_to_others_runs_alone(project, monkeypatch):
    for row in ("large", "mlp"):
        project.recipe(row=row, seeds=[0])
    how = []

    def launch(shared, alone, job, tell):
        beside = not any(run in alone for run in job.runs)
        tell(
            {
                "seed": 0,
                "outcome": "oom" if job.name == "small/web/large" else "ok",
                "why": f"{'beside' if beside else 'alone'}",
            }
        )
        return 0

    monkeypatch.setattr(local_queue, "_launch", launch)
    grid = load_grid()
    work(entries(grid), grid, jobs=2, say=how.append)
    assert "small/web/large seed 0: out of memory next to other runs; it will run alone" in how
    assert "small/web/large seed 0: oom, alone" in how


def test_what_does_not_fit_into_memory_is_left_out_and_said(project, monkeypatch):
    monkeypatch.setattr(cache, "_measured", lambda cell, grid, data: Cost(1.0, 1e9))
    project.recipe(seeds=[0])
    grid, said = load_grid(), []
    assert not work(entries(grid), grid, say=said.append)
    assert said[1].startswith(f"skipped: {CELL}: a run needs 1,000,000,000 MiB by forecast, and this machine has ")


def test_a_dirty_tree_ships_nothing(project, monkeypatch):
    monkeypatch.setattr("gt_bench.runtime.environment.commit", lambda: "0123456789abcdef0123456789abcdef01234567-dirty")
    said = []
    queue = local_queue._Queue(load_grid() if project.recipe() else None, 1, Path("suites"), said.append, None)
    queue._export(queue.grid.find(CELL))
    assert said == [
        "nothing is exported to suites/: the code differs from commit 0123456789ab; commit it, or use another folder "
        "for --export"
    ]
