"""A job in a new process: data and encodings, trials of a search, or runs of a cell.

`run_job` starts the process, gt_bench/pipeline/job.py. Each line of its output is a JSON object (`JobLine`):

    {"say": text}                                   a message
    {"seed": n, "outcome": ..., "why": ...}         the end of a run; of a search {"seed": null, "trials": number}

When all runs of a cell are stored, its job writes results/<cell>.json.

Outcomes: the status of the record; `stored` (it was in the store); `elsewhere` (another process computes it);
`unsearched` (the search of its cell has trials left); `failed`; `no data`; `full` (the disk).
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import NotRequired, TypedDict

from gt_bench.runtime.fresh_process import child_environment, terminate
from gt_bench.scheduling.planner import Job
from gt_bench.utils.io import WriteError

COMMAND = (sys.executable, "-m", "gt_bench.pipeline.job")


class Content(TypedDict):
    """A job as its process reads it.

    `shared`: whether other runs use the same memory; `processes`: number of processes that share a GPU.
    """

    kind: str
    name: str
    seeds: list[int]
    trials: int
    shared: bool
    processes: NotRequired[int]


class JobLine(TypedDict, total=False):
    """A line of the output of a job; see the module's docstring.

    `pid` is the id of its process. The record of a run is stored under `key`, computed by the code in the folder
    `root`.
    """

    pid: int
    say: str
    seed: int | None
    outcome: str
    why: str | None
    trials: int


def as_json(job: Job, shared: bool, processes: int = 1) -> str:
    """Return a job as JSON of a `Content`.

    Args:
        job: the job.
        shared: whether other runs use the same memory.
        processes: number of processes that share a GPU.
    """
    content = asdict(job) | {"shared": shared, "processes": processes}
    return json.dumps({key: content[key] for key in Content.__annotations__})


def run_job(
    content: str,
    tell: Callable[[JobLine], None],
    started: Callable[[subprocess.Popen[str]], None] = lambda process: None,
) -> int:
    """Run a job in a new process. An exception here terminates the job, which saves a checkpoint.

    Args:
        content: the job, as `as_json` returns it.
        tell: called for each line of its output.
        started: called with the process.

    Returns:
        The exit status of the process.

    Raises:
        WriteError: the disk is full.
    """
    full = None
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=child_environment()
    ) as process:
        try:
            started(process)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(content)
            process.stdin.close()
            for text in process.stdout:
                tell(line := json.loads(text))
                full = line["why"] if line.get("outcome") == "full" else full
            process.wait()
        except BaseException:
            terminate(process)
            raise
    if full is not None:
        raise WriteError(full)
    return process.returncode
