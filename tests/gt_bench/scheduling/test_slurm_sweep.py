"""Sweeps on a fake cluster that computes in this process: submitted jobs, their outcomes and their resources."""

import csv
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.forecasting import cache
from gt_bench.forecasting.cache import ForecastCost
from gt_bench.pipeline.do_job import do
from gt_bench.scheduling.job_registry import Submitted, register
from gt_bench.scheduling.slurm import ClusterError, Place, Slurm
from gt_bench.scheduling.slurm_resources import Need
from gt_bench.scheduling.slurm_sweep import NEVER, sweep
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from tests.refusals import refused

CELL = "small/web/mlp"


class Cluster:
    """A fake cluster: each request for the state of jobs first computes the oldest job.

    `refuses`: value of an option that it rejects; `loses`: numbers of jobs that end without a result.
    """

    def __init__(self, refuses: str | None = None, loses: tuple[int, ...] = ()):
        self.waiting: dict[str, tuple[dict, Path]] = {}
        self.submitted: list[tuple[Need, dict, int]] = []
        self.arrays: list[int] = []
        self.refuses, self.loses = refuses, loses

    def submit(self, need, contents, most):
        if self.refuses in dict(need.slurm).values():
            raise ClusterError("Slurm refuses")
        self.arrays.append(len(contents))
        given = []
        for content in map(json.loads, contents):
            number = f"{len(self.submitted)}_0"
            self.submitted.append((need, content, most))
            self.waiting[number] = (content, Path(f"lines-{number}.jsonl").resolve())
            given.append((number, self.waiting[number][1]))
        return given

    def places(self, ids):
        found = {number: Place("RUNNING", "n1") for number in ids if number in self.waiting}
        if self.waiting and found:
            number, (content, lines) = next(iter(self.waiting.items()))
            del self.waiting[number]
            if int(number.partition("_")[0]) not in self.loses:
                with lines.open("a") as file:
                    do(content, lambda **line: file.write(json.dumps(line) + "\n"))
        return found

    @property
    def runs(self):
        return [(content["name"], content["seeds"]) for _, content, _ in self.submitted]


@pytest.fixture(autouse=True)
def forecasts(monkeypatch):
    """Forecast an hour and 100 MiB for each run, so that each is a job of its own."""
    monkeypatch.setattr(cache, "_measured", lambda cell, grid, data: ForecastCost(3600.0, 100.0, search_seconds=7200.0))


def swept(cluster, *names, at_most=4, **options):
    grid, said = load_grid(), []
    done = sweep(grid.chosen(names), grid, cluster, at_most, said.append, poll=0, **options)
    return done, said


@pytest.mark.slow
def test_every_missing_run_is_submitted_once_in_arrays_that_slurm_allows(project, monkeypatch):
    monkeypatch.setattr("gt_bench.scheduling.slurm_sweep.ARRAY", 2)
    project.recipe(seeds=[0, 1, 2])
    cluster = Cluster()
    done, said = swept(cluster)
    assert done
    assert max(cluster.arrays) == 2
    assert sorted(cluster.runs) == [(CELL, [seed]) for seed in (0, 1, 2)]
    assert len(project.records()) == 3
    assert json.loads(Path(f"results/{CELL}.json").read_text())["status"] == "ok"
    assert f"{CELL} seed 1: ok, accuracy" in "\n".join(said)
    again = Cluster()
    assert swept(again) == (True, ["0 of 3 runs are missing; `dvc repro` collects them"])
    assert again.submitted == []


@pytest.mark.slow
def test_queued_jobs_of_another_sweep_are_followed_not_submitted(project):
    project.recipe(seeds=[0, 1])
    cluster = Cluster()
    job = {"kind": "runs", "name": CELL, "seeds": [0], "shared": False}
    cluster.waiting["9_0"] = (job, Path("lines-9_0.jsonl").resolve())
    other = Submitted("9_0", "lines-9_0.jsonl", 1, CELL, (0,))
    Path("store/sweep").mkdir(parents=True)
    register(Store(), [other])
    with Path("store/sweep/submitted.jsonl").open("a") as file:
        file.write('{"id": "cut sh')
    # the first request, before anything is submitted, must not compute it
    looks = cluster.places
    pending = {"9_0": Place("PENDING")}
    cluster.places = lambda ids: looks(ids) if cluster.submitted else pending
    done, said = swept(cluster)
    assert done, said
    assert cluster.runs == [(CELL, [1])]


@pytest.mark.slow
def test_a_job_that_is_lost_or_refused_costs_no_other_and_is_submitted_again(project):
    project.recipe(row="mlp", seeds=[0, 1])
    project.recipe(row="refused", seeds=[0], epochs=4)
    params = Path("params.yaml")
    params.write_text(params.read_text() + "resources: {small/web/refused: {slurm: {partition: no-such}}}\n")
    cluster = Cluster(refuses="no-such", loses=(0,))
    done, said = swept(cluster)
    text = "\n".join(said)
    assert not done
    lost = cluster.runs[0][1][0]
    assert f"{CELL} seed {lost}: job 0_0 ended without a result" in text
    assert "skipped: 1 jobs of small/web/refused: Slurm refuses" in text
    assert len(project.records()) == 1
    assert said[-1].startswith("2 of 3 runs are missing")
    again = Cluster()
    swept(again, CELL)
    assert again.runs == [(CELL, [lost])]


@pytest.mark.slow
def test_a_run_that_fails_is_reported_and_not_submitted_again_in_this_sweep(project):
    project.recipe(seeds=[0, 7], split="seed", start={"cell": "small/web/base"})
    project.recipe(row="base", seeds=[0], keep_weights=True)  # no run with seed 7 exists to start from
    cluster = Cluster()
    done, said = swept(cluster)
    assert not done
    assert cluster.runs[0] == ("small/web/base", [0])
    assert sorted(cluster.runs[1:]) == [(CELL, [0]), (CELL, [7])]
    assert f"{CELL} seed 7: failed, suites/small/recipes/web/mlp.yaml: start: small/web/base" in "\n".join(said)


SEARCH = {"trials": 3, "sampler": "grid", "pruner": "none", "space": {"model.dropout": {"choices": [0.0, 0.1, 0.2]}}}


@pytest.mark.slow
def test_trials_are_jobs_and_the_seeds_of_the_cell_come_after_them(project):
    project.recipe(seeds=[0], search=SEARCH)
    cluster = Cluster()
    done, said = swept(cluster)
    assert done, said
    jobs = [(content["kind"], content["trials"]) for _, content, _ in cluster.submitted]
    assert jobs == [*[("search", 1)] * 3, ("runs", 0)]
    assert len([line for line in said if f"{CELL} search: ok, 1 trial" in line]) == 3
    with Path(f"tuned/{CELL}.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["COMPLETE"] * 3


@pytest.mark.slow
def test_a_search_that_does_not_get_on_is_given_up_and_said(project):
    project.recipe(seeds=[0], search=SEARCH)
    cluster = Cluster(loses=(0, 1, 2))
    done, said = swept(cluster)
    assert not done
    assert len(cluster.submitted) == 3
    assert f"skipped: {CELL} search: its last jobs finished no trial; run the same command to submit it again" in said
    again = Cluster()
    assert swept(again)[0]


@pytest.mark.slow
def test_a_job_that_no_node_can_take_is_reported_once(project):
    project.recipe(seeds=[0, 1])

    class Waits(Cluster):
        looks = 0

        def places(self, ids):
            self.looks += 1
            if self.looks < 6:
                return {number: Place("PENDING", "PartitionTimeLimit") for number in ids if number in self.waiting}
            return super().places(ids)

    said = swept(Waits())[1]
    lines = [line.partition(";")[0] for line in said if "will not start" in line]
    assert lines == [f"{CELL}: Slurm will not start job {job} (PartitionTimeLimit)" for job in (0, 1)]
    assert not any(map(NEVER.search, ("Resources", "JobArrayTaskLimit", "QOSMaxCpuPerUserLimit")))


def test_no_cluster_no_names_and_no_jobs(project, monkeypatch, tmp_path):
    project.recipe()
    for arguments, place, value in (
        ([], "", None),
        (["small", "--cluster", "pbs"], "--cluster", "pbs"),
        (["smal"], "", "smal"),
        (["small", "--at-most", "0"], "--at-most", 0),
        (["small", "--cluster", "local", "--at-most", "0"], "--at-most", 0),
    ):
        with refused(UserError, place=place, value=value):
            raise CliRunner().invoke(app, ["sweep", *arguments]).exception
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="sbatch is not on the PATH"):
        Slurm(Path("store/sweep"))


def a_command(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_messages_of_slurm_are_one_line(project, monkeypatch):
    """A controller that does not answer, and an sbatch that rejects a partition or the memory."""
    project.recipe(seeds=[0])
    pytest.importorskip("submitit")
    commands = Path("bin").resolve()
    for name in ("sbatch", "srun", "squeue"):
        a_command(commands, name, "exit 0")
    a_command(commands, "scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        Slurm(Path("store/sweep"))
    a_command(commands, "scontrol", "exec sleep 60")
    with monkeypatch.context() as patch:
        patch.setattr("gt_bench.scheduling.slurm.PATIENCE", 0.1)
        with refused(ClusterError, problem="Slurm does not answer (scontrol did not answer within 0.1 s)"):
            Slurm(Path("store/sweep"))
    a_command(commands, "scontrol", "echo Slurmctld is UP")
    for refusal in ("invalid partition specified: nowhere", "Memory specification can not be satisfied"):
        a_command(commands, "sbatch", f"echo 'sbatch: error: {refusal}' >&2; exit 1")
        done, said = swept(Slurm(Path("store/sweep")))
        assert not done
        (line,) = (line for line in said if line.startswith("skipped"))
        assert line.startswith(f"skipped: 1 jobs of {CELL}: Slurm rejects a job that needs 1 GiB, 4 h, 1 core: ")
        assert refusal in line
        assert "\n" not in line
