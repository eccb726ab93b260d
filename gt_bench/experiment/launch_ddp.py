"""Starts, supervises and ends the processes that compute one run together (gt_bench/training/ddp.py).

The parent process computes nothing. It holds the lock of the run, receives messages of rank 0 and takes its record. If
one process dies, the parent kills the others, which would wait for it. The last checkpoint remains.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Generic, TypeVar

import psutil
import torch

from gt_bench.records.run import RunRecord
from gt_bench.runtime.fresh_process import OnEpoch
from gt_bench.runtime.signals import Stopped, die_with_parent, handled, ignore_interrupts
from gt_bench.runtime.worker_pool import Lost, TaskResult, portable, stop
from gt_bench.training.ddp import TIMEOUT, RetryWithCheckpointing, Share

# a forked process could not use the GPU or the threads of its parent
START: Final = "spawn"
# each process would warn that it found no unused parameters
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
EXIT_SECONDS = 5.0  # a killed process is noticed by the parent up to this many seconds after the other ranks notice it

T = TypeVar("T")
Work = Callable[[Share, Callable[..., None]], T]
# computes a rank's part of a run. Arguments: its share, what to call after each epoch (rank 0 only), and whether to use
# activation checkpointing
Compute = Callable[[Share, OnEpoch | None, bool], RunRecord]


class RankOutOfMemory(Exception):
    """A process ran out of memory even with activation checkpointing. The run ends with this record."""

    def __init__(self, record: RunRecord):
        super().__init__(record)
        self.record = record


@dataclass
class RankProcesses(Generic[T]):
    """`world` processes that compute `work` together. A context manager, which ends all of them on exit.

    Args:
        work: called in each process as work(share, tell). It and its result must be picklable. `tell(*message)` sends a
            message to the parent; see `values`.
        world: number of processes.
        gpu: whether rank r uses GPU r.
        timeout: seconds after which a process that does not respond to the others counts as lost.
    """

    work: Work[T]
    world: int
    gpu: bool = False
    timeout: float = TIMEOUT

    def __enter__(self) -> "RankProcesses[T]":
        self.folder = tempfile.TemporaryDirectory(prefix="gt-ranks-")
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        context, init_file = get_context(START), Path(self.folder.name, "init")
        os.environ.update(QUIET | os.environ)  # has an effect in the new processes only: torch is already loaded here
        for rank in range(self.world):
            near, far = context.Pipe()
            arguments = (self.work, rank, self.world, init_file, self.gpu, self.timeout, far, os.getpid())
            process = context.Process(target=_run_rank, args=arguments, daemon=True)
            process.start()
            far.close()
            self.processes.append(process)
            self.pipes.append(near)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Stopped | KeyboardInterrupt):
            stop(self.processes[:1])  # rank 0 ends its epoch, with the help of the others, and writes a checkpoint
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self.folder.cleanup()

    def values(self, on_message: Callable[..., None] = lambda *message: None) -> list[T]:
        """Waits for all processes and returns their results by rank.

        Args:
            on_message: called with the messages that processes send with `tell`.

        Raises:
            Lost: a process died or is stopped.
            Exception: what `work` raised in the first process that failed.
        """
        found: dict[int, T] = {}
        while len(found) < self.world:
            ready = wait([pipe for rank, pipe in enumerate(self.pipes) if rank not in found])
            for rank in [rank for rank, pipe in enumerate(self.pipes) if pipe in ready]:
                try:
                    kind, content = self.pipes[rank].recv()
                except (EOFError, OSError):
                    raise self._lost(rank) from None
                if kind == "message":
                    on_message(*content)
                elif content.error is None:
                    found[rank] = content.value
                else:
                    # torch raises a RuntimeError in the other ranks when one is killed
                    seconds = EXIT_SECONDS if isinstance(content.error, RuntimeError) else 0
                    ended = wait([process.sentinel for process in self.processes], seconds)
                    dead = [other for other, process in enumerate(self.processes) if process.sentinel in ended]
                    if not dead and isinstance(content.error, RuntimeError) and (stopped := self._stopped()):
                        raise Lost(
                            f"is stopped (PID {self.processes[stopped[0]].pid}) and has not responded to the others "
                            f"for {self.timeout:g} s",
                            place=f"process {stopped[0]} of {self.world}",
                            remedy="do not stop it (SIGSTOP, a debugger, a frozen control group)",
                        ) from content.error
                    raise self._lost(dead[0]) if dead else content.error
        return [found[rank] for rank in range(self.world)]

    def _stopped(self) -> list[int]:
        """Returns the ranks whose processes are stopped by a signal or traced."""
        found = []
        for rank, process in enumerate(self.processes):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                    found.append(rank)
        return found

    def _lost(self, rank: int) -> Lost:
        self.processes[rank].join()
        died = TaskResult(status=self.processes[rank].exitcode).died
        return Lost(died, place=f"process {rank} of {self.world}")


def _run_rank(
    work: Work[object],
    rank: int,
    world: int,
    init_file: Path,
    gpu: bool,
    timeout: float,
    pipe: Connection,
    parent: int,
) -> None:
    """Main function of a process: sends its result to the parent, then waits until the parent has all results."""
    with handled(say=False) if rank == 0 else contextlib.nullcontext():
        ignore_interrupts()  # Ctrl-C reaches all processes of a terminal; the parent decides
        if rank:
            # a scheduler sends it to all processes; rank 0 needs the others to end the epoch
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        die_with_parent(parent, signal.SIGKILL)
        try:
            device = torch.device("cuda", rank) if gpu else torch.device("cpu")
            share = Share.join(rank, world, init_file, device, timeout)
            ending = TaskResult(work(share, lambda *message: pipe.send(("message", message))))
        except Exception as error:
            ending = TaskResult(error=portable(error))
        pipe.send(("ended", ending))
        with contextlib.suppress(EOFError):
            pipe.recv()


def _compute_rank(compute: Compute, recomputed: bool, share: Share, tell: Callable[..., None]) -> RunRecord:
    """The `work` of each process: the run, with this process's part of each batch."""
    record = compute(share, tell if share.rank == 0 else None, recomputed)
    if record.run.status == "oom":
        raise RankOutOfMemory(record)
    return record


def compute_in_processes(compute: Compute, processes: int, gpu: bool, run: str, on_epoch: OnEpoch | None) -> RunRecord:
    """Computes a run in several processes.

    Args:
        compute: computes a rank's part of the run; must be picklable.
        processes: number of processes.
        gpu: whether rank r uses GPU r.
        run: name of the run, for messages.
        on_epoch: called after each epoch.

    Returns:
        The record of rank 0, with the peak memory of the process that used most.

    Raises:
        Lost: one of the processes died or is stopped.
    """
    recomputed = False
    while True:
        try:
            with RankProcesses(partial(_compute_rank, compute, recomputed), processes, gpu) as ranks:
                records = ranks.values(on_epoch or (lambda *message: None))
            break
        except RetryWithCheckpointing:
            recomputed = True
        except RankOutOfMemory as error:
            return error.record
        except Lost as error:
            remedy = "run the same command again to resume from the last checkpoint"
            raise Lost(str(error), file=run, remedy=remedy) from None
    if len({record.checksum for record in records}) > 1:
        raise RuntimeError(f"{run}: the processes of one run computed different numbers; this is a bug, report it")
    cost = {"processes": processes, "peak_memory_mib": max(record.measured.peak_memory_mib for record in records)}
    return records[0].model_copy(update={"measured": records[0].measured.model_copy(update=cost)})
