"""Tasks side by side on one machine: each in a process of its own, as many at once as cores and memory hold.

Workers are forked: that takes milliseconds where importing torch takes seconds, and a worker has what was read before. A fork is sound while
this process has neither run a team of OpenMP threads nor touched a GPU, so workers come before all of that, and only on Linux.
"""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar, cast

from gt_bench.runtime import memory_limits
from gt_bench.runtime.resources import available_mib, family, peak_mib, resident_mib
from gt_bench.runtime.signals import GRACE, handled
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import WriteError

MARGIN = 1.1  # of memory: epochs to come may need a little more than those so far
POLL_SECONDS = 0.2  # between two looks at memory while tasks wait
KILL_SECONDS = GRACE + 1  # from SIGTERM to SIGKILL: a run may end its epoch and keep a checkpoint
Task = TypeVar("Task", bound=Hashable)  # what is done: it must pickle


class Lost(UserError, RuntimeError):
    """Tasks that gave no result; the message says of each what happened, and what to do."""


class Killed(Lost):
    """The process of a run was killed as the kernel kills for want of memory."""


@dataclass
class Ending:
    """How a task ended: with `value`, with the `error` it raised, or with the `signal` or exit `status` that its process died of."""

    value: object = None
    error: Exception | None = None
    status: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the task returned."""
        return self.error is None and self.status is None

    @property
    def died(self) -> str:
        """In words, where the process died."""
        if self.status is None or self.status >= 0:
            return f"its process ended with status {self.status}"
        if self.status == -signal.SIGKILL:
            return "killed by signal 9: probably out of memory"
        with contextlib.suppress(ValueError):
            return f"killed by signal {-self.status} ({signal.Signals(-self.status).name})"
        return f"killed by signal {-self.status}"

    @property
    def killed(self) -> bool:
        """Whether its process was killed as the kernel kills for want of memory."""
        return self.status == -signal.SIGKILL or isinstance(self.error, Killed)


@dataclass
class Worker(Generic[Task]):
    """A process, this end of its pipe, and the task that it is at."""

    process: BaseProcess
    pipe: Connection
    task: Task | None = None


@dataclass
class Crew(Generic[Task]):
    """Up to `most` processes that do tasks, each one task at a time. Use as a context manager: at its end no process is left.

    Args:
        work: called in a process as work(task, tell); `tell(*what)` passes on to `heard` of `run`. What it returns must pickle.
        fresh: one process for each task, forked when it starts; otherwise `most` are forked at once, and do one task after the other.
        say: is called with the reason why fewer than `most` are at work.
        memory: False where it is not this machine's memory that tasks take most of.
    """

    work: Callable[[Task, Callable[..., None]], object]
    most: int
    fresh: bool = False
    say: Callable[[str], None] = print
    memory: bool = True
    largest: float = 0.0  # MiB, of one process (with its own) so far
    _idle: list[Worker[Task]] = field(default_factory=list)
    _busy: list[Worker[Task]] = field(default_factory=list)
    _said: bool = False

    def __enter__(self) -> "Crew[Task]":
        if not self.fresh:
            self._idle = [self._fork() for _ in range(self.most)]
        return self

    def __exit__(self, *_: object) -> None:
        stop([worker.process for worker in (*self._idle, *self._busy)])
        self._idle, self._busy = [], []

    def refill(self) -> None:
        """Starts a process where none is left: all were killed."""
        if not (self.fresh or self._idle or self._busy):
            self._idle.append(self._fork())

    @property
    def tasks(self) -> list[Task]:
        """Under way."""
        return [worker.task for worker in self._busy if worker.task is not None]

    def run(
        self,
        tasks: Sequence[Task],
        heard: Callable[..., None] = lambda task, *what: None,
        more: Callable[[list[Task]], bool] = lambda waiting: True,
        ready: Callable[[Task, list[Task]], bool] = lambda task, unfinished: True,
        ended: Callable[[Task, Ending], None] = lambda task, ending: None,
        until: float | None = None,
    ) -> dict[Task, Ending]:
        """Does all tasks, whatever becomes of some; returns how each ended. A disk that cannot be written ends what has not begun.

        Args:
            heard: called here as heard(task, *what) for each `tell(*what)`.
            more: whether to start another task beside the running ones, where memory and `most` allow it; given those that wait.
            ready: whether a task may start while those `unfinished` are.
            ended: called when a task has ended.
            until: when to return whatever is still under way, by time.monotonic(); the end of the context stops it.
        """
        waiting = list(tasks)
        endings: dict[Task, Ending] = {}
        while (waiting or self._busy) and (until is None or time.monotonic() < until):
            while (task := self._next(waiting, more, ready)) is not None:
                self._start(task)
                waiting.remove(task)
            if not self._busy:  # all who could do them were killed
                break
            left = None if until is None else max(0.0, until - time.monotonic())
            ready_pipes = wait(
                [worker.pipe for worker in self._busy],
                POLL_SECONDS if waiting or (self.memory and self._busy[1:]) else left,
            )
            self._share()
            for pipe in ready_pipes:
                worker = next(w for w in self._busy if w.pipe is pipe)
                task, message = cast(Task, worker.task), self._receive(worker)
                if isinstance(message, Ending):
                    endings[task] = message
                    ended(task, message)
                    if isinstance(message.error, OSError | WriteError):
                        waiting.clear()
                else:
                    heard(task, *message)
        return endings

    def _next(
        self, waiting: list[Task], more: Callable[[list[Task]], bool], ready: Callable[[Task, list[Task]], bool]
    ) -> Task | None:
        """The task to start now, None for none."""
        if not waiting or not (self._idle or self.fresh) or len(self._busy) >= self.most:
            return None
        unfinished = [*waiting, *self.tasks]
        task = next((t for t in waiting if ready(t, [u for u in unfinished if u != t])), None)
        if not self._busy:
            return waiting[0] if task is None else task
        return task if task is not None and more(list(waiting)) and self._has_room() else None

    def _start(self, task: Task) -> None:
        worker = self._fork() if self.fresh else self._idle.pop(0)
        worker.task = task
        self._busy.append(worker)
        self._share()
        with contextlib.suppress(BrokenPipeError):  # it died while it was idle: `_receive` finds out
            worker.pipe.send(task)

    def _receive(self, worker: Worker[Task]) -> tuple[object, ...] | Ending:
        """What a worker tells, or how its task ended."""
        self.largest = max(self.largest, peak_mib(worker.process.pid))
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._busy.remove(worker)
            # a kill for want of memory: one fewer at once from here on
            self.most = max(1, self.most - (worker.process.exitcode == -signal.SIGKILL))
            return Ending(status=worker.process.exitcode)
        if kind == "told":
            return content
        self._busy.remove(worker)
        if self.fresh:
            worker.process.join()
        else:
            worker.task = None
            self._idle.append(worker)
        return content

    def _share(self) -> None:
        """Bounds the memory of the running ones by what is free, so that they get an error before the kernel kills one of them."""
        if self.memory and sys.platform == "linux":
            for worker in self._busy:
                for pid in family(worker.process.pid):  # it may have a process of its own that computes
                    memory_limits.bound(1 / len(self._busy), pid)

    def _has_room(self) -> bool:
        """Whether memory holds one more, beside what the running ones may still grow to."""
        if not self.memory:
            return True
        held = [(peak_mib(w.process.pid), resident_mib(w.process.pid)) for w in self._busy]
        self.largest = max([self.largest, *(peak for peak, _ in held)])
        need = MARGIN * self.largest
        free = available_mib() - sum(max(0.0, need - resident) for _, resident in held)
        if free < need and not self._said:
            self._said = True
            self.say(
                f"memory holds {len(self._busy)} of {self.most} at once: one takes up to {need:,.0f} MiB, and {max(0.0, free):,.0f} are left"
            )
        return free >= need

    def _fork(self) -> Worker[Task]:
        context = get_context("fork")
        near, far = context.Pipe()
        process = context.Process(target=_serve, args=(self.work, far, near, os.getpid(), self.fresh))
        process.start()
        far.close()
        return Worker(process, near)


def _serve(work: Callable[..., object], pipe: Connection, near: Connection, parent: int, once: bool) -> None:
    """A worker's life: one task, or task after task until it is stopped or its parent is gone."""
    near.close()
    with handled(say=False):  # the parent says it, once
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone at a terminal; the parent decides
        die_with_parent(parent)
        _do_tasks(work, pipe, once)


def _do_tasks(work: Callable[..., object], pipe: Connection, once: bool) -> None:
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            ending = Ending(work(task, lambda *what: pipe.send(("told", what))))
        except Exception as error:
            ending = Ending(error=portable(error))
        pipe.send(("ended", ending))
        if once:
            return


def portable(error: Exception) -> Exception:
    """The error with its traceback as a note, in a form that gets through a pipe."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(trace)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class makes of it
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(trace)
    return error


def die_with_parent(parent: int, by: int = signal.SIGTERM) -> None:
    """Has the kernel send this signal when the parent is gone, which nothing else tells where it was killed by signal 9."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, by)  # PR_SET_PDEATHSIG of linux/prctl.h
    if os.getppid() != parent:
        sys.exit(128 + by)


def stop(processes: Sequence[BaseProcess]) -> None:
    """Ends them: asked by SIGTERM, and after KILL_SECONDS by SIGKILL."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    until = time.monotonic() + KILL_SECONDS
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
