"""Start of a process of the benchmark: a stage or `gt-bench`."""

import gc
import importlib
import io
import sys
from typing import TYPE_CHECKING, NoReturn

from gt_bench.runtime.malloc import keep_allocations
from gt_bench.runtime.signals import silence_interrupts
from gt_bench.runtime.threads import settle_environment

if TYPE_CHECKING:
    from gt_bench.config.params import RunSettings

_DEFAULT, _RARE = gc.get_threshold(), (50_000, 10, 10)


def use_utf8() -> None:
    """Read and write UTF-8 on the standard streams, also in a locale that cannot write "±"."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8")


def collect_garbage_rarely() -> None:
    """Make garbage collection rare while modules are imported.

    torch, torch_geometric and MLflow create half a million objects that stay. Searching them for reference cycles takes
    a quarter of the import time.
    """
    gc.set_threshold(*_RARE)


def freeze_loaded_objects() -> None:
    """Exclude loaded objects from garbage collection and collect at the default rate again; call it before training.

    A search of the loaded objects takes 0.1 s and happens several times in a short run. Only the first call in a
    process that called `collect_garbage_rarely` has an effect, because frozen objects are never freed.
    """
    if gc.get_threshold() == _RARE:
        gc.freeze()
        gc.set_threshold(*_DEFAULT)


def prepare_process(settings: "RunSettings", threads: int = 1, processes: int = 1) -> str:
    """Set the number of threads, the allocator and the memory limit of this process, before it trains.

    Args:
        settings: run-wide settings, of which the device is used.
        threads: number of threads of torch and of the linear algebra libraries.
        processes: number of processes that share the memory of the device equally.

    Returns:
        The setting of the allocator, for the record.

    Raises:
        RecipeError: the device of `settings` does not exist on this machine.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from gt_bench.runtime.environment import bound_memory, choose_device

    allocator = keep_allocations()
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    device = choose_device(settings.device)
    bound_memory(device, 1 / processes)
    return allocator


def run_module(module: str, function: str = "main") -> NoReturn:
    """Import `module` and exit with the status that its `function()` returns.

    During the import garbage collection is rare, and Ctrl-C ends the process without a traceback. `status_of` handles
    Ctrl-C afterwards.
    """
    settle_environment()
    collect_garbage_rarely()
    use_utf8()
    silence_interrupts()
    sys.exit(getattr(importlib.import_module(module), function)())
