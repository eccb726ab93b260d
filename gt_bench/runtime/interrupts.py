"""Processes that Ctrl-C on a terminal, which reaches all of them, ends without a word: their parent says it."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def started_quietly() -> Iterator[None]:
    """A process that is started inside hears of Ctrl-C by `listen`, when it can end without a traceback of its imports."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen() -> None:
    """In the process: Ctrl-C ends it at once, also one that came before."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
