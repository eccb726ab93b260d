"""Exit status of a command: one line and status 1 for a user error, 130 or 143 for a stop, a traceback for a bug."""

import errno
import functools
import sys
from collections.abc import Callable, Sequence
from typing import ParamSpec

from gt_bench.runtime.resources import memory_limit
from gt_bench.runtime.signals import restore_interrupts
from gt_bench.runtime.startup import use_utf8
from gt_bench.utils.errors import UserError, missing
from gt_bench.utils.format import print_text
from gt_bench.utils.io import DISK_FULL, FIX_AND_RETRY, is_disk_full

P = ParamSpec("P")
# Errors of reading or writing a file that its owner can fix.
FIXABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def status_of(work: Callable[[], int | None]) -> int:
    """Return the exit status of `work()`: its result, or the status of its error after the error was printed."""
    restore_interrupts()
    use_utf8()
    try:
        return work() or 0
    except UserError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "stages", "gt_models", "gt_bench"):  # a bug
            raise
        return _failed(str(missing(error)))
    except OSError as error:
        if is_disk_full(error):
            return _failed(DISK_FULL)
        if error.errno == errno.ENOMEM:
            return _failed(_out_of_memory())
        if error.errno in FIXABLE and error.filename is not None:
            return _failed(f"{error.filename}: {error.strerror}; {FIX_AND_RETRY}")
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        return _failed(_out_of_memory())
    except KeyboardInterrupt:
        print_text("stopped; run the same command again to resume", file=sys.stderr)
        return 130


def _failed(message: str) -> int:
    print_text(f"error: {message}", file=sys.stderr)
    return 1


def _out_of_memory() -> str:
    return (
        f"out of memory: this process may use {memory_limit() // 2**20:,} MiB, the lowest limit of machine, control "
        "group and ulimit; free memory or raise that limit, and run the same command again"
    )


def usage(text: str, arguments: Sequence[str]) -> int:
    """Print the usage of a command and return its exit status: 0 for `--help`, 2 for invalid arguments."""
    print_text(text)
    return 0 if {"-h", "--help"} & set(arguments) else 2


def ends_in_order(command: Callable[P, None]) -> Callable[P, None]:
    """Decorate a typer command so that it exits with `status_of`."""

    @functools.wraps(command)
    def ending(*args: P.args, **kwargs: P.kwargs) -> None:
        from typer import Exit

        if status := status_of(lambda: command(*args, **kwargs)):
            raise Exit(status)

    return ending
