"""Resources of a job, and how many jobs of each need run at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.params import Resources
from gt_bench.config.schema import RecipeError
from gt_bench.scheduling.planner import Job
from gt_bench.scheduling.slurm_resources import Need, minutes_of, need_of, shares
from tests.refusals import refused

CELL = "small/web/mlp"


@pytest.mark.parametrize(
    ("hours", "expected"), [(0.001, (5, 75)), (2 / 60, (5, 75)), (0.1, (6, 90)), (1.001, (61, 90)), (24, (1440, 90))]
)
def test_slurm_warns_a_job_in_the_last_quarter_of_its_time(hours, expected):
    minutes, warned = minutes_of(Need(1, hours))
    assert (minutes, warned) == expected
    assert warned <= minutes * 60 / 4
    assert minutes * 60 - warned - 60 >= 120  # Slurm sends it up to a minute early; the job has started by then


def test_shares_respect_the_limit_of_jobs_at_once():
    need = [Need(2.0**i, 1.0) for i in range(4)]
    job = Job("runs", "a", "d")
    groups = {need[0]: [job] * 6, need[1]: [job] * 2}
    assert [(n.memory_gib, len(jobs), share) for n, jobs, share in shares(groups, 4)] == [(1, 6, 3), (2, 2, 1)]
    # more needs than places: the smallest are merged at the larger need
    joined = shares({n: [job] for n in need}, 2)
    assert sum(share for *_, share in joined) == 2
    assert sum(len(jobs) for _, jobs, _ in joined) == 4
    # needs that cannot be merged wait
    assert len(shares({Need(1, 1): [job], Need(1, 1, gpus=1): [job]}, 1)) == 1
    assert shares(groups, 0) == []


def test_resources_of_a_job(project):
    project.recipe()
    grid = load_grid()
    cell = grid.find(CELL)
    job = Job("runs", CELL, "web", (0,), threads=2, seconds=3000.0, memory_mib=3000.0)
    assert need_of(job, cell, grid) == Need(8.0, 4.0, 2)
    few = grid.model_copy(update={"resources": {"all": Resources(gpus=2)}})
    with refused(RecipeError, place=CELL, value=2):
        need_of(replace(job, processes=3), cell, few)
    wide = {"all": Resources(hours=2, slurm={"partition": "long"}), "small": Resources(slurm={"account": "me"})}
    said = grid.model_copy(update={"resources": wide | {CELL: Resources(gpus=2)}})
    assert need_of(job, cell, said) == Need(8.0, 2.0, 2, 2, (("account", "me"), ("partition", "long")))
    with refused(RecipeError, place=CELL, value=["memory_gib", "hours"]):
        need_of(Job("runs", CELL, "web", (0,)), cell, grid)
    with refused(RecipeError, problem="there is no forecast (oom: too large)"):
        need_of(Job("runs", CELL, "web", (0,), problem="oom: too large"), cell, grid)


def test_resources_of_what_is_not_there(project):
    project.recipe()
    params = Path("params.yaml")
    params.write_text(params.read_text() + "resources: {smal: {gpus: 1}}\n")
    with refused(RecipeError, place="resources", value="smal"):
        load_grid()
