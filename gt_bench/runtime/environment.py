"""The measured part of a record: time, memory, machine. It does not affect the deterministic part."""

import contextlib
import importlib.metadata
import os
import platform
import re
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import threadpoolctl
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.records.run import Environment, Session
from gt_bench.runtime import checkout, resources

# Memory of a process on a GPU besides its tensors: CUDA context and kernels of libraries. An upper estimate.
GPU_CONTEXT = 768 * 2**20
COMPUTING = (
    "torch", "torch-geometric", "numpy", "scipy", "scikit-learn", "ogb", "numba", "llvmlite", "triton",
)  # fmt: skip


class Clock:
    """Seconds per kind of work, and sessions: a run that resumes adds to those of before.

    Args:
        device: name of the device, see `device_name`.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.totals = {"train": 0.0, "eval": 0.0, "test": 0.0}
        self.sessions = [Session(started=now(), commit=checkout.commit() or "unknown", device=device)]

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Add the seconds of the block to `totals[what]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.totals[what] += time.perf_counter() - start


class PeakMemory:
    """Peak memory in MiB since `start`: allocated on the GPU, or resident in this process."""

    def __init__(self, device: torch.device):
        self.device = device

    def start(self) -> None:
        """Reset the peak."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            with contextlib.suppress(OSError):  # kernels without this file report the peak since the process started
                Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")

    def read(self) -> float:
        """Return the peak in MiB."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        peak = resources.status_kib(os.getpid(), "VmHWM:")
        return (peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


class Usage:
    """Memory (MiB) and CPU use (percent of one core) of this process during a run.

    There is at most one point per second, after an epoch, and at most `MOST` points in all.
    """

    MOST = 200  # points

    def __init__(self, device: torch.device):
        self.device, self.process, self.every = device, psutil.Process(), 1.0
        self.points: dict[str, list[float]] = {"epoch": [], "memory_mib": [], "cpu_percent": []}
        self.last, self.busy, self.seen = time.monotonic(), time.process_time(), 0

    def epoch(self, epoch: int) -> None:
        """Report a finished epoch; adds a point if enough time has passed."""
        self.seen = epoch
        if time.monotonic() - self.last >= self.every:
            self._add()

    def read(self) -> dict[str, list[float]]:
        """Return all points, with one for the last epoch."""
        if self.seen and self.points["epoch"][-1:] != [self.seen]:
            self._add()
        return self.points

    def _add(self) -> None:
        moment, busy = time.monotonic(), time.process_time()
        gpu = self.device.type == "cuda"
        memory = torch.cuda.memory_allocated(self.device) if gpu else self.process.memory_info().rss
        share = 100 * (busy - self.busy) / max(moment - self.last, 1e-9)
        for name, value in (
            ("epoch", self.seen),
            ("memory_mib", round(memory / 2**20, 1)),
            ("cpu_percent", round(share, 1)),
        ):
            self.points[name].append(value)
        self.last, self.busy = moment, busy
        if len(self.points["epoch"]) >= self.MOST:
            self.points = {name: values[1::2] for name, values in self.points.items()}
            self.every *= 2


def now() -> str:
    """Return the time in UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def choose_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is the first GPU if there is one, else the CPU.

    A GPU has an index, which some functions of `torch.cuda` require.

    Raises:
        RecipeError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        problem = f"is {name!r}, but torch sees no GPU here"
        raise RecipeError(problem, file="params.yaml", place="run.device", value=name, remedy="set it to auto or cpu")
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


def device_name(device: torch.device) -> str:
    """Return the name of the device in records."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def memory_limit_mib(device: torch.device) -> float:
    """Return the memory of the device in MiB; for the CPU the lowest limit of machine, control group and ulimit."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 2**20
    return resources.memory_limit() / 2**20


def bound_memory(device: torch.device, share: float = 1.0) -> None:
    """On the CPU, make an allocation beyond `share` of the free memory raise an error, which becomes a record."""
    if device.type == "cpu":
        resources.bound(share)


def share_gpu(device: torch.device, processes: int) -> None:
    """Limit the GPU memory of this process to an equal share. Without effect on the CPU or for one process.

    An allocation beyond the share raises an error here, and not in another process.

    Raises:
        ValueError: the GPU is too small for this number of processes.
    """
    if device.type == "cuda" and processes > 1:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(gpu_fraction(total, processes), device)


def gpu_fraction(total: int, processes: int) -> float:
    """Return the part of a GPU's memory that each of several processes may allocate.

    Args:
        total: bytes of the GPU.
        processes: number of processes. Each needs `GPU_CONTEXT` bytes in addition.

    Raises:
        ValueError: a share would have less memory than a process needs to start.
    """
    share = total / processes - GPU_CONTEXT
    if share < GPU_CONTEXT:
        most = max(1, total // (2 * GPU_CONTEXT))
        raise ValueError(
            f"{processes} processes do not fit on a GPU with {total / 2**20:.0f} MiB, because each needs "
            f"{GPU_CONTEXT / 2**20:.0f} MiB before it stores anything; set run.parallel in params.yaml, or --jobs, to "
            f"{most} or less"
        )
    return share / total


def environment(device: torch.device, allocator: str) -> Environment:
    """Return what a run had besides the content of its digest: package versions, vector width, BLAS, machine, commit.

    It contains no path, user name or host name. Call it at the end of the run.
    """
    described = {
        "python": platform.python_version(),
        **packages(),
        "system": " ".join(part for part in (platform.system(), platform.machine(), *platform.libc_ver()) if part),
        "cpu": cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": blas(),
        "cores": psutil.cpu_count(),
        "device": device_name(device),
        "allocator": allocator,
        "commit": checkout.commit(),
    }
    return Environment.from_disk(described)


def packages() -> dict[str, str]:
    """Return the versions of the installed packages that compute, whichever of them this process has loaded so far."""
    versions = {}
    for package in COMPUTING:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def blas() -> dict[str, str]:
    """Return the BLAS libraries in this process and their threads, by the package that contains them."""
    config = torch.__config__.show()
    name, mkl = re.search(r"BLAS_INFO=(\w+)", config), re.search(r"Math Kernel Library Version (\S+)-", config)
    libraries = {}
    if name:  # linked statically into torch, where threadpoolctl does not find it
        version = f" {mkl[1]}" if mkl and name[1] == "mkl" else ""
        libraries["torch"] = f"{name[1]}{version}, {_threads(torch.get_num_threads())}"
    for library in threadpoolctl.threadpool_info():
        if library["user_api"] != "blas":
            continue
        owner = next(
            (part.partition(".")[0] for part in Path(library["filepath"]).parts if part.endswith(".libs")),
            library["prefix"],
        )
        what = " ".join(str(library[key]) for key in ("internal_api", "version", "architecture") if library.get(key))
        libraries[owner] = f"{what}, {_threads(library['num_threads'])}"
    return dict(sorted(libraries.items()))  # loaded in any order


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the CPU with family and model, or the architecture if the system does not report it.

    Virtual machines use one name ("AMD EPYC") for several generations, whose speed and last bits of results differ.
    """
    with contextlib.suppress(OSError):
        first = cpuinfo.read_text(encoding="utf-8").partition("\n\n")[0]
        listed = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
        if name := listed.get("model name"):
            known = {"cpu family", "model"} <= listed.keys()
            return f"{name} (family {listed['cpu family']}, model {listed['model']})" if known else name
    return platform.processor() or platform.machine()
