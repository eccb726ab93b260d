"""Freed memory on the CPU: kept by glibc for the next tensor, as long as that does not make the process grow."""

import ctypes
import sys
import threading
import time

# of malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
LARGE = 32 * 2**20  # bytes; the largest threshold that glibc takes
SLACK = 2**30
SECONDS = 0.5  # between two looks
WATCH = "allocations"


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h (glibc 2.33 on)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def keep_allocations() -> str:
    """Tells glibc to keep freed memory instead of mapping every large tensor anew (up to 2.6 times of a CPU training step); returns what was set.

    If batch sizes vary, kept blocks do not fit later tensors, and the fragmented heap grows to many times the memory in use. A thread watches for
    that; when it happens, large tensors get mappings of their own (`give_back`).
    """
    libc = _glibc()
    if libc is None:
        return "system default"
    done = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and libc.mallopt(M_TOP_PAD, 2**28)
    watched = any(thread.name == WATCH for thread in threading.enumerate())  # none of the parent's after a fork
    if done and not watched and hasattr(libc, "mallinfo2"):
        threading.Thread(target=_watch, daemon=True, name=WATCH).start()
    return "glibc, freed memory kept" if done else "system default"


def give_back() -> None:
    """Returns freed memory to the system; allocations of 32 MiB or more are mapped individually from then on: no fragmentation, but the
    kernel zeroes each."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_MMAP_MAX, 2**16)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.malloc_trim(0)


def scattered(heap: int, most_used: int) -> bool:
    """Whether a heap of so many bytes, of which at most `most_used` were in use at once, is fragmented: more than half of it was never in use at once."""
    return heap > 2 * most_used + SLACK


def heap() -> tuple[int, int]:
    """Bytes of glibc's heap, and those of them that are in use."""
    look = ctypes.CDLL(None).mallinfo2
    look.restype = _Mallinfo
    info = look()
    return info.arena, info.uordblks


def _watch() -> None:
    most_used = 0
    while True:
        size, used = heap()
        most_used = max(most_used, used)
        if scattered(size, most_used):
            give_back()
            return
        time.sleep(SECONDS)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") else None
