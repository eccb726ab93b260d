"""The memory that a run may take: of the machine, of its container, and of its process, whichever is least."""

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

from stages import measurements
from stages.store import Store
from tests.conftest import ROOT

CPU = torch.device("cpu")
GIB = 2**30


def test_limits_of_control_groups_and_of_those_around_them(tmp_path):
    process, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / "a/b").mkdir(parents=True)
    (root / "memory/docker/c").mkdir(parents=True)
    (root / "a/b/memory.max").write_text("max\n")
    (root / "a/memory.max").write_text(f"{3 * GIB}\n")
    (root / "memory/docker/c/memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (root / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    process.write_text("0::/a/b\n")
    assert measurements._cgroup_limits(process, root) == [3 * GIB]
    process.write_text("5:cpu,cpuacct:/x\n4:memory:/docker/c\n1:name=systemd:/x\n")
    assert measurements._cgroup_limits(process, root) == [2 * GIB, 9223372036854771712]
    process.write_text("4:memory:/the/host/path\n")  # not there inside the container, whose root is its group
    (root / "memory/memory.limit_in_bytes").write_text(f"{GIB}\n")
    assert measurements._cgroup_limits(process, root) == [GIB]
    assert measurements._cgroup_limits(tmp_path / "absent", root) == []


@pytest.mark.parametrize(
    ("groups", "address", "data", "expected"),
    [
        ([], resource.RLIM_INFINITY, resource.RLIM_INFINITY, 8),
        ([3 * GIB, 2**62], resource.RLIM_INFINITY, resource.RLIM_INFINITY, 3),
        ([3 * GIB], 2 * GIB, resource.RLIM_INFINITY, 2),
        ([3 * GIB], resource.RLIM_INFINITY, GIB, 1),
        ([3 * GIB], resource.RLIM_INFINITY, 3 * GIB * 95 // 100, 3),  # our own bound
    ],
)
def test_the_least_limit_counts(groups, address, data, expected, monkeypatch):
    monkeypatch.setattr(measurements.psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB))
    monkeypatch.setattr(measurements, "_cgroup_limits", lambda: groups)
    soft = {resource.RLIMIT_AS: address, resource.RLIMIT_DATA: data}
    monkeypatch.setattr(measurements.resource, "getrlimit", lambda which: (soft[which], resource.RLIM_INFINITY))
    assert measurements.memory_limit_mib(CPU) == expected * 1024
    bounds = []
    monkeypatch.setattr(measurements.resource, "setrlimit", lambda which, limits: bounds.append((which, limits)))
    measurements.bound_memory(CPU)
    killing = min([8 * GIB, *groups]) * 95 // 100
    assert bounds == [(resource.RLIMIT_DATA, (killing if data < 0 else min(killing, data), resource.RLIM_INFINITY))]


SCRIPT = """
import torch
from stages.engine.failures import is_out_of_memory
from stages.measurements import bound_memory, memory_limit_mib
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


def test_a_process_under_ulimit_ends_as_oom_and_more_memory_is_tried_again(tmp_path):
    limit = 2 * GIB
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)), check=True,
    ).stdout.split()  # fmt: skip
    assert said == ["2048.0", "2048.0", "True"]
    store = Store(tmp_path)
    record = {"digest": "a" * 64, "deterministic": {"status": "oom"}, "measured": {"memory_limit_mib": 2048.0, "time_limit_seconds": None}}
    store.put(record)
    assert store.settled("a" * 64, time_limit=None, memory_limit=2048.0) == record
    assert store.settled("a" * 64, time_limit=None, memory_limit=8192.0) is None


@pytest.fixture
def group():
    """A control group of 3 GiB, of version 1 or 2."""
    for root, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
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


def test_a_model_larger_than_its_control_group_is_a_row_and_no_killed_process(project, group):
    project.recipe(model={"name": "mlp", "hidden_dim": 30_000, "num_layers": 3}, seeds=[0])  # 3.4 GiB of weights
    script = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} -m stages.train small/web/mlp"
    done = subprocess.run(["sh", "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("results/small/web/mlp.json").read_text())["status"] == "oom"
    (record,) = project.records()
    assert record["measured"]["memory_limit_mib"] == 3 * 1024
