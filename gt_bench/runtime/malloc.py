"""Allocation of CPU memory: glibc reuses freed memory for the next tensor, unless that makes the process grow."""

import ctypes
import sys
import threading
import time

# Constants of malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
LARGE = 32 * 2**20  # bytes; the largest threshold that glibc accepts
SLACK = 2**30
SECONDS = 0.5  # between two checks
WATCH = "allocations"


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h (glibc 2.33 on)."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def keep_allocations() -> str:
    """Tell glibc to reuse freed memory instead of mapping every large tensor again: steps are up to 2.6 times faster.

    If batch sizes vary, freed blocks do not fit later tensors, and the fragmented heap grows to many times the used
    memory. A thread watches for that and then calls `give_back`.

    Returns:
        Description of the allocator for records.
    """
    libc = _glibc()
    if libc is None:
        return "system default"
    done = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and libc.mallopt(M_TOP_PAD, 2**28)
    watched = any(thread.name == WATCH for thread in threading.enumerate())  # threads do not survive a fork
    if done and not watched and hasattr(libc, "mallinfo2"):
        threading.Thread(target=_watch, daemon=True, name=WATCH).start()
    return "glibc, freed memory kept" if done else "system default"


def give_back() -> None:
    """Return freed memory to the system and map each allocation of 32 MiB or more individually from now on.

    This prevents fragmentation, but the kernel must zero each mapping.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(M_MMAP_MAX, 2**16)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.malloc_trim(0)


def scattered(heap: int, most_used: int) -> bool:
    """Return whether a heap is fragmented: more than half of its bytes were never in use at the same time.

    Args:
        heap: size in bytes.
        most_used: largest number of bytes that were in use at the same time.
    """
    return heap > 2 * most_used + SLACK


def heap() -> tuple[int, int]:
    """Return the size of glibc's heap and its used part, in bytes."""
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
