"""Triton without a GPU: its interpreter for the numbers, its compiler for whether a GPU would take a kernel."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def interpreted(program: str) -> Any:
    """What `program` prints last, read as JSON. The interpreter has to be chosen before triton is imported, so it has a process of its own."""
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_compiles(kernel: Any, kinds: dict[str, str], constants: dict[str, Any]) -> None:
    """`kernel` for an NVIDIA GPU of compute capability 8.0; `kinds` of its arguments as Triton names them ("*fp32"), `constants` the others."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in constants else kinds[name] for name in kernel.arg_names}
    source = ASTSource(
        kernel, signature, constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()}
    )
    assert "ld.global" in triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]
