"""How many at once, by the cores and the memory that this process may use: of the machine, and of its control group."""

import os
import sys
from pathlib import Path


def cores() -> int:
    """Cores that this process may use: those it is bound to, and what its control group grants of them."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [text.split() for folder in _control_groups() if (text := _read(folder / "cpu.max"))]
    granted = [int(int(quota) / int(period)) for quota, period in quotas if quota != "max"]
    return max(1, min([bound, *granted]))


def at_once(parallel: int | str, tasks: int, threads: int = 1, gpu: bool = False) -> int:
    """How many of `tasks`, each with so many threads, run at once by the setting `run.parallel`."""
    if sys.platform != "linux":
        return 1
    wanted = parallel if isinstance(parallel, int) else 1 if gpu else cores() // threads
    return max(1, min(wanted, tasks))


def available_mib() -> float:
    """Memory that can still be taken: of the machine, and of the control group."""
    import psutil

    free = [psutil.virtual_memory().available]
    for folder in _control_groups():
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit and used and limit.strip() != "max":
            free.append(int(limit) - int(used))
    return min(free) / 2**20


def peak_mib(pid: int | None) -> float:
    """The largest memory of a process, with its own processes, as far as they are still there; of none: 0."""
    return sum(_status_mib(p, "VmHWM:") for p in _family(pid))


def resident_mib(pid: int | None) -> float:
    """Memory of a process and its children; of none: 0."""
    return sum(_status_mib(p, "VmRSS:") for p in _family(pid))


def _family(pid: int | None) -> list[int]:
    found = [] if pid is None else [pid]
    for one in found:
        found += [int(child) for child in (_read(Path(f"/proc/{one}/task/{one}/children")) or "").split()]
    return found


def _status_mib(pid: int, key: str) -> float:
    lines = (_read(Path(f"/proc/{pid}/status")) or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def _control_groups() -> list[Path]:
    """Folders of this process's control group (version 2) and of those it is within."""
    root = Path("/sys/fs/cgroup")
    own = [line[3:] for line in (_read(Path("/proc/self/cgroup")) or "").splitlines() if line.startswith("0::")]
    inner = root / own[0].strip("/") if own else root
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
