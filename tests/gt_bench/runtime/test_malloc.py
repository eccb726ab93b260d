"""Where tensors are allocated before and after the heap is found to be fragmented."""

import platform
import subprocess
import sys

import pytest

from gt_bench.runtime.malloc import heap, scattered

MIB = 2**20
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
# In a new process. The test sets the size of the heap, because malloc places tensors differently in each environment.
STEPS = """
import ctypes, threading, time, torch
from gt_bench.runtime import malloc as allocations

allocations.SECONDS = 0.01
grown = threading.Event()
allocations.heap = lambda: (4 * 2**30 if grown.is_set() else 2**30, 2**28)
look = ctypes.CDLL(None).mallinfo2
look.restype = allocations._Mallinfo
watching = lambda: sum(thread.name == allocations.WATCH for thread in threading.enumerate())

def mapped():
    before = look().hblkhd
    x = torch.zeros(33 * 2**18)
    return (look().hblkhd - before) // 2**20

keep = allocations.keep_allocations()
assert keep == allocations.keep_allocations()
time.sleep(0.1)
at_first = look().hblkhd
said = [keep, watching(), mapped()]
grown.set()
waits = time.monotonic() + 20
while watching() and time.monotonic() < waits:
    time.sleep(0.01)
print(*said, watching(), mapped(), look().hblkhd - at_first, sep="; ")
"""


@pytest.mark.slow
def test_once_a_heap_is_scattered_large_tensors_are_mapped_each_and_given_back():
    run = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    said, watched, mapped_before, watched_after, mapped_after, left = run.stdout.strip().split("; ")
    assert (said, watched, mapped_before) == ("glibc, freed memory kept", "1", "0")
    assert (watched_after, mapped_after, left) == ("0", "33", "0")


def test_a_heap_is_scattered_where_more_than_half_of_it_is_never_used():
    assert not scattered(1500 * MIB, 240 * MIB)
    assert scattered(1600 * MIB, 240 * MIB)
    assert not scattered(16_000 * MIB, 8_000 * MIB)


def test_the_heap_holds_what_is_used():
    size, used = heap()
    assert 0 < used <= size
