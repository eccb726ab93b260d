"""Jobs on Slurm, by submitit: an array for each kind of need. A job at its time limit, or one that makes way, keeps a checkpoint and is queued
again; one whose node dies is queued again by Slurm. What became of a run is in the store, not in Slurm's accounting, which may be off.
"""

import contextlib
import json
import math
import os
import shutil
import subprocess
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.scheduling.slurm_resources import Need, minutes_of
from gt_bench.scheduling.subprocess_job import Line, end, run_job
from gt_bench.utils.errors import UserError

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

NAME = "gt-bench"  # of every job, for squeue and scancel
PATIENCE = 60.0  # seconds in which Slurm answers
OFTEN = 10**6  # times that a job may meet its time limit
# states that a job does not come back from; one whose node failed or that had to make way is queued again in a moment
LEFT = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "REVOKED"}


class ClusterError(UserError, RuntimeError):
    """The cluster is not there, or refuses; the message says what to do."""


class Task:
    """What runs on a node: the job in a process of its own, whose lines go to the log and to `lines`."""

    def __init__(self, content: str, lines: Path):
        self.content, self.lines = content, lines

    def __call__(self) -> int:
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        with self.lines.open("a", encoding="utf-8") as file:

            def tell(line: Line) -> None:
                text = json.dumps(line)
                print(text, flush=True)
                file.write(f"{text}\n")
                file.flush()

            return run_job(self.content, tell, self._started)

    def _started(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def checkpoint(self) -> "DelayedSubmission":
        """Called by submitit where the job has to leave its node: what it is queued again with."""
        from submitit.helpers import DelayedSubmission

        if hasattr(self, "process"):
            end(self.process)
        return DelayedSubmission(Task(self.content, self.lines))


@dataclass(frozen=True)
class Place:
    """Where a job is: `state` as Slurm calls it, `where` its node, or why it waits."""

    state: str
    where: str = ""


@dataclass
class Slurm:
    """The cluster that sbatch on the PATH belongs to. `folder`: for scripts, logs and what jobs say, on storage that nodes share.

    Raises ClusterError where there is none.
    """

    folder: Path

    def __post_init__(self) -> None:
        how = "start one (docs/cluster.md says how on one machine), or take --cluster local"
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise ClusterError(f"there is no Slurm here: sbatch is not on the PATH; {how}")
        answer = _slurm("scontrol", "ping")
        if answer.returncode or "UP" not in answer.stdout:
            said = " ".join((answer.stderr or answer.stdout).split())
            raise ClusterError(f"Slurm does not answer ({said}): is SLURM_CONF set, and slurmctld running? Else {how}")
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise ClusterError("jobs are submitted by submitit, which is not installed: pip install submitit") from None

    def submit(self, need: Need, contents: Sequence[str], most: int) -> list[tuple[str, Path]]:
        """(id, file of its lines) of each job of an array, of which at most `most` run at once. Raises ClusterError where Slurm refuses."""
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError

        tasks = [Task(content, (self.folder / "lines" / f"{uuid.uuid4().hex}.jsonl").resolve()) for content in contents]
        minutes, warned = minutes_of(need)
        executor = SlurmExecutor(self.folder.resolve() / "jobs", max_num_timeout=OFTEN)
        executor.update_parameters(
            job_name=NAME,
            time=minutes,
            mem=f"{math.ceil(need.memory_gib * 1024)}M",
            nodes=1,
            ntasks_per_node=1,
            cpus_per_task=need.threads,
            signal_delay_s=warned,
            array_parallelism=most,
            additional_parameters={
                "requeue": True,
                **({"gres": f"gpu:{need.gpus}"} if need.gpus else {}),
                **dict(need.slurm),
            },
            stderr_to_stdout=True,
        )
        try:
            with _without_own_job():
                jobs = executor.submit_array(tasks)
        except FailedJobError as error:
            said = " ".join(str(error).split())
            raise ClusterError(
                f"Slurm refuses a job that needs {need}: {said}. `sinfo` shows partitions and nodes; `resources:` in params.yaml says what is asked for"
            ) from None
        return [(job.job_id, task.lines) for job, task in zip(jobs, tasks, strict=True)]

    def places(self, ids: Collection[str]) -> dict[str, Place]:
        """Those of the jobs that are still in the queue or running. Raises ClusterError where Slurm does not answer."""
        answer = _slurm("squeue", "--noheader", "--array", "--states=all", f"--name={NAME}", "--format=%i|%T|%N|%r")
        if answer.returncode:
            raise ClusterError(
                f"Slurm does not answer ({' '.join(answer.stderr.split())}); jobs go on, the same command follows them"
            )
        found = {}
        for line in answer.stdout.splitlines():
            job, state, node, why = line.split("|", 3)
            if job in ids and state not in LEFT:
                found[job] = Place(state, node or why)
        return found


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # a controller that hangs
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} says nothing for {PATIENCE:g} s")


@contextlib.contextmanager
def _without_own_job() -> Iterator[None]:
    """A sweep that itself runs in a job hands none of that job's variables on."""
    own = {key: value for key, value in os.environ.items() if key.startswith("SLURM_") and key != "SLURM_CONF"}
    for key in own:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(own)
