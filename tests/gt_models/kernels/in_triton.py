"""Triton without a GPU: its interpreter computes values, its compiler checks that a kernel compiles for a GPU."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def interpreted(program: str) -> Any:
    """The last line that `program` prints, parsed as JSON.

    The interpreter must be selected before the import of triton, so it runs in a new process.
    """
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_compiles(kernel: Any, kinds: dict[str, str], constants: dict[str, Any]) -> None:
    """Compile `kernel` for an NVIDIA GPU of compute capability 8.0, without products in TF32.

    Triton writes `tl.sum(x[:, :, None] * y[None, :, :], 1)` as a product in TF32 if no size is below 16.

    Args:
        kinds: types of arguments by Triton's names, such as "*fp32".
        constants: values of the other arguments.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in constants else kinds[name] for name in kernel.arg_names}
    source = ASTSource(
        kernel, signature, constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()}
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm
    assert "ld.global" in compiled["ptx"]
    assert "tf32" not in compiled["ttir"]
