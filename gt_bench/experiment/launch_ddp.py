"""One run in several processes of this machine: they are started here, watched, and ended together.

This process computes nothing: it holds the run's lock, hears what process 0 tells, and takes its record. Where one of them dies, the others, which
would wait for it, are ended, and what was done until the last checkpoint is kept.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Generic, TypeVar

import psutil
import torch

from gt_bench.runtime.signals import Stopped, die_with_parent, handled, ignore_interrupts
from gt_bench.runtime.worker_pool import Lost, TaskResult, portable, stop
from gt_bench.schemas import Record
from gt_bench.training.ddp import PATIENCE, KeepLess, Share

# whatever this process has had, threads or a GPU: new interpreters take seconds, which a run that wants several processes has
START: Final = "spawn"
# torch would warn in each of them that it looks for unused parameters in vain
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
DYING_SECONDS = 5.0  # in which one whose neighbour was killed may say so before the kill is seen

T = TypeVar("T")
Work = Callable[[Share, Callable[..., None]], T]
OnEpoch = Callable[[int, dict[str, float]], None]
# a run as one of several processes computes it: with its share, with what process 0 tells after each epoch, and with layers computed again in the
# backward pass, which keeps less memory, or not
Compute = Callable[[Share, OnEpoch | None, bool], Record]


class OutOfMemory(Exception):
    """One of the processes has run out of memory, however little it keeps: the run ends with this record."""

    def __init__(self, record: Record):
        super().__init__(record)
        self.record = record


@dataclass
class Ranks(Generic[T]):
    """`world` processes that do `work` together. Use as a context manager: at its end none is left.

    Args:
        work: called in each as work(share, tell); must pickle, as what it returns. `tell(*what)` passes on to `heard` of `values`.
        gpu: whether each takes the GPU of its number.
        patience: seconds after which one that does not answer the others counts as lost.
    """

    work: Work[T]
    world: int
    gpu: bool = False
    patience: float = PATIENCE

    def __enter__(self) -> "Ranks[T]":
        self.folder = tempfile.TemporaryDirectory(prefix="gt-ranks-")
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        context, meeting = get_context(START), Path(self.folder.name, "meeting")
        os.environ.update(QUIET | os.environ)  # theirs: this process has torch already
        for rank in range(self.world):
            near, far = context.Pipe()
            arguments = (self.work, rank, self.world, meeting, self.gpu, self.patience, far, os.getpid())
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            far.close()
            self.processes.append(process)
            self.pipes.append(near)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, Stopped | KeyboardInterrupt):
            stop(self.processes[:1])  # it ends its epoch and keeps a checkpoint; the others can do nothing without it
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self.folder.cleanup()

    def values(self, heard: Callable[..., None] = lambda *what: None) -> list[T]:
        """What `work` returned in each of them. Raises what it raised in the first that failed, and Lost where one died."""
        found: dict[int, T] = {}
        while len(found) < self.world:
            ready = wait([pipe for rank, pipe in enumerate(self.pipes) if rank not in found])
            for rank in [rank for rank, pipe in enumerate(self.pipes) if pipe in ready]:
                try:
                    kind, content = self.pipes[rank].recv()
                except (EOFError, OSError):
                    raise self._lost(rank) from None
                if kind == "told":
                    heard(*content)
                elif content.error is None:
                    found[rank] = content.value
                else:
                    # torch's of a neighbour that is gone is one; a sentinel is ready a little before the process has ended
                    seconds = DYING_SECONDS if isinstance(content.error, RuntimeError) else 0
                    dying = wait([process.sentinel for process in self.processes], seconds)
                    dead = [other for other, process in enumerate(self.processes) if process.sentinel in dying]
                    if not dead and isinstance(content.error, RuntimeError) and (silent := self._stopped()):
                        raise Lost(
                            f"process {silent[0]} of {self.world} (number {self.processes[silent[0]].pid}) is stopped, and has not answered the others "
                            f"for {self.patience:g} s: nothing may stop it (SIGSTOP, a debugger, a frozen control group)"
                        ) from content.error
                    raise self._lost(dead[0]) if dead else content.error
        return [found[rank] for rank in range(self.world)]

    def _stopped(self) -> list[int]:
        """The processes that somebody has stopped."""
        found = []
        for rank, process in enumerate(self.processes):
            with contextlib.suppress(psutil.Error):
                if psutil.Process(process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                    found.append(rank)
        return found

    def _lost(self, rank: int) -> Lost:
        self.processes[rank].join()
        return Lost(f"process {rank} of {self.world}: {TaskResult(status=self.processes[rank].exitcode).died}")


def _serve(
    work: Work[object], rank: int, world: int, meeting: Path, gpu: bool, patience: float, pipe: Connection, parent: int
) -> None:
    """The life of a process. What it says it says before it leaves: the others notice that only then."""
    with handled(say=False) if rank == 0 else contextlib.nullcontext():
        ignore_interrupts()
        if rank:
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # a scheduler's, to all; process 0 ends the epoch, and needs the others for it
        die_with_parent(parent, signal.SIGKILL)
        try:
            share = Share.join(
                rank, world, meeting, torch.device("cuda", rank) if gpu else torch.device("cpu"), patience
            )
            ending = TaskResult(work(share, lambda *what: pipe.send(("told", what))))
        except Exception as error:
            ending = TaskResult(error=portable(error))
        pipe.send(("ended", ending))
        with contextlib.suppress(EOFError):
            pipe.recv()  # until all are done


@dataclass
class _Part:
    """What each process does of a run: all of it, with its part of each batch."""

    compute: Compute
    recomputed: bool

    def __call__(self, share: Share, tell: Callable[..., None]) -> Record:
        record = self.compute(share, tell if share.rank == 0 else None, self.recomputed)
        if record["deterministic"]["status"] == "oom":
            raise OutOfMemory(record)
        return record


def compute_in_processes(compute: Compute, processes: int, gpu: bool, run: str, on_epoch: OnEpoch | None) -> Record:
    """The record of a run that `processes` compute together. `compute` must pickle; `run`: its name in messages. Raises Lost where one of them dies."""
    recomputed = False
    while True:
        try:
            with Ranks(_Part(compute, recomputed), processes, gpu) as ranks:
                records = ranks.values(on_epoch or (lambda *what: None))
            break
        except KeepLess:
            recomputed = True
        except OutOfMemory as error:
            return error.record
        except Lost as error:
            raise Lost(f"{run}: {error}; the run is kept up to its last checkpoint, the same command goes on") from None
    if len({record["checksum"] for record in records}) > 1:
        raise RuntimeError(f"{run}: the processes of one run have found different numbers, which is a bug")
    record = records[0]
    record["measured"] |= {
        "processes": processes,
        "peak_memory_mib": max(
            other["measured"]["peak_memory_mib"] for other in records
        ),  # of the process that took most
    }
    return record
