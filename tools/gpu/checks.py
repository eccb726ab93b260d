"""Checks on the device: fast forms against their definitions, then every model against the CPU.

    python -m tools.gpu.checks --out FOLDER [--device cpu] [--small]

The most valuable come first. Each result is a line of FOLDER/checks.jsonl as soon as it is known.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.gpu.machine import ROOT, cores

FORMS = "tests/gt_models/kernels/test_forms_on_device.py"
SIDE_BY_SIDE = 6  # processes of pytest, from 2 cores each on


class Results:
    """A plugin of pytest that writes each result when it is known."""

    def __init__(self, path: Path):
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the result of a test that was called, or that failed or was skipped before."""
        if report.when != "call" and report.passed:
            return
        why = None
        if report.failed:
            why = str(report.longrepr)[-4000:]
        elif report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2]
        row = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2), "why": why}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def groups(device: str, small: bool) -> list[list[str]]:
    """Return the arguments of pytest of each group of checks, the most valuable first."""
    found = [[FORMS, "-k", "gated_attention"], [FORMS, "-k", "not gated_attention"]]
    if device == "cuda":
        found.append(["tests/gt_models/test_cuda.py"])
    return found[:1] if small else found


def main() -> int:
    """Run the groups one after the other; return 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--group", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    wanted = groups(given.device, given.small)
    if given.group is not None:
        side = min(SIDE_BY_SIDE, cores() // 2) if importlib.util.find_spec("xdist") else 1
        options = ["-v", "--tb=short", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "--durations=5"]
        options += ["-p", "xdist", "-n", str(side)] if side > 1 else []
        return pytest.main([*wanted[given.group], *options], plugins=[Results(given.out / "checks.jsonl")])
    status = 0
    # a plugin of the machine that cannot be loaded must not stop the checks
    environment = os.environ | {"GT_FORMS_DEVICE": given.device, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for number in range(len(wanted)):  # a process for each group: a crash of the device ends only one
        command = [sys.executable, "-m", "tools.gpu.checks", *sys.argv[1:], "--group", str(number)]
        done = subprocess.run(command, env=environment, cwd=ROOT)
        if done.returncode:
            status = 1
            print(f"group {number} ({' '.join(wanted[number])}) ended with status {done.returncode}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
