"""Memory and cores that this process may use: limits of the machine, of control groups (version 1 and 2) and of ulimit.

Also the memory that other processes use, and how many tasks run at once.
"""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

SHARE = 0.95  # of the free memory; the rest is for the kernel and for memory that RLIMIT_DATA does not count
# Environment variable with the soft RLIMIT_DATA before `bound` lowered it: child processes inherit the lower limit.
GIVEN = "GT_BENCH_GIVEN_RLIMIT_DATA"
PROCESS, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_total() -> int:
    """Return the bytes beyond which the kernel kills: of the machine, or of a control group around this process."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _memory_groups())])


def memory_limit() -> int:
    """Return the bytes that this process may use: `memory_total`, or a lower ulimit."""
    soft = [resource.getrlimit(resource.RLIMIT_AS)[0], _given_data_limit()]
    return min([memory_total(), *(limit for limit in soft if limit != resource.RLIM_INFINITY)])


def memory_free() -> int:
    """Return the bytes that are free on the machine and in each control group; file caches count as free."""
    return max(0, min([psutil.virtual_memory().available, *(limit - used for limit, used in _memory_groups())]))


def oom_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out, on this machine since it started."""
    lines = (_read(Path("/proc/vmstat")) or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def available_mib() -> float:
    """Return `memory_free` in MiB."""
    return memory_free() / 2**20


def cores() -> int:
    """Return the number of cores that affinity and control groups grant to this process."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *_cpu_quotas()]))


def at_once(parallel: int | str, tasks: int, threads: int = 1, gpu: bool = False) -> int:
    """Return how many tasks run at once.

    Args:
        parallel: the setting `run.parallel`: a number or "auto".
        tasks: number of tasks.
        threads: threads of each task.
        gpu: whether the tasks use the GPU; "auto" then means one at a time.
    """
    if sys.platform != "linux":
        return 1
    wanted = parallel if isinstance(parallel, int) else 1 if gpu else cores() // threads
    return max(1, min(wanted, tasks))


def peak_mib(pid: int | None) -> float:
    """Return the peak memory in MiB of a process and its living descendants; 0 for None."""
    return sum(status_kib(p, "VmHWM:") for p in family(pid)) / 1024


def resident_mib(pid: int | None) -> float:
    """Return the resident memory in MiB of a process and its living descendants; 0 for None."""
    return sum(status_kib(p, "VmRSS:") for p in family(pid)) / 1024


def family(pid: int | None) -> list[int]:
    """Return the ids of a process and its descendants; an empty list for None."""
    pids = [] if pid is None else [pid]
    for parent in pids:
        pids += [int(child) for child in (_read(Path(f"/proc/{parent}/task/{parent}/children")) or "").split()]
    return pids


def bound(share: float = 1.0, pid: int | None = None) -> None:
    """Limit the memory of a process, so that a larger allocation raises an error instead of a kill by the kernel.

    Args:
        share: part of the memory that is free in the control groups.
        pid: one of several worker processes that share the memory. Memory that is free on the machine then counts too:
            running out of memory is no result yet. None: this process, whose result must not depend on the other
            processes of the machine.
    """
    if sys.platform != "linux":
        return
    given, hard = _given_data_limit(), resource.getrlimit(resource.RLIMIT_DATA)[1]
    os.environ.setdefault(GIVEN, str(given))
    total = psutil.virtual_memory().total
    free = memory_free() if pid else max(0, min([total, *(limit - used for limit, used in _memory_groups())]))
    limit = min(int(SHARE * total), _data_bytes(pid or os.getpid()) + int(SHARE * share * free))
    wanted = limit if given == resource.RLIM_INFINITY else min(limit, given)
    with contextlib.suppress(OSError, ValueError):  # the process has ended
        resource.prlimit(pid or 0, resource.RLIMIT_DATA, (wanted, hard))


def unbound() -> None:
    """Undo `bound` in this process, after its training: libraries that are imported later need address space."""
    if sys.platform != "linux":
        return
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.prlimit(0, resource.RLIMIT_DATA, (_given_data_limit(), hard))


def _given_data_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = int(os.environ.get(GIVEN, soft))
    return hard if given == resource.RLIM_INFINITY else given if hard == resource.RLIM_INFINITY else min(given, hard)


def _data_bytes(pid: int) -> int:
    """Return the bytes that RLIMIT_DATA counts for a process; 0 if it has ended."""
    return status_kib(pid, "VmData:") << 10


def status_kib(pid: int, key: str) -> int:
    """Return a value in KiB of /proc/PID/status, for example of "VmHWM:"; 0 if the process has ended."""
    lines = (_read(Path(f"/proc/{pid}/status")) or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(key))


def _groups(controller: str) -> Iterator[tuple[int, Path]]:
    """Yield (version, folder) of each control group of this process, the innermost first."""
    for line in (_read(PROCESS) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = ROOT
        if controllers:
            base = ROOT / controllers if (ROOT / controllers).is_dir() else ROOT / controller
        # In a container the path may be that of the host; the container's own group is then at the root.
        path = base / group.strip("/")
        for folder in (path, *path.parents):
            yield (1 if controllers else 2), folder
            if folder == base:
                break


def _memory_groups() -> list[tuple[int, int]]:
    """Return (limit, used bytes without caches) of each control group that has a limit."""
    groups = []
    for version, folder in _groups("memory"):
        limit, used = (
            ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        if (most := _number(folder / limit)) is not None:
            key = "inactive_file" if version == 2 else "total_inactive_file"
            stat = dict(
                line.split() for line in (_read(folder / "memory.stat") or "").splitlines() if len(line.split()) == 2
            )
            groups.append((most, max(0, (_number(folder / used) or 0) - int(stat.get(key, 0)))))
    return groups


def _cpu_quotas() -> list[int]:
    quotas = []
    for version, folder in _groups("cpu"):
        if version == 2:
            quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
        else:
            quota, period = (_read(folder / f"cpu.cfs_{what}_us") or "-1" for what in ("quota", "period"))
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max" or -1: no limit
            quotas += [int(quota) // int(period)] if int(quota) > 0 else []
    return quotas


def _number(path: Path) -> int | None:
    with contextlib.suppress(ValueError):  # "max": no limit
        return int(_read(path) or "")
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
