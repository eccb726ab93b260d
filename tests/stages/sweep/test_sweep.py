"""Sweeps over a cluster that computes here: what is submitted, what becomes of it, and what it asks for."""

import json
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from stages.cli import app
from stages.params import Limits, Resources, load_grid
from stages.schema import RecipeError
from stages.store import StoreError
from stages.sweep import costs as costs_room
from stages.sweep.costs import Cost
from stages.sweep.job import do, sources
from stages.sweep.needs import Need, need_of
from stages.sweep.plan_file import Entry
from stages.sweep.planner import Job
from stages.sweep.slurm import ClusterError, Place, Slurm
from stages.sweep.sweep import Submitted, check_locks, dry_run, shares, sweep

CELL = "small/web/mlp"


class Cluster:
    """Each time it is asked where jobs are, the first of them has been computed. `refuses`: needs with this option; `loses`: jobs by number."""

    def __init__(self, refuses: str | None = None, loses: tuple[int, ...] = ()):
        self.waiting: dict[str, tuple[dict, Path]] = {}
        self.submitted: list[tuple[Need, dict, int]] = []
        self.refuses, self.loses = refuses, loses

    def submit(self, need, contents, most):
        if self.refuses in dict(need.slurm).values():
            raise ClusterError("Slurm refuses")
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
                    do(content, lambda **line: file.write(json.dumps(line) + "\n"), sources())
        return found

    @property
    def runs(self):
        return [(content["name"], content["seeds"]) for _, content, _ in self.submitted]


@pytest.fixture(autouse=True)
def forecasts(monkeypatch):
    """A run takes an hour and 100 MiB by forecast: each is a job of its own."""
    monkeypatch.setattr(costs_room, "_measured", lambda cell, grid, data: Cost(3600.0, 100.0, search_seconds=7200.0))


def swept(cluster, *names, at_most=4, **options):
    grid, said = load_grid(), []
    done = sweep([Entry(tuple(grid.chosen(names)))], grid, cluster, at_most, said.append, poll=0, **options)
    return done, said


def test_every_missing_run_is_submitted_once_and_the_store_has_all(project):
    project.recipe(seeds=[0, 1, 2])
    cluster = Cluster()
    done, said = swept(cluster)
    assert done
    assert sorted(cluster.runs) == [(CELL, [seed]) for seed in (0, 1, 2)]
    assert len(project.records()) == 3
    assert json.loads(Path(f"results/{CELL}.json").read_text())["status"] == "ok"
    assert f"{CELL} seed 1: ok, accuracy" in "\n".join(said)
    again = Cluster()
    assert swept(again) == (True, ["0 of 3 runs are missing; `dvc repro` collects them"])
    assert again.submitted == []


def test_what_another_sweep_has_in_the_queue_is_followed_not_submitted(project):
    project.recipe(seeds=[0, 1])
    cluster = Cluster()
    cluster.waiting["9_0"] = (
        {"kind": "runs", "name": CELL, "seeds": [0], "limits": {}, "shared": False},
        Path("lines-9_0.jsonl").resolve(),
    )
    other = Submitted("9_0", "lines-9_0.jsonl", 1, CELL, Limits().model_dump_json(), (0,))
    Path("store/sweep").mkdir(parents=True)
    Path("store/sweep/submitted.jsonl").write_text(json.dumps(other.__dict__) + '\n{"id": "cut sh')
    # the first look, before anything is submitted, must not compute it
    looks = cluster.places
    cluster.places = lambda ids: (
        {number: Place("PENDING") for number in ids if number in cluster.waiting} if not cluster.submitted else looks(ids)
    )
    done, said = swept(cluster)
    assert done, said
    assert cluster.runs == [(CELL, [1])]


def test_a_job_that_is_lost_or_refused_costs_no_other_and_is_submitted_again(project):
    project.recipe(row="mlp", seeds=[0, 1])
    path = project.recipe(row="refused", seeds=[0])
    assert path.exists()
    params = Path("params.yaml")
    params.write_text(params.read_text() + "resources: {small-web-refused: {slurm: {partition: no-such}}}\n")
    cluster = Cluster(refuses="no-such", loses=(0,))
    done, said = swept(cluster)
    text = "\n".join(said)
    assert not done
    lost = cluster.runs[0][1][0]
    assert (
        f"{CELL} seed {lost}: job 0_0 ended without a result (cancelled, or lost with its node); the same command submits it again" in text
    )
    assert "left out: 1 jobs, of small/web/refused: Slurm refuses" in text
    assert len(project.records()) == 1
    assert said[-1].startswith("2 of 3 runs are missing")
    again = Cluster()
    swept(again, CELL)
    assert again.runs == [(CELL, [lost])]


def test_a_run_that_fails_is_said_and_not_submitted_again_in_this_sweep(project):
    project.recipe(seeds=[0, 7], split="seed", start={"cell": "small/web/base"})
    project.recipe(row="base", seeds=[0], keep_weights=True)  # there is no run with seed 7 to start from
    cluster = Cluster()
    done, said = swept(cluster)
    assert not done
    assert cluster.runs[0] == ("small/web/base", [0])
    assert sorted(cluster.runs[1:]) == [(CELL, [0]), (CELL, [7])]
    assert any(line.startswith(f"{CELL} seed 7: failed, recipes/small/web/mlp.yaml: start: small/web/base") for line in said)


def test_a_search_comes_before_its_runs(project):
    project.recipe(seeds=[0], search={"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.1]}}})
    cluster = Cluster()
    done, said = swept(cluster)
    assert done, said
    assert [content["kind"] for _, content, _ in cluster.submitted] == ["search", "runs"]


def test_at_most_so_many_jobs_at_once():
    need = [Need(2.0**i, 1.0) for i in range(4)]
    job = Job("runs", "a", "d")
    groups = {need[0]: [job] * 6, need[1]: [job] * 2}
    assert [(n.memory_gib, len(jobs), share) for n, jobs, share in shares(groups, 4)] == [(1, 6, 3), (2, 2, 1)]
    # more kinds than places: the smallest are joined at the larger need
    joined = shares({n: [job] for n in need}, 2)
    assert [(n.memory_gib, len(jobs), share) for n, jobs, share in joined] == [(8, 1, 1), (4, 3, 1)] or sum(s for *_, s in joined) == 2
    assert sum(len(jobs) for _, jobs, _ in joined) == 4
    # those that cannot be joined wait
    assert len(shares({Need(1, 1): [job], Need(1, 1, gpus=1): [job]}, 1)) == 1
    assert shares(groups, 0) == []


def test_what_a_job_asks_for(project):
    project.recipe()
    grid = load_grid()
    cell = grid.find(CELL)
    job = Job("runs", CELL, "web", (0,), threads=2, seconds=3000.0, memory_mib=3000.0)
    assert need_of(job, cell, grid) == Need(8.0, 4.0, 2)
    assert need_of(job, cell, grid, gpu=True).gpus == 1
    said = {
        "all": Resources(hours=2, slurm={"partition": "long"}),
        "small": Resources(slurm={"account": "me"}),
        cell.key: Resources(gpus=2),
    }
    said = grid.model_copy(update={"resources": said})
    assert need_of(job, cell, said) == Need(8.0, 2.0, 2, 2, (("account", "me"), ("partition", "long")))
    with pytest.raises(
        RecipeError, match=r"there is no forecast of it; .* resources: \{small-web-mlp: \{memory_gib: \.\.\., hours: \.\.\.\}\}"
    ):
        need_of(Job("runs", CELL, "web", (0,)), cell, grid)


def test_resources_of_what_is_not_there(project):
    project.recipe()
    params = Path("params.yaml")
    params.write_text(params.read_text() + "resources: {smal: {gpus: 1}}\n")
    with pytest.raises(RecipeError, match=r"resources: no suite or cell 'smal' \(did you mean 'small'\?\)"):
        load_grid()


def test_a_dry_run_submits_nothing(project):
    project.recipe(seeds=[0, 1])
    grid = load_grid()
    rows = dry_run([Entry(tuple(grid.cells.values()))], grid, print)
    assert rows == [["1 GiB, 4 h, 1 core", "2", "2", "2.0 h", CELL]]
    assert not Path("store/sweep").exists()


def test_no_cluster_no_names_no_jobs_and_no_locks(project, monkeypatch, tmp_path):
    project.recipe()
    for arguments, says in (
        (["sweep"], "a sweep of nothing"),
        (["sweep", "small", "--cluster", "pbs"], "expected slurm or local"),
        (["sweep", "smal"], "no suite named 'smal'"),
    ):
        shown = CliRunner().invoke(app, arguments)
        assert isinstance(shown.exception, RecipeError)
        assert says in str(shown.exception)
    with pytest.raises(RecipeError, match="--at-most 0"):
        swept(Cluster(), at_most=0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no Slurm here: sbatch is not on the PATH; start one"):
        Slurm(Path("store/sweep"))

    def refuses(self, *_, **__):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "_acquire", refuses)
    with pytest.raises(StoreError, match="files cannot be locked there"):
        check_locks(Path("store"))
