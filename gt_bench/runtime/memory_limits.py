"""Memory and cores that this process may use: of the machine, of its control groups (version 1 and 2), and by its own limits (ulimit)."""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

SHARE = 0.95  # of what is free: the kernel and what is not counted as data need some
# the soft RLIMIT_DATA before `bound` lowered it, for the processes that inherit the lower one
GIVEN = "GT_BENCH_GIVEN_RLIMIT_DATA"
PROCESS, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_total() -> int:
    """Bytes beyond which the kernel kills: of the machine, or of a control group around this process."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _memory_groups())])


def memory_limit() -> int:
    """Bytes that this process may have: `memory_total`, or a limit of its own that somebody set."""
    soft = [resource.getrlimit(resource.RLIMIT_AS)[0], _given_data_limit()]
    return min([memory_total(), *(limit for limit in soft if limit != resource.RLIM_INFINITY)])


def memory_free() -> int:
    """Bytes that can still be taken, of the machine and of each control group; its caches count as free."""
    return max(0, min([psutil.virtual_memory().available, *(limit - used for limit, used in _memory_groups())]))


def cores() -> int:
    """Cores that this process may use: those it is bound to, and what its control groups grant of them."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *_cpu_quotas()]))


def bound(share: float = 1.0, pid: int | None = None) -> None:
    """Makes an allocation beyond `share` of the free memory an error, which becomes a record, and not a kill by the kernel.

    Args:
        share: of what others in the same control groups leave; it shrinks as they grow.
        pid: of one of several processes of ours that share the memory, where running out of it is no result yet: what the machine has free
            counts too. None: of this process; what others on the machine hold at this moment says nothing of its run.
    """
    if sys.platform != "linux":
        return
    given, hard = _given_data_limit(), resource.getrlimit(resource.RLIMIT_DATA)[1]
    os.environ.setdefault(GIVEN, str(given))
    total = psutil.virtual_memory().total
    free = memory_free() if pid else max(0, min([total, *(limit - used for limit, used in _memory_groups())]))
    limit = min(int(SHARE * total), _data_bytes(pid or os.getpid()) + int(SHARE * share * free))
    wanted = limit if given == resource.RLIM_INFINITY else min(limit, given)
    with contextlib.suppress(OSError, ValueError):  # it has ended
        resource.prlimit(pid or 0, resource.RLIMIT_DATA, (wanted, hard))


def _given_data_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = int(os.environ.get(GIVEN, soft))
    return hard if given == resource.RLIM_INFINITY else given if hard == resource.RLIM_INFINITY else min(given, hard)


def _data_bytes(pid: int) -> int:
    """What RLIMIT_DATA counts of a process; 0 of one that has ended."""
    lines = (_read(Path(f"/proc/{pid}/status")) or "").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmData:")) << 10


def _groups(controller: str) -> Iterator[tuple[int, Path]]:
    """(version, folder) of the control groups that this process is in, the innermost first."""
    for line in (_read(PROCESS) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = (
            ROOT / controllers
            if controllers and (ROOT / controllers).is_dir()
            else ROOT / controller
            if controllers
            else ROOT
        )
        # inside a container the group's path may be the host's: then the container's own group is at the root
        path = base / group.strip("/")
        for folder in (path, *path.parents):
            yield (1 if controllers else 2), folder
            if folder == base:
                break


def _memory_groups() -> list[tuple[int, int]]:
    """(limit, bytes in use without caches) of each group with a limit."""
    found = []
    for version, folder in _groups("memory"):
        limit, used = (
            ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        if (most := _number(folder / limit)) is not None:
            key = "inactive_file" if version == 2 else "total_inactive_file"
            stat = dict(
                line.split() for line in (_read(folder / "memory.stat") or "").splitlines() if len(line.split()) == 2
            )
            found.append((most, max(0, (_number(folder / used) or 0) - int(stat.get(key, 0)))))
    return found


def _cpu_quotas() -> list[int]:
    found = []
    for version, folder in _groups("cpu"):
        if version == 2:
            quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
        else:
            quota, period = (_read(folder / f"cpu.cfs_{what}_us") or "-1" for what in ("quota", "period"))
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max", and -1: no limit
            found += [int(quota) // int(period)] if int(quota) > 0 else []
    return found


def _number(path: Path) -> int | None:
    with contextlib.suppress(ValueError):  # "max": no limit
        return int(_read(path) or "")
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
