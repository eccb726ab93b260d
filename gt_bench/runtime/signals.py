"""SIGTERM and SIGINT: a run ends after its epoch with a checkpoint, a process with status 143 or 130 and one line.

Nothing of it is decisive: what goes on from the checkpoint ends as if nobody had stopped it.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator

# seconds that an epoch may still take, below what schedulers and `docker stop` (10 s) leave before they kill
GRACE = 7.0

_asked: tuple[int, float] | None = None  # the signal, and when it came
_deferred = False
_say = True


class Stopped(SystemExit):
    """The process was asked to stop; `code` is 128 and the signal's number, as a shell has it."""


@contextlib.contextmanager
def handled(say: bool = True) -> Iterator[None]:
    """Inside, the two signals stop the process in order, with one line where it is to `say` so. For the main thread of an entry point."""
    global _asked, _say
    _say = say
    before = {number: signal.signal(number, _ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        _asked = None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Inside, a signal is kept until `asked` is looked at, or `poll` after GRACE; a second one stops at once."""
    global _deferred
    if _asked:
        leave()
    _deferred = True
    try:
        yield
    finally:
        _deferred = False


def asked() -> bool:
    """Whether a signal waits."""
    return _asked is not None


def poll() -> None:
    """Raises Stopped where a signal has waited for longer than GRACE."""
    if _asked is not None and time.monotonic() - _asked[1] > GRACE:
        leave()


def leave() -> None:
    """Says what stops the process, and raises Stopped."""
    number = signal.Signals(_asked[0])  # type: ignore[index]
    if _say:
        print(f"stopped by {number.name}; the same command continues where it was", file=sys.stderr, flush=True)
    raise Stopped(128 + number)


def _ask(number: int, frame: object) -> None:
    global _asked
    first, _asked = _asked is None, (number, time.monotonic())
    if not (first and _deferred):
        leave()
