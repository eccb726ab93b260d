"""SIGTERM and SIGINT (Ctrl-C), in this process and in its child processes.

A run that is stopped finishes its epoch and saves a checkpoint. The process then exits with status 143 or 130 and
prints one line. A run that resumes from the checkpoint computes the same numbers as one that was never stopped.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

# Seconds that an epoch may still take: less than schedulers and `docker stop` (10 s) wait before they kill.
GRACE = 7.0
# Seconds in which further signals are the same request: `timeout` and schedulers signal a process, and then its group.
TOGETHER = 1.0

# How a signal that ends a process is described.
CAUSES = {signal.SIGKILL: "probably out of memory", signal.SIGINT: "Ctrl-C", signal.SIGTERM: "terminated"}

_pending: tuple[int, float] | None = None  # the signal and the time when it arrived
_deferred = False
_say = True


class Stopped(SystemExit):
    """The process received a signal to stop. `code` is 128 plus the number of the signal, as in a shell."""


@contextlib.contextmanager
def handled(say: bool = True) -> Iterator[None]:
    """Handle SIGTERM and SIGINT inside the block; use it in the main thread of an entry point.

    Args:
        say: whether to print a line when the process stops.
    """
    global _pending, _say
    _say = say
    before = {number: signal.signal(number, _receive) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        _pending = None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defer a signal inside the block until `pending` is checked or `poll` raises; a later signal stops at once."""
    global _deferred
    if _pending:
        leave()
    _deferred = True
    try:
        yield
    finally:
        _deferred = False


def pending() -> bool:
    """Return whether a deferred signal is pending."""
    return _pending is not None


def poll() -> None:
    """Raise `Stopped` if a signal has been pending for longer than `GRACE`."""
    if _pending is not None and time.monotonic() - _pending[1] > GRACE:
        leave()


def leave() -> None:
    """Print which signal stops the process, and raise `Stopped`."""
    number = signal.Signals(_pending[0])  # type: ignore[index]
    if _say:
        print(f"stopped by {number.name}; run the same command again to resume", file=sys.stderr, flush=True)
    raise Stopped(128 + number)


def _receive(number: int, frame: object) -> None:
    global _pending
    if _pending and time.monotonic() - _pending[1] < TOGETHER:
        return
    first, _pending = _pending is None, (number, time.monotonic())
    if not (first and _deferred):
        leave()


def killed_by(number: int) -> str:
    """Describe the end of a process by a signal: `killed by signal 9: probably out of memory`."""
    if number not in signal.valid_signals():
        return f"killed by signal {number}"
    return f"killed by signal {number}: {CAUSES.get(signal.Signals(number), signal.Signals(number).name)}"


def silence_interrupts() -> None:
    """Let Ctrl-C end this process without a traceback, for example while it imports its code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def restore_interrupts() -> None:
    """Undo `silence_interrupts`: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a child process: a terminal sends it to all processes, and the parent decides what to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start a child process inside the block: Ctrl-C reaches it only after it calls `accept_interrupts`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_interrupts() -> None:
    """Let Ctrl-C end this child process without a traceback, also a Ctrl-C that arrived before this call."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def die_with_parent(parent: int, by: int = signal.SIGTERM) -> None:
    """Ask the kernel to send a signal to this process when its parent ends, also when the parent is killed by SIGKILL.

    Args:
        parent: process id of the parent. If the parent has already ended, this process exits.
        by: the signal.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, by)  # PR_SET_PDEATHSIG of linux/prctl.h
    if os.getppid() != parent:
        os._exit(128 + by)  # a process pool would print a traceback of SystemExit
