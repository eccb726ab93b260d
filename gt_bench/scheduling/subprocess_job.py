"""A job in a process of its own (see job.py), started and listened to from here."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TypedDict

from gt_bench.runtime.signals import GRACE
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.io import WriteError

COMMAND = (sys.executable, "-m", "gt_bench.scheduling.job")


class Line(TypedDict, total=False):
    """A line of a job's output: the number of its process, what it says, that its cell is whole now, or what became of a `seed` (None: of the job), under which
    `key` in the store, by the code in `root`."""

    pid: int
    say: str
    whole: bool
    seed: int | None
    outcome: str
    why: str | None
    trials: int
    key: str
    root: str


def run_job(
    content: str, tell: Callable[[Line], None], started: Callable[[subprocess.Popen[str]], None] = lambda process: None
) -> int:
    """The exit status of the job. `tell` is called for each line of its output. Whatever ends this ends the job too, which keeps a checkpoint.
    Raises WriteError where the disk is full."""
    full = None
    # the code of this process, whatever else is installed under its name: another one would compute runs of other keys
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=environment
    ) as process:
        try:
            started(process)
            assert process.stdin is not None  # pipes, as asked for
            assert process.stdout is not None
            process.stdin.write(content)
            process.stdin.close()
            for text in process.stdout:
                tell(line := json.loads(text))
                full = line["why"] if line.get("outcome") == "full" else full
            process.wait()
        except BaseException:
            end(process)
            raise
    if full is not None:
        raise WriteError(full)
    return process.returncode


def end(process: subprocess.Popen[str]) -> None:
    """Asks the job to stop, which has its run end an epoch and keep a checkpoint; after GRACE it is killed."""
    process.terminate()
    try:
        process.wait(GRACE + 0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
