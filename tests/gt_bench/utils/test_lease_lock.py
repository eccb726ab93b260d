"""Leases: one holder at a time over processes, mount points and machines; a dead holder loses the lock."""

import json
import multiprocessing
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from gt_bench.config.grid import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.search.storage import open_study
from gt_bench.utils import lease_lock as room
from gt_bench.utils.lease_lock import Lease, network_file_system, this_machine

fork = multiprocessing.get_context("fork")


@pytest.fixture
def mounts(tmp_path):
    """One folder under two mount points."""
    folder, points = tmp_path / "disk", [tmp_path / "one", tmp_path / "two"]
    folder.mkdir()
    mounted = []
    for point in points:
        point.mkdir()
        done = subprocess.run(["mount", "--bind", folder, point], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(point)
    yield points
    for point in mounted:
        subprocess.run(["umount", "--lazy", point], check=True)  # busy for a moment after a process was killed


def holder(path: Path, machine: str, **options):
    """Start a process that holds the lock until it is killed."""
    ready = fork.Event()

    def hold():
        assert Lease(path, machine, **options).acquire()
        ready.set()
        time.sleep(600)

    process = fork.Process(target=hold, daemon=True)
    process.start()
    assert ready.wait(60)
    return process


def kill(process) -> None:
    process.kill()
    process.join()


@pytest.mark.slow
def test_64_processes_on_two_machines_compute_each_run_once(mounts):
    runs, start = [f"run-{i}" for i in range(12)], fork.Event()

    def work(number: int) -> None:
        root, machine = mounts[number % 2], f"host-{number % 2}"
        start.wait(60)
        for run in runs[number % 12 :] + runs[: number % 12]:  # if a run is taken, take the next
            with Lease(root / run / "claim", machine).held() as mine:
                if mine and not (root / run / "record").exists():
                    with (root / "computed").open("a") as file:
                        file.write(f"{run}\n")
                    (root / run / "record").touch()

    processes = [fork.Process(target=work, args=(number,)) for number in range(64)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 64
    assert sorted((mounts[0] / "computed").read_text().split()) == sorted(runs)
    assert not list(mounts[1].glob("*/claim.*"))


def test_two_machines_that_want_the_same_run(mounts):
    one, two = Lease(mounts[0] / "claim", "host-0"), Lease(mounts[1] / "claim", "host-1")
    assert one.acquire()
    assert not two.acquire()
    one.release()
    assert two.acquire()
    assert not one.acquire()
    two.release()


def test_a_holder_that_died_on_this_machine_is_known_by_its_process(tmp_path):
    process = holder(tmp_path / "claim", this_machine())
    assert not Lease(tmp_path / "claim").acquire()
    kill(process)
    late = Lease(tmp_path / "claim")
    assert late.acquire()
    late.release()
    assert list(tmp_path.iterdir()) == []


def test_another_process_with_the_number_of_a_dead_one_holds_nothing(tmp_path):
    said = {"machine": this_machine(), "pid": os.getpid(), "ticks": 12, "token": "t", "beat": 0}
    (tmp_path / "claim.7").write_text(json.dumps(said))
    late = Lease(tmp_path / "claim")
    assert late.acquire()
    assert late.number == 8


@pytest.mark.parametrize("seconds", [1, -1, 3600])
def test_a_step_of_the_clock_takes_no_lock_from_a_living_process(tmp_path, monkeypatch, seconds):
    held = Lease(tmp_path / "claim")
    assert held.acquire()
    began = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: began(process) + seconds)
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + seconds)
    assert not Lease(tmp_path / "claim").acquire()
    held.release()


def test_a_holder_that_died_on_another_machine_is_known_by_time(mounts, monkeypatch):
    process = holder(mounts[0] / "claim", "host-0")
    kill(process)
    late = Lease(mounts[1] / "claim", "host-1", beat=0.1)
    assert not late.acquire()  # its lease has not expired
    os.utime(mounts[0] / "claim.1", (1, 1))  # long ago
    assert late.acquire()
    assert not Lease(mounts[0] / "claim", "host-0").acquire()
    assert not late.lost


def test_a_clock_that_jumps_takes_no_lock_from_the_living(mounts, monkeypatch):
    process = holder(mounts[0] / "claim", "host-0", beat=0.05)
    monkeypatch.setattr(Lease, "_age", lambda self, number: 1e9)
    # watches for up to 100 s, and sees the next beat
    assert not Lease(mounts[1] / "claim", "host-1", beat=40).acquire()
    kill(process)


def test_one_that_was_thought_dead_knows_that_it_lost_the_lock(mounts, monkeypatch):
    slow, other = Lease(mounts[0] / "claim", "host-0", beat=1000), Lease(mounts[1] / "claim", "host-1", beat=0.1)
    assert slow.acquire()
    os.utime(mounts[0] / "claim.1", (1, 1))
    assert other.acquire()
    assert slow.lost
    slow.release()  # does not release the claim of the other
    assert not other.lost
    assert not Lease(mounts[0] / "claim", "host-0").acquire()
    other.release()


def test_a_damaged_claim_runs_out_like_any_other(tmp_path):
    (tmp_path / "claim.1").write_bytes(b'{"machine": ')
    assert not Lease(tmp_path / "claim", beat=0.1).acquire()
    os.utime(tmp_path / "claim.1", (1, 1))
    assert Lease(tmp_path / "claim", beat=0.1).acquire()


def test_which_file_systems_are_network_ones(tmp_path, monkeypatch):
    assert network_file_system(tmp_path) is None
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n/dev/sdb1 {tmp_path}/local ext4 rw 0 0\n"
    )
    monkeypatch.setattr(room, "MOUNTS", mounts)
    assert network_file_system(tmp_path / "store") == "nfs4"
    assert network_file_system(tmp_path / "local" / "store") is None


def test_no_sqlite_on_a_network_file_system(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs rw 0 0\n")
    monkeypatch.setattr(room, "MOUNTS", mounts)
    with pytest.raises(RecipeError, match=r"SQLite loses data on a network file system \(nfs\)"):
        open_study(RunSettings(study_storage="sqlite:///a.db"), tmp_path, "s/d/m", "name", ["max"])
