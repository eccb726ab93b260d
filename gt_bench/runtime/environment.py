"""The measured part of a record: time, memory, machine. Nothing here changes a number of the deterministic part."""

import contextlib
import importlib.metadata
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import psutil
import threadpoolctl
import torch

from gt_bench.runtime import memory_limits
from gt_bench.schemas import Environment
from gt_bench.utils.code_digest import PACKAGES, ROOT, imported_packages
from gt_bench.utils.paths import SHIPPED

# git pathspecs of what decides numbers; which cells run and how they are reported (dvc.yaml, grid.yaml, records, docs/) decides none
DECIDING = ("gt_bench", "gt_models", "suites/*/recipes/*", "suites/*.py", "params.yaml")
# modules that compute -> the package whose version says which they are
COMPUTING = {
    "torch": "torch", "torch_geometric": "torch-geometric", "numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn", "ogb": "ogb",
    "numba": "numba", "llvmlite": "llvmlite", "triton": "triton",
}  # fmt: skip


class Clock:
    """Seconds spent per kind of work; a run that is continued adds to what it had."""

    def __init__(self) -> None:
        self.totals = {"train": 0.0, "eval": 0.0, "test": 0.0}
        self.started = now()

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Adds the block's seconds to `totals[what]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.totals[what] += time.perf_counter() - start


class PeakMemory:
    """Largest memory in MiB since `start`: allocated on the GPU, or resident in this process."""

    def __init__(self, device: torch.device):
        self.device = device

    def start(self) -> None:
        """Forgets what was used before."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            with contextlib.suppress(OSError):  # kernels without this file report the peak of the whole process
                Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")

    def read(self) -> float:
        """In MiB."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Usage:
    """Memory in MiB and processor use in percent (of one core) of this process as a run goes: a point after an epoch, at most one a second, and
    ever fewer of a long run."""

    MOST = 200  # points

    def __init__(self, device: torch.device):
        self.device, self.process, self.every = device, psutil.Process(), 1.0
        self.points: dict[str, list[float]] = {"epoch": [], "memory_mib": [], "cpu_percent": []}
        self.last, self.busy, self.seen = time.monotonic(), time.process_time(), 0

    def epoch(self, epoch: int) -> None:
        """Notes that `epoch` is over, and a point if one is due."""
        self.seen = epoch
        if time.monotonic() - self.last >= self.every:
            self._add()

    def read(self) -> dict[str, list[float]]:
        """The points, the last of them of now."""
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
    """In UTC, ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def choose_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one. Raises ValueError for a device that this machine lacks."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"run.device is {name!r}, but torch sees no GPU here; set it to auto or cpu in params.yaml")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """What records call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def memory_limit_mib(device: torch.device) -> float:
    """Memory of the device in MiB; on the CPU the smallest of the machine's, the container's and the process's limits."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 2**20
    return memory_limits.memory_limit() / 2**20


def bound_memory(device: torch.device, share: float = 1.0) -> None:
    """On the CPU, makes an allocation beyond `share` of the memory that is free an error that becomes a record, not a kill of the process."""
    if device.type == "cpu":
        memory_limits.bound(share)


def environment(device: torch.device, allocator: str) -> Environment:
    """What took part in a run besides its digest, read at its end: versions of the packages that compute, vector width, BLAS, machine, commit.

    Nothing here names a path, a user or a host.
    """
    found = {
        "python": platform.python_version(),
        **packages(),
        "system": " ".join(part for part in (platform.system(), platform.machine(), *platform.libc_ver()) if part),
        "cpu": cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": blas(),
        "cores": psutil.cpu_count(),
        "device": device_name(device),
        "allocator": allocator,
        "commit": commit(),
    }
    return cast(Environment, found)


def packages(loaded: Collection[str] | None = None, root: Path = ROOT) -> dict[str, str]:
    """Versions of the computing packages that the code of this project imported. `loaded`: names of the modules in this process.

    torch_geometric imports numba wherever it is installed: a package counts where a loaded module of this project imports it too.
    """
    loaded = sys.modules.keys() if loaded is None else loaded
    ours = [name for name in list(loaded) if name.partition(".")[0] in PACKAGES]
    used = imported_packages(ours, root) & set(loaded)
    if "numba" in used:  # its compiler
        used.add("llvmlite")
    versions = {}
    for package in (package for name, package in COMPUTING.items() if name in used):
        with contextlib.suppress(
            importlib.metadata.PackageNotFoundError
        ):  # installed under another name (pytorch-triton)
            versions[package] = importlib.metadata.version(package)
    return versions


def blas() -> dict[str, str]:
    """The matrix libraries in this process with their threads, by the package that brought them."""
    config = torch.__config__.show()
    name, mkl = re.search(r"BLAS_INFO=(\w+)", config), re.search(r"Math Kernel Library Version (\S+)-", config)
    # linked into torch's own library, where threadpoolctl sees none
    found = (
        {"torch": f"{name[1]}{f' {mkl[1]}' if mkl and name[1] == 'mkl' else ''}, {_threads(torch.get_num_threads())}"}
        if name
        else {}
    )
    for library in threadpoolctl.threadpool_info():
        if library["user_api"] != "blas":
            continue
        owner = next(
            (part.partition(".")[0] for part in Path(library["filepath"]).parts if part.endswith(".libs")),
            library["prefix"],
        )
        what = " ".join(str(library[key]) for key in ("internal_api", "version", "architecture") if library.get(key))
        found[owner] = f"{what}, {_threads(library['num_threads'])}"
    return found


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def commit(root: Path = ROOT) -> str | None:
    """The commit of the working tree, with "-dirty" if a file that decides numbers (`DECIDING`) differs from it or is not in it.

    None outside a repository that has this code, and of an installed package.
    """
    if SHIPPED.is_dir():
        return None
    try:
        if not subprocess.run(
            ["git", "ls-files", "gt_models"], cwd=root, capture_output=True, encoding="utf-8", check=True
        ).stdout:
            return None  # unpacked within another repository
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, encoding="utf-8", check=True
        ).stdout.strip()
        status = ["git", "status", "--porcelain", "--untracked-files=normal", "--", *DECIDING]
        changed = subprocess.run(status, cwd=root, capture_output=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("-dirty" if changed.strip() else "")


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name with family and model, or its architecture where the system does not say. Virtual machines give one name to
    several generations ("AMD EPYC"), whose seconds differ by a factor and whose last bits may."""
    with contextlib.suppress(OSError):
        first = cpuinfo.read_text(encoding="utf-8").partition("\n\n")[0]
        said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
        if name := said.get("model name"):
            return (
                f"{name} (family {said['cpu family']}, model {said['model']})"
                if {"cpu family", "model"} <= said.keys()
                else name
            )
    return platform.processor() or platform.machine()
