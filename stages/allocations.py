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
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def keep_allocations() -> str:
    """Tells glibc to keep freed memory instead of mapping every large tensor anew (up to 2.6 times of a CPU training step); returns what was set.

    Where tensors of every step have other sizes, what is kept does not fit them, and the heap would grow to many times of what is used: a thread
    looks, and has large tensors mapped one by one from then on (`give_back`).
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
    """Returns freed memory to the system; tensors of 32 MiB and more are mapped one by one from now on, which costs their zeroing and fits always."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_MMAP_MAX, 2**16)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.malloc_trim(0)


def scattered(heap: int, most_used: int) -> bool:
    """Whether a heap of so many bytes, of which at most `most_used` were in use at once, is more holes than tensors."""
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
