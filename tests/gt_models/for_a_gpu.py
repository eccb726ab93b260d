"""What torch.compile generates for a GPU, compiled by Triton on a machine without one.

    python -m tests.gt_models.for_a_gpu MODEL ...

Inductor writes Triton code for the CPU if its `cpu_backend` is "triton", almost as for a GPU. Here Triton's compiler
compiles that code for compute capability 9.0. Prints, for each model, a JSON line with the number of kernels of a
training step with dropout, and the errors of those that Triton refuses.
"""

import contextlib
import inspect
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._inductor import config
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from triton.backends.compiler import GPUTarget

from gt_models import model_info
from tests.gt_models.every_model import batch, build

TARGET = GPUTarget("cuda", 90, 32)
RATES = ("dropout", "attn_dropout", "activation_dropout", "drop_path")
compiled: dict[str, str | None] = {}  # kernel -> error


class Compiled(Exception):
    """Ends the compilation of a kernel before inductor loads it."""


def compile_kernel(source: Any, plain: Any = triton.compile, **_: Any) -> None:
    """Compile a kernel for the GPU and note whether Triton takes it."""
    try:
        plain(source, target=TARGET)
        compiled[source.name] = None
    except Exception as error:
        compiled[source.name] = f"{type(error).__name__}: {error}"
    raise Compiled


def precompile(tuner: Any, *_: Any, **__: Any) -> None:
    """Compile the first variant of a kernel."""
    with contextlib.suppress(Compiled):
        tuner._precompile_config(tuner.configs[0])


def run(_: Any, *args: Any, **__: Any) -> None:
    """In place of a kernel: all results are zero, which are valid indices, too."""
    for value in args:
        if isinstance(value, torch.Tensor):
            value.zero_()


def main() -> None:
    """Compile a step of each model."""
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: TARGET,
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_device_interface=lambda: None,
            get_active_torch_device=lambda: torch.device("cpu"),
            is_active=lambda: True,
            utils=SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": 232448, "warpSize": 32}),
        )
    )
    triton.compile = compile_kernel
    CachingAutotuner.precompile = precompile
    CachingAutotuner.run = run
    config.cpu_backend, config.compile_threads, config.force_disable_caches = "triton", 1, True
    for name in sys.argv[1:]:
        compiled.clear()
        torch._dynamo.reset()
        known = inspect.signature(model_info(name).cls).parameters
        model = build(name, **{rate: 0.3 for rate in RATES if rate in known}).train()
        torch.compile(model, fullgraph=True, dynamic=False)(batch()).sum().backward()
        errors = {kernel: error for kernel, error in compiled.items() if error}
        print(json.dumps({"model": name, "kernels": len(compiled), "errors": errors}), flush=True)


if __name__ == "__main__":
    main()
