"""Memory and cores that a run may use: limits of the machine, of its control groups and of its process."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gt_bench.runtime import environment, resources
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.resources import at_once, available_mib, cores, peak_mib
from gt_bench.store.run_store import Store
from tests.conftest import ROOT
from tests.gt_bench.cells import ET, changed, make_record

CPU = torch.device("cpu")
GIB = 2**30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """`groups(lines, files)` puts this process into these control groups, whose files are below a temporary root."""
    monkeypatch.setattr(resources, "PROCESS", tmp_path / "cgroup")
    monkeypatch.setattr(resources, "ROOT", tmp_path / "fs")
    monkeypatch.setattr(resources.psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB, available=6 * GIB))
    monkeypatch.delenv(resources.GIVEN, raising=False)

    def write(lines: str, files: dict[str, object]) -> None:
        (tmp_path / "cgroup").write_text(lines)
        for name, content in files.items():
            path = tmp_path / "fs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")

    return write


V2 = {
    "a/b/memory.max": "max", "a/memory.max": 3 * GIB, "a/memory.current": 2 * GIB,
    "a/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
    "a/b/cpu.max": "250000 100000", "a/cpu.max": "max 100000",
}  # fmt: skip
V1 = {
    "memory/docker/c/memory.limit_in_bytes": 2 * GIB, "memory/docker/c/memory.usage_in_bytes": GIB,
    "memory/memory.limit_in_bytes": 2**63 - 4096,
    "memory/docker/c/memory.stat": "total_inactive_file 1024", "cpu/x/cpu.cfs_quota_us": 150000,
    "cpu/x/cpu.cfs_period_us": 50000,
    "cpu/cpu.cfs_quota_us": -1,
}  # fmt: skip
# inside the container, whose root is its group
HOST_PATH = {
    "memory/memory.limit_in_bytes": GIB, "memory/memory.usage_in_bytes": GIB // 4,
    "cpu,cpuacct/cpu.cfs_quota_us": 50000, "cpu,cpuacct/cpu.cfs_period_us": 100000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "files", "total", "free", "cores"),
    [
        ("0::/a/b\n", V2, 3, 1.5, 2),
        ("5:cpu:/x\n4:memory:/docker/c\n1:name=systemd:/x\n", V1, 2, 1 + 1024 / GIB, 3),
        ("5:cpu,cpuacct:/the/host\n4:memory:/the/host/path\n", HOST_PATH, 1, 0.75, 1),
        ("", {}, 8, 6, 12),
    ],
)
def test_control_groups_of_both_versions_and_those_around_them(groups, monkeypatch, lines, files, total, free, cores):
    groups(lines, files)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert resources.memory_total() == total * GIB
    assert resources.memory_free() == free * GIB
    assert resources.cores() == cores


@pytest.mark.parametrize(
    ("address", "data", "expected"), [(-1, -1, 3), (2 * GIB, -1, 2), (-1, GIB, 1), (16 * GIB, 16 * GIB, 3)]
)
def test_the_least_limit_counts(groups, monkeypatch, address, data, expected):
    groups("0::/a/b\n", V2)
    soft = {resource.RLIMIT_AS: address, resource.RLIMIT_DATA: data}
    monkeypatch.setattr(resources.resource, "getrlimit", lambda which: (soft[which], resource.RLIM_INFINITY))
    bounds = []
    monkeypatch.setattr(
        resources.resource,
        "prlimit",
        lambda pid, which, limits: (bounds.append((pid, limits[0])), soft.update({which: limits[0]})),
    )
    monkeypatch.setattr(resources, "_data_bytes", lambda pid: GIB // 4)
    for _ in range(2):  # the limit that `bound` set does not count
        assert environment.memory_limit_mib(CPU) == expected * 1024
        environment.bound_memory(CPU)
    environment.bound_memory(CPU, 1 / 2)
    resources.bound(1 / 2, 7)
    wanted = [GIB // 4 + int(0.95 * share * 1.5 * GIB) for share in (1, 1, 1 / 2, 1 / 2)]
    assert bounds == [(pid, w if data == -1 else min(w, data)) for pid, w in zip((0, 0, 0, 7), wanted)]
    resources.unbound()
    assert bounds[-1] == (0, data)


SCRIPT = """
import torch
from gt_bench.training.failures import is_out_of_memory
from gt_bench.runtime.environment import bound_memory, memory_limit_mib
device = torch.device("cpu")
for _ in range(2):
    bound_memory(device)
    print(memory_limit_mib(device))
try:
    torch.zeros(3 * 2**30, dtype=torch.uint8)
    print("allocated")
except RuntimeError as error:
    print(is_out_of_memory(error))
"""


@pytest.mark.slow
def test_a_process_under_ulimit_ends_as_oom_and_more_memory_is_tried_again(tmp_path):
    limit = 2 * GIB
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)), check=True,
    ).stdout.split()  # fmt: skip
    assert said == ["2048.0", "2048.0", "True"]
    store = Store(tmp_path)
    record = changed(make_record(ET, 0, status="oom"), measured={"memory_limit_mib": 2048.0})
    store.put(record)
    assert store.settled(record.digest, time_limit=None, memory_limit=2048.0) == record
    assert store.settled(record.digest, time_limit=None, memory_limit=8192.0) is None


@pytest.fixture
def group():
    """A control group of 3 GiB, of version 1 or 2."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = root / f"gt-bench-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            try:
                (folder / limit).write_text(str(3 * GIB))
                yield folder
                return
            finally:
                folder.rmdir()
    pytest.skip("no control group can be made here")


def in_group(group: Path, command: str) -> subprocess.CompletedProcess:
    script = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m {command}"
    return subprocess.run(
        ["sh", "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_seeds_side_by_side_share_the_bound_of_their_control_group(project, group):
    large = {"name": "mlp", "hidden_dim": 30_000, "num_layers": 3}
    project.recipe(model=large, seeds=[0, 1], run={"parallel": 2})
    done = in_group(group, "stages.train small/web/mlp")
    assert done.returncode == 0, done.stderr
    assert "signal 9" not in done.stderr
    result = json.loads(Path("results/small/web/mlp.json").read_text())
    assert (result["status"], len(result["runs"])) == ("oom", 2)
    assert [record.run.status for record in project.records()] == ["oom"] * 2


def test_a_command_without_memory_states_how_much_there_is(capsys):
    def work(error):
        raise error

    for error in (
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        OSError(12, "Cannot allocate memory"),
    ):
        assert status_of(lambda error=error: work(error)) == 1
        assert "error: out of memory: " in (said := capsys.readouterr().err)
        assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_a_model_larger_than_its_control_group_is_a_row_and_no_killed_process(project, group):
    project.recipe(model={"name": "mlp", "hidden_dim": 30_000, "num_layers": 3}, seeds=[0])  # 3.4 GiB of weights
    done = in_group(group, "stages.train small/web/mlp")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("results/small/web/mlp.json").read_text())["status"] == "oom"
    (record,) = project.records()
    assert record.measured.memory_limit_mib == 3 * 1024


@pytest.mark.slow
def test_memory_of_a_process_includes_its_descendants():
    holder = "x = bytearray(80 * 2**20); import sys; print(flush=True); sys.stdin.read()"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {holder!r}])"
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert 80 < peak_mib(process.pid) < 160
        process.stdin.close()
    assert peak_mib(process.pid) == 0
    assert available_mib() > 0


def test_how_many_at_once(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert cores() <= 12
    monkeypatch.setattr(resources, "cores", lambda: 8)
    assert [at_once("auto", 20), at_once("auto", 3)] == [8, 3]
    assert [at_once("auto", 20, threads=threads) for threads in (3, 16)] == [2, 1]
    assert [at_once("auto", 20, gpu=True), at_once(2, 20, gpu=True), at_once(30, 20), at_once(4, 0)] == [1, 2, 20, 1]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert at_once("auto", 20) == 1
