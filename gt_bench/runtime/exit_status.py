"""How a command ends: what a user can mend in one line and status 1, a stop in status 130 or 143, a bug in its traceback."""

import errno
import functools
import signal
import sys
from collections.abc import Callable, Sequence
from typing import ParamSpec

from gt_bench.runtime.startup import use_utf8
from gt_bench.utils.errors import UserError, missing
from gt_bench.utils.format import print_text

P = ParamSpec("P")
# what keeps a file from being read or written that its owner can mend
OF_A_FILE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def status_of(work: Callable[[], int | None]) -> int:
    """The exit status of `work`: what it returns, or what its error comes to, having said it."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    ):  # as gt_bench/runtime/startup.py sets it while a stage is imported
        signal.signal(signal.SIGINT, signal.default_int_handler)
    use_utf8()
    try:
        return work() or 0
    except UserError as error:
        print_text(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "stages", "gt_models", "gt_bench"):  # a bug
            raise
        print_text(f"error: {missing(error)}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            print_text(
                "error: the disk is full; free some space and run the same command again: it continues where it was",
                file=sys.stderr,
            )
        elif error.errno == errno.ENOMEM:
            return status_of(_out_of_memory)
        elif error.errno in OF_A_FILE and error.filename is not None:
            print_text(
                f"error: {error.filename}: {error.strerror}; mend that and run the same command again", file=sys.stderr
            )
        else:
            raise
        return 1
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        from gt_bench.runtime.memory_limits import memory_limit

        limit = memory_limit() // 2**20
        print_text(
            f"error: out of memory: {limit:,} MiB is the least of what the machine, its control group and ulimit grant this process; free some, or "
            "raise that limit, and run the same command again",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print_text("stopped; the same command continues where it was", file=sys.stderr)
        return 130


def _out_of_memory() -> None:
    raise MemoryError


def usage(text: str, arguments: Sequence[str]) -> int:
    """Prints how a command is called; its exit status: 0 where that was asked for, else 2, as for every command line that cannot be."""
    print_text(text)
    return 0 if {"-h", "--help"} & set(arguments) else 2


def ends_in_order(command: Callable[P, None]) -> Callable[P, None]:
    """A command of typer that ends by `status_of`."""

    @functools.wraps(command)
    def ending(*args: P.args, **kwargs: P.kwargs) -> None:
        from typer import Exit

        if status := status_of(lambda: command(*args, **kwargs)):
            raise Exit(status)

    return ending
