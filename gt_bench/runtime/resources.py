"""How many at once, by the cores and the memory that this process may use: of the machine, and of its control group."""

import sys
from pathlib import Path

from gt_bench.runtime.memory_limits import cores, memory_free


def at_once(parallel: int | str, tasks: int, threads: int = 1, gpu: bool = False) -> int:
    """How many of `tasks`, each with so many threads, run at once by the setting `run.parallel`."""
    if sys.platform != "linux":
        return 1
    wanted = parallel if isinstance(parallel, int) else 1 if gpu else cores() // threads
    return max(1, min(wanted, tasks))


def available_mib() -> float:
    """Memory that can still be taken: of the machine, and of the control group."""
    return memory_free() / 2**20


def peak_mib(pid: int | None) -> float:
    """The largest memory of a process, with its own processes, as far as they are still there; of none: 0."""
    return sum(_status_mib(p, "VmHWM:") for p in family(pid))


def resident_mib(pid: int | None) -> float:
    """Memory of a process and its children; of none: 0."""
    return sum(_status_mib(p, "VmRSS:") for p in family(pid))


def family(pid: int | None) -> list[int]:
    """A process and those that it started, directly or not."""
    found = [] if pid is None else [pid]
    for one in found:
        found += [int(child) for child in (_read(Path(f"/proc/{one}/task/{one}/children")) or "").split()]
    return found


def _status_mib(pid: int, key: str) -> float:
    lines = (_read(Path(f"/proc/{pid}/status")) or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
