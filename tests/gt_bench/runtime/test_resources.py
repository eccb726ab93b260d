"""How many processes a machine holds."""

import os
import subprocess
import sys

from gt_bench.runtime import resources
from gt_bench.runtime.resources import at_once, available_mib, cores, peak_mib


def test_what_a_process_takes_with_its_own():
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
    assert [
        at_once("auto", 20),
        at_once("auto", 3),
        at_once("auto", 20, threads=3),
        at_once("auto", 20, threads=16),
    ] == [8, 3, 2, 1]
    assert [at_once("auto", 20, gpu=True), at_once(2, 20, gpu=True), at_once(30, 20), at_once(4, 0)] == [1, 2, 20, 1]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert at_once("auto", 20) == 1
