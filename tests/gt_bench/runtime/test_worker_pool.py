"""The worker pool: tasks in forked processes, failures and kills, memory, cores, and no leftover processes."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.runtime import worker_pool
from gt_bench.runtime.signals import Stopped, handled
from gt_bench.runtime.worker_pool import TaskResult, WorkerPool
from tests.conftest import ROOT


def run(work, most, tasks, fresh=False, **hooks):
    with WorkerPool(work, most, fresh=fresh) as pool:
        return pool.run(tasks, **hooks)


@pytest.mark.parametrize(("fresh", "processes"), [(False, 2), (True, 5)])
def test_every_task_is_done_once_and_as_many_at_once_as_requested(tmp_path, fresh, processes):
    def work(task, tell):
        tell("begun", os.getpid())
        (tmp_path / str(task)).touch()
        until = time.monotonic() + 10
        while task < 2 and len(list(tmp_path.iterdir())) < 2:  # the first two wait for each other
            assert time.monotonic() < until
            time.sleep(0.005)
        return task**2

    heard = []
    endings = run(work, 2, range(5), fresh, on_message=lambda *what: heard.append(what))
    assert {task: ending.value for task, ending in endings.items()} == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert sorted((task, what) for task, what, _ in heard) == [(task, "begun") for task in range(5)]
    assert len({pid for *_, pid in heard}) == processes


@pytest.mark.parametrize("fresh", [False, True])
def test_a_killed_or_failed_task_stops_no_other(fresh):
    def work(task, tell):
        if task == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "crashed":
            faulthandler.disable()
            os.kill(os.getpid(), signal.SIGSEGV)
        if task == "left":
            os._exit(3)
        if task == "mistaken":
            raise RecipeError("recipe.yaml: no")
        return task

    endings = run(work, 5, ["killed", "crashed", "left", "mistaken", "sound", "late"], fresh)
    assert endings["killed"].died == "killed by signal 9: probably out of memory"
    assert endings["crashed"].died == "killed by signal 11: SIGSEGV"
    assert endings["left"].died == "its process ended with status 3"
    assert isinstance(endings["mistaken"].error, RecipeError)
    assert str(endings["mistaken"].error) == "recipe.yaml: no"
    assert "in work" in endings["mistaken"].error.__notes__[0]
    assert (endings["sound"], endings["late"]) == (TaskResult("sound"), TaskResult("late"))


def test_tasks_are_left_if_all_workers_are_killed():
    assert run(lambda task, tell: os.kill(os.getpid(), signal.SIGKILL), 2, range(9)).keys() == {0, 1}


def test_an_error_that_does_not_pickle():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def work(task, tell):
        raise Odd(1, 2)

    error = run(work, 1, ["task"])["task"].error
    assert str(error) == "Odd: 1 and 2"
    assert "raise Odd(1, 2)" in error.__notes__[0]


def test_a_full_disk_ends_what_has_not_begun():
    def work(task, tell):
        raise OSError(28, "No space left on device")

    assert len(run(work, 1, range(5))) == 1


def test_a_task_waits_for_the_one_it_needs():
    order = []
    ready = lambda task, unfinished: task != "second" or "first" not in unfinished  # noqa: E731
    hooks = {"is_ready": ready, "on_done": lambda task, _: order.append(task)}
    endings = run(lambda task, tell: tell(), 3, ["second", "first", "third"], True, **hooks)
    assert len(endings) == 3
    assert order.index("first") < order.index("second")
    # a task that waits for itself runs anyway
    assert len(run(lambda task, tell: None, 2, ["a", "b"], is_ready=lambda *_: False)) == 2


@pytest.mark.parametrize(("available", "most"), [(190.0, 2), (100.0, 1)])
def test_fewer_where_memory_holds_fewer_and_it_is_reported(monkeypatch, available, most):
    """Each task needs 60 MiB."""
    refused = get_context("fork").Event()

    def work(task, tell):
        tell("grown")
        assert refused.wait(60)  # no task ends before another one was refused for lack of memory
        return task

    def say(text):
        said.append(text)
        refused.set()

    monkeypatch.setattr(worker_pool, "peak_mib", lambda pid: 60.0)
    monkeypatch.setattr(worker_pool, "resident_mib", lambda pid: 60.0)
    at_work, said, grown = [], [], set()
    with WorkerPool(work, 3, say=say) as pool:
        monkeypatch.setattr(worker_pool, "available_mib", lambda: available - 60 * len(pool.tasks))

        def heard(task, *_):
            grown.add(task)
            at_work.append(len(pool.tasks))

        endings = pool.run(range(4), heard, may_add=lambda _: grown >= set(pool.tasks))
    assert max(at_work) == most
    assert {ending.value for ending in endings.values()} == set(range(4))
    left = available - 60 * most - 6 * most
    assert said == [f"memory allows {most} of 3 workers: each needs up to 66 MiB, and {left:.0f} MiB are free"]


@pytest.mark.parametrize("sends", [True, False])
def test_a_worker_ends_silently_if_nobody_listens(sends):
    near, far = get_context("fork").Pipe()
    near.send("task")
    near.close()
    worker_pool._run_tasks(lambda task, tell: tell("message") if sends else None, far, once=True)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_process_is_left_after_a_stop(number, status):
    pids = []

    def work(task, tell):
        tell(os.getpid())
        while True:
            time.sleep(0.1)

    def heard(task, pid):
        pids.append(pid)
        if len(pids) == 2:
            os.kill(os.getpid(), number)

    began = time.monotonic()
    with pytest.raises(Stopped) as stopped, handled():
        run(work, 2, range(2), on_message=heard)
    assert stopped.value.code == status
    assert time.monotonic() - began < worker_pool.KILL_SECONDS
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
def test_workers_go_with_a_parent_that_is_killed(tmp_path):
    code = f"""
import os, time
from pathlib import Path
from gt_bench.runtime.worker_pool import WorkerPool

def work(task, tell):
    Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(60)

with WorkerPool(work, 2) as pool:
    pool.run(range(2))
"""
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)})
    until = time.monotonic() + 30
    while len(found := list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    while any(_alive(path.name) for path in found) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(found) == 2
    assert not any(_alive(path.name) for path in found)


def _alive(pid: str) -> bool:
    try:
        return "(zombie)" not in Path("/proc", pid, "status").read_text()
    except OSError:
        return False
