"""Jobs on Slurm, submitted with submitit: one array for each kind of need.

A job at its time limit, or one that is preempted, saves a checkpoint and is queued again. A job whose node dies is
queued again by Slurm. The outcome of a run is in the store: Slurm's accounting may be switched off.
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

from gt_bench.runtime.fresh_process import terminate
from gt_bench.scheduling.job import JobLine, run_job
from gt_bench.scheduling.slurm_resources import Need, minutes_of
from gt_bench.utils.errors import UserError

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

NAME = "gt-bench"  # of all jobs, for squeue and scancel
PATIENCE = 60.0  # seconds to wait for an answer of Slurm
OFTEN = 10**6  # how often a job may reach its time limit
# Final states. A job that was preempted or whose node failed is queued again soon.
LEFT = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "REVOKED"}


class ClusterError(UserError, RuntimeError):
    """There is no cluster, or it rejects a request; the message contains what to do."""


class SlurmJob:
    """The code that runs on a node: it runs a job in a new process and writes its output to the log and to `lines`."""

    def __init__(self, content: str, lines: Path):
        self.content, self.lines = content, lines

    def __call__(self) -> int:
        """Run the job and return its exit status."""
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        with self.lines.open("a", encoding="utf-8") as file:

            def tell(line: JobLine) -> None:
                text = json.dumps(line)
                print(text, flush=True)
                file.write(f"{text}\n")
                file.flush()

            return run_job(self.content, tell, self._started)

    def _started(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def checkpoint(self) -> "DelayedSubmission":
        """Return the task that is queued again; submitit calls this when the job must leave its node."""
        from submitit.helpers import DelayedSubmission

        if hasattr(self, "process"):
            terminate(self.process)
        return DelayedSubmission(SlurmJob(self.content, self.lines))


@dataclass(frozen=True)
class Place:
    """State of a job as Slurm names it, and its node or the reason why it waits."""

    state: str
    where: str = ""


@dataclass
class Slurm:
    """The cluster of the `sbatch` on the PATH.

    Args:
        folder: for scripts, logs and output of jobs, on storage that the nodes share.

    Raises:
        ClusterError: there is no cluster, or it does not answer.
    """

    folder: Path

    def __post_init__(self) -> None:
        how = "start Slurm (docs/cluster.md shows how on one machine), or use --cluster local"
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise ClusterError("Slurm is not available: sbatch is not on the PATH", remedy=how)
        answer = _slurm("scontrol", "ping")
        if answer.returncode or "UP" not in answer.stdout:
            text = " ".join((answer.stderr or answer.stdout).split())
            remedy = f"check SLURM_CONF and that slurmctld runs, or {how}"
            raise ClusterError(f"Slurm does not answer ({text})", remedy=remedy)
        try:
            import submitit  # noqa: F401
        except ImportError:
            problem = "jobs are submitted with submitit, which is not installed"
            raise ClusterError(problem, remedy="run: python -m pip install submitit") from None

    def submit(self, need: Need, contents: Sequence[str], most: int) -> list[tuple[str, Path]]:
        """Submit an array of jobs.

        Args:
            need: resources of each job.
            contents: the jobs, as `as_json` returns them.
            most: how many of them run at once.

        Returns:
            (id, file with its output) of each job.

        Raises:
            ClusterError: Slurm rejects the array.
        """
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError

        tasks = [
            SlurmJob(content, (self.folder / "lines" / f"{uuid.uuid4().hex}.jsonl").resolve()) for content in contents
        ]
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
            reason = " ".join(str(error).split())
            remedy = "see partitions and nodes with `sinfo`, and set `resources:` in params.yaml"
            raise ClusterError(f"Slurm rejects a job that needs {need}: {reason}", value=need, remedy=remedy) from None
        return [(job.job_id, task.lines) for job, task in zip(jobs, tasks, strict=True)]

    def places(self, ids: Collection[str]) -> dict[str, Place]:
        """Return the state of those jobs that wait or run.

        Raises:
            ClusterError: Slurm does not answer.
        """
        answer = _slurm("squeue", "--noheader", "--array", "--states=all", f"--name={NAME}", "--format=%i|%T|%N|%r")
        if answer.returncode:
            remedy = "the jobs continue, run the same command again to follow them"
            raise ClusterError(f"Slurm does not answer ({' '.join(answer.stderr.split())})", remedy=remedy)
        by_id = {}
        for line in answer.stdout.splitlines():
            job, state, node, why = line.split("|", 3)
            if job in ids and state not in LEFT:
                by_id[job] = Place(state, node or why)
        return by_id


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # the controller hangs
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} did not answer within {PATIENCE:g} s")


@contextlib.contextmanager
def _without_own_job() -> Iterator[None]:
    """Remove the variables of the current Slurm job, if there is one, so that new jobs do not inherit them."""
    own = {key: value for key, value in os.environ.items() if key.startswith("SLURM_") and key != "SLURM_CONF"}
    for key in own:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(own)
