"""Run tasks in parallel on one machine, each in a forked process, as many at once as cores and memory allow.

A fork takes milliseconds where a new interpreter needs seconds to import torch, and it shares data that was read
before. It is safe only while this process has not started a team of OpenMP threads or used a GPU, so the pool is
created before that, and only on Linux.
"""

import contextlib
import errno
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

from gt_bench.runtime.resources import available_mib, bound, family, peak_mib, resident_mib
from gt_bench.runtime.signals import GRACE, die_with_parent, handled, ignore_interrupts, killed_by
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import WriteError

MARGIN = 1.1  # of memory: later epochs may need a little more than the first ones, which were measured
POLL_SECONDS = 0.2  # between two checks of memory while tasks wait
KILL_SECONDS = GRACE + 1  # from SIGTERM to SIGKILL: a run may finish its epoch and save a checkpoint
TaskT = TypeVar("TaskT", bound=Hashable)  # description of a task; must pickle


class Lost(UserError, RuntimeError):
    """Tasks without a result. The message names the failure of each task and what to do."""


class Killed(Lost):
    """The process of a run was killed by SIGKILL, probably by the kernel because memory ran out."""


@dataclass
class TaskResult:
    """Outcome of a task: the `value` it returned, the `error` it raised, or the exit `status` of its process."""

    value: object = None
    error: Exception | None = None
    status: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the task returned a value."""
        return self.error is None and self.status is None

    @property
    def died(self) -> str:
        """How the process ended, in words."""
        if self.status is None or self.status >= 0:
            return f"its process ended with status {self.status}"
        return killed_by(-self.status)

    @property
    def killed(self) -> bool:
        """Whether the process was killed by SIGKILL, as the kernel does when memory runs out."""
        return self.status == -signal.SIGKILL or isinstance(self.error, Killed)


@dataclass
class Worker(Generic[TaskT]):
    """A process, this end of its pipe, and its current task."""

    process: BaseProcess
    pipe: Connection
    task: TaskT | None = None


@dataclass
class WorkerPool(Generic[TaskT]):
    """Up to `max_workers` processes, each of which runs one task at a time.

    Use it as a context manager: no process is left when the block ends.

    Args:
        work: called in a process as `work(task, tell)`. Its result must pickle. `tell(*what)` sends a message to
            `on_message` of `run`.
        max_workers: number of processes.
        fresh: start a new process for each task. By default all processes start at once and run several tasks.
        say: called with the reason if memory allows fewer than `max_workers`.
        check_memory: False if tasks do not mainly use the memory of this machine.
    """

    work: Callable[[TaskT, Callable[..., None]], object]
    max_workers: int
    fresh: bool = False
    say: Callable[[str], None] = print
    check_memory: bool = True
    largest: float = 0.0  # peak memory in MiB of a worker and its descendants so far
    _idle: list[Worker[TaskT]] = field(default_factory=list)
    _busy: list[Worker[TaskT]] = field(default_factory=list)
    _said: bool = False

    def __enter__(self) -> "WorkerPool[TaskT]":
        if not self.fresh:
            self._idle = [self._fork() for _ in range(self.max_workers)]
        return self

    def __exit__(self, *_: object) -> None:
        stop([worker.process for worker in (*self._idle, *self._busy)])
        self._idle, self._busy = [], []

    def one_at_a_time(self) -> None:
        """Run later tasks one after the other, each in a new process that has all of the memory."""
        stop([worker.process for worker in self._idle])
        self.max_workers, self.fresh, self._idle = 1, True, []

    @property
    def tasks(self) -> list[TaskT]:
        """The running tasks."""
        return [worker.task for worker in self._busy if worker.task is not None]

    def run(
        self,
        tasks: Sequence[TaskT],
        on_message: Callable[..., None] = lambda task, *what: None,
        may_add: Callable[[list[TaskT]], bool] = lambda waiting: True,
        is_ready: Callable[[TaskT, list[TaskT]], bool] = lambda task, unfinished: True,
        on_done: Callable[[TaskT, TaskResult], None] = lambda task, result: None,
        deadline: float | None = None,
        is_needed: Callable[[TaskT], bool] = lambda task: True,
    ) -> dict[TaskT, TaskResult]:
        """Run all tasks; a task that fails does not stop the others, but a disk that cannot be written stops new tasks.

        Args:
            tasks: in the order in which they should start.
            on_message: called here as `on_message(task, *what)` for each `tell(*what)` of a task.
            may_add: called with the waiting tasks; whether to start another task next to the running ones.
            is_ready: called as `is_ready(task, unfinished)`; whether a task may start while others are unfinished.
            on_done: called when a task has ended.
            deadline: time by `time.monotonic()` at which to return; the end of the context stops running tasks.
            is_needed: called as `is_needed(task)`; a waiting task that is no longer needed is dropped.

        Returns:
            The result of each task that has ended.
        """
        waiting = list(tasks)
        results: dict[TaskT, TaskResult] = {}
        while (waiting or self._busy) and (deadline is None or time.monotonic() < deadline):
            waiting = [task for task in waiting if is_needed(task)]
            while (task := self._next(waiting, may_add, is_ready)) is not None:
                self._start(task)
                waiting.remove(task)
            if not self._busy:  # all workers were killed
                break
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready_pipes = wait(
                [worker.pipe for worker in self._busy],
                POLL_SECONDS if waiting or (self.check_memory and self._busy[1:]) else left,
            )
            self._share_memory()
            for pipe in ready_pipes:
                worker = next(w for w in self._busy if w.pipe is pipe)
                task, message = cast(TaskT, worker.task), self._receive(worker)
                if isinstance(message, TaskResult):
                    results[task] = message
                    on_done(task, message)
                    error = message.error
                    if isinstance(error, WriteError) or (isinstance(error, OSError) and error.errno != errno.ENOMEM):
                        waiting.clear()
                else:
                    on_message(task, *message)
        return results

    def _next(
        self,
        waiting: list[TaskT],
        may_add: Callable[[list[TaskT]], bool],
        is_ready: Callable[[TaskT, list[TaskT]], bool],
    ) -> TaskT | None:
        """Return the task to start now, or None."""
        if not waiting or not (self._idle or self.fresh) or len(self._busy) >= self.max_workers:
            return None
        unfinished = [*waiting, *self.tasks]
        task = next((t for t in waiting if is_ready(t, [u for u in unfinished if u != t])), None)
        if not self._busy:
            return waiting[0] if task is None else task
        return task if task is not None and may_add(list(waiting)) and self._memory_allows() else None

    def _start(self, task: TaskT) -> None:
        worker = self._fork() if self.fresh else self._idle.pop(0)
        worker.task = task
        self._busy.append(worker)
        self._share_memory()
        with contextlib.suppress(BrokenPipeError):  # the idle worker died; `_receive` notices
            worker.pipe.send(task)

    def _receive(self, worker: Worker[TaskT]) -> tuple[object, ...] | TaskResult:
        """Return a message of a worker or the result of its task."""
        self.largest = max(self.largest, peak_mib(worker.process.pid))
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._busy.remove(worker)
            # After a kill for lack of memory, run one task fewer at once.
            self.max_workers = max(1, self.max_workers - (worker.process.exitcode == -signal.SIGKILL))
            return TaskResult(status=worker.process.exitcode)
        if kind == "message":
            return content
        self._busy.remove(worker)
        if self.fresh:
            worker.process.join()
        else:
            worker.task = None
            self._idle.append(worker)
        return content

    def _share_memory(self) -> None:
        """Limit the memory of each busy worker to its share, so that it gets an error before the kernel kills it."""
        if self.check_memory and sys.platform == "linux":
            for worker in self._busy:
                for pid in family(worker.process.pid):  # a child process of the worker may compute
                    bound(1 / len(self._busy), pid)

    def _memory_allows(self) -> bool:
        """Return whether one more worker fits into memory if the busy ones still grow to the largest peak."""
        if not self.check_memory:
            return True
        usage = [(peak_mib(w.process.pid), resident_mib(w.process.pid)) for w in self._busy]
        self.largest = max([self.largest, *(peak for peak, _ in usage)])
        need = MARGIN * self.largest
        free = available_mib() - sum(max(0.0, need - resident) for _, resident in usage)
        if free < need and not self._said:
            self._said = True
            self.say(
                f"memory allows {len(self._busy)} of {self.max_workers} workers: each needs up to {need:,.0f} MiB, "
                f"and {max(0.0, free):,.0f} MiB are free"
            )
        return free >= need

    def _fork(self) -> Worker[TaskT]:
        context = get_context("fork")
        near, far = context.Pipe()
        process = context.Process(target=_serve, args=(self.work, far, near, os.getpid(), self.fresh))
        process.start()
        far.close()
        return Worker(process, near)


def _serve(work: Callable[..., object], pipe: Connection, near: Connection, parent: int, once: bool) -> None:
    """Run tasks in a worker process: one, or one after the other until it is stopped or its parent is gone."""
    near.close()
    with handled(say=False):  # the parent prints it once
        ignore_interrupts()
        die_with_parent(parent)
        _run_tasks(work, pipe, once)


def _run_tasks(work: Callable[..., object], pipe: Connection, once: bool) -> None:
    while True:
        try:
            task = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            result = TaskResult(work(task, lambda *what: pipe.send(("message", what))))
        except Exception as error:
            result = TaskResult(error=portable(error))
        try:
            pipe.send(("ended", result))
        except BrokenPipeError:  # the parent is gone or has stopped listening
            return
        if once:
            return


def portable(error: Exception) -> Exception:
    """Return the error with its traceback as a note, in a form that pickles."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(trace)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # its class may raise anything
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.add_note(trace)
    return error


def stop(processes: Sequence[BaseProcess]) -> None:
    """Send SIGTERM to the processes, and SIGKILL to those that still run after `KILL_SECONDS`."""
    for process in processes:
        if process.is_alive():
            process.terminate()
    deadline = time.monotonic() + KILL_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
