"""What this machine has: packages, GPU, cores, data. Standard library only: it runs before any wheel is installed."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# dependencies of pyproject.toml that no section imports
UNUSED = {"ogb", "jinja2", "tqdm"}
PROBE = """
import json, os, torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": None}
if torch.cuda.is_available():
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    found |= {"gpu": properties.name, "capability": f"{properties.major}.{properties.minor}",
              "processors": properties.multi_processor_count, "memory_gib": total / 2**30, "free_gib": free / 2**30}
try:
    import triton
    found["triton"] = triton.__version__
except ImportError:
    found["triton"] = None
print(json.dumps(found))
"""
GIB_EACH = 8.0  # device memory for each run of the queue
REFERENCE_GPU = "H100"  # the forecasts and the plan were made for this one


@dataclass(frozen=True)
class Machine:
    """The device, and what runs on it.

    Attributes:
        torch: version.
        cuda: version of CUDA that torch was built for; None for a CPU build.
        gpu: name of the GPU; None without one.
        capability: compute capability of the GPU.
        processors: streaming multiprocessors.
        memory_gib: memory of the GPU.
        free_gib: memory that is free.
        triton: version; None if it is not installed.
        cores: that this process may use.
    """

    torch: str
    cuda: str | None
    gpu: str | None
    capability: str | None = None
    processors: int | None = None
    memory_gib: float = 0.0
    free_gib: float = 0.0
    triton: str | None = None
    cores: int = 1

    @property
    def jobs(self) -> int:
        """Runs side by side: two cores and `GIB_EACH` of free device memory for each."""
        most = self.cores // 2 if self.gpu is None else min(self.cores // 2, int(self.free_gib / GIB_EACH))
        return max(1, most)

    def remarks(self) -> list[str]:
        """Return what the user should know about this machine before the results are read."""
        if self.gpu is None:
            return []
        found = []
        if REFERENCE_GPU not in self.gpu:
            found.append(f"the GPU is {self.gpu}; the plan was made for an {REFERENCE_GPU}, so fewer runs may end")
        if self.capability and float(self.capability) < 8.0:
            found.append(f"compute capability {self.capability} has no bfloat16: checks under autocast may fail")
        if self.free_gib < 0.9 * self.memory_gib:
            found.append(
                f"other processes use the GPU: {self.free_gib:.0f} of {self.memory_gib:.0f} GiB are free; "
                "times are not comparable"
            )
        if self.triton is None:
            found.append("triton is not installed: the forms in Triton are not checked and plain torch runs instead")
        return found


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def probe(environment: dict[str, str]) -> Machine:
    """Ask torch, in a process of its own, what it sees.

    Args:
        environment: of that process.

    Raises:
        RuntimeError: torch cannot be imported or hangs; the message has the last line of the error.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=120, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError("torch does not answer within 120 s: the driver of the GPU may hang") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise RuntimeError(f"torch cannot be used: {last}")
    return Machine(**json.loads(done.stdout.splitlines()[-1]), cores=cores())


def needed(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the requirements of the sections, and pytest and hypothesis, which the checks use."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    found = [text for text in project["dependencies"] if _name(text) not in UNUSED]
    return list(dict.fromkeys([*found, "pytest", "hypothesis"]))


def missing(requirements: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
    """Return the requirements that are not installed, or too old, and those of their packages.

    Args:
        requirements: names, with ">=VERSION" where one is needed.
        folders: where packages are looked for before `sys.path`.
    """
    absent, paths = [], [*map(str, folders), *sys.path]
    for text in requirements:
        found = _distribution(_name(text), paths)
        if found is None or _is_older(found.version, text):
            absent.append(text)
            continue
        absent += [more for more in found.requires or () if ";" not in more and not _distribution(_name(more), paths)]
    return list(dict.fromkeys(absent))


def carried(folder: Path) -> list[Path]:
    """Return the wheels in a folder whose packages are not installed."""
    return [path for path in sorted(folder.glob("*.whl")) if missing([path.name.split("-")[0]])]


def install(wheels: Sequence[Path], target: Path) -> None:
    """Install wheels into a folder, without the network.

    Raises:
        RuntimeError: pip refuses one, for example because it is built for another version of Python.
    """
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), *map(str, wheels)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-1:]
        raise RuntimeError(f"pip cannot install the wheels: {' '.join(lines)}")


def as_json(machine: Machine) -> dict[str, object]:
    """Return the machine as it is written to machine.json."""
    return asdict(machine) | {"python": sys.version.split()[0]}


def _distribution(name: str, paths: Sequence[str]) -> importlib.metadata.Distribution | None:
    return next(iter(importlib.metadata.distributions(name=name, path=list(paths))), None)


def _is_older(version: str, requirement: str) -> bool:
    least = re.search(r">=\s*([0-9.]+)", requirement)
    return least is not None and _numbers(version) < _numbers(least[1])


def _numbers(version: str) -> list[int]:
    leading = re.match(r"[0-9.]+", version)
    return [int(part) for part in leading[0].split(".") if part] if leading else []


def _name(text: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", text.strip())[0]
