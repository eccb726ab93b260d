"""Triton kernels without a GPU: values by Triton's interpreter, and compilation for a GPU.

The interpreter must be selected before triton is imported, so values are computed in a new process.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gt_models.kernels import all_operations
from tests.gt_models.kernels.cases import SEED

pytestmark = pytest.mark.slow
OPERATIONS = ("ada_rms", "gated_attention", "gated_norm", "graph_attention", "triangular_attention")
# graphs so small, and constants, that the interpreter is soon done and a program has several tiles all the same
PROGRAM = """
import importlib, json, sys, torch, triton
import triton.language as tl
from torch import Tensor
from gt_models.kernels.dropout_triton import hash32, is_kept
from gt_models.layers.dropout_hash import kept_at, threshold
from tests.gt_models.kernels import cases
from tests.gt_models.kernels.cases import CASES, case, results

sizes = (5, 1, 0, 3)
CASES["graph_attention"] = cases.graph_attention(12, 40, 3, 5)
CASES["triangular_attention"] = cases.triangular_attention(sizes, 2, 4)
CASES["triangular_attention: dropout"] = cases.triangular_attention(sizes, 2, 4, 0.4)

def of_operation(name):
    form = importlib.import_module(f"gt_models.kernels.{name}_triton")
    for constant, value in (("PROGRAMS", 2), ("TILE", 32)):
        if hasattr(form, constant):
            setattr(form, constant, value)
    function, found, nans = getattr(form, name), {}, []
    for call in CASES:
        if call.partition(":")[0] != name or call.endswith(("long", "wide")) or "eight" in call:
            continue
        for dtype in (torch.float64, torch.float32) if call == name else (torch.float64,):
            operation, args = case(call, dtype)
            both = results(operation.reference, args), results(function, args)
            differences = [float((a - b).abs().max() / max(1, a.abs().max())) for a, b in zip(*both) if a.numel()]
            found[f"{call} {dtype}"] = max(differences, default=0.0)
        if call == name:
            same = all(torch.equal(*pair) for pair in zip(both[1], results(function, args)))
    for bad in (float("nan"), float("inf"), -float("inf")):
        for place, tensor in enumerate(case(name)[1]):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                operation, args = case(name)
                args[place].data.view(-1)[3] = bad
                expected, other = operation.reference(*args), function(*args)
                nans.append(torch.equal(expected.isfinite(), other.isfinite()))
    return found, same, nans

@triton.jit
def entries(positions, out, seed, COUNT: tl.constexpr, LIMIT: tl.constexpr):
    c = tl.arange(0, COUNT)
    tl.store(out + c, is_kept(hash32(seed.to(tl.uint32)), tl.load(positions + c), LIMIT))

def dropout():
    positions = torch.cat([torch.arange(500), torch.randint(2**40, (524,))])  # beyond 32 bits as well
    same, rates = [], []
    for seed in (0, 3, 2**31 - 2):
        out = torch.empty(1024, dtype=torch.bool)
        entries[(1,)](positions, out, seed, 1024, threshold(0.3))
        same.append(torch.equal(out, kept_at(torch.tensor([seed]), positions, 0.3)))
        rates.append(float(out.float().mean()))
    return same, rates

print(json.dumps([{name: of_operation(name) for name in sys.argv[1:]}, dropout()]))
"""


def test_interpreted_each_form_equals_the_definition(tmp_path):
    """One process for all: Triton reads the source of kernels, so the program is a file."""
    pytest.importorskip("triton")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", str(file), *OPERATIONS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    forms, (same_entries, kept) = json.loads(done.stdout.splitlines()[-1])
    assert forms.keys() == set(OPERATIONS)
    for name, (found, same_bits, finite) in forms.items():
        assert len(found) >= 3, name
        for call, difference in found.items():
            assert difference < (1e-11 if "float64" in call else 1e-4), call
        assert same_bits, name
        assert all(finite), name
    assert same_entries == [True] * 3, "another dropout than in plain torch"
    assert all(0.6 < share < 0.8 for share in kept)


def test_every_triton_form_is_for_a_gpu_and_tested_here():
    forms = {name: f for name, o in all_operations().items() for f in o.forms if f.name == "triton"}
    assert {name for name in forms if not name.startswith("polynormer")} == set(OPERATIONS)
    with FakeTensorMode():
        on_a_gpu, on_a_cpu = (torch.empty(4, 5, device=device) for device in ("cuda", "cpu"))
    vector = torch.empty(5)
    for name in ("ada_rms", "graph_attention"):
        assert forms[name].reason((on_a_cpu, vector), {}) is not None
        assert forms[name].reason((on_a_gpu,), {}) is None
    assert forms["gated_norm"].why_not(on_a_gpu) is None
    assert forms["gated_norm"].why_not(on_a_cpu) is not None


def compilations() -> list[tuple[str, Any, dict[str, str], dict[str, Any]]]:
    """(name, kernel, types of arguments that are not of one kind, constants) of all kernels at sizes of recipes."""
    from gt_models.kernels import (
        ada_rms_triton,
        gated_attention_triton,
        gated_norm_triton,
        graph_attention_triton,
        triangular_attention_triton,
    )

    found: list[tuple[str, Any, dict[str, str], dict[str, Any]]] = []
    for kind, width in (("fp32", 64), ("fp64", 100), ("fp32", 2000)):
        constants = ada_rms_triton._constants(width, 1e-6)
        found += [(kind, k, {"tokens": "i32"}, constants) for k in (ada_rms_triton._forward, ada_rms_triton._backward)]
    for kind, width, rate, gated in (
        ("fp32", 8, 0.2, True), ("fp64", 12, 0.0, False), ("fp32", 16, 0.0, False), ("fp32", 64, 0.0, True),
    ):  # fmt: skip
        form, kinds = gated_attention_triton, {"seed": "i32", "stride": "i64", "ptr": "*i64", "pair_ptr": "*i64"}
        constants = form._arguments(8, width, 0.5, -0.2, gated, rate, SEED)
        found += [(kind, form._forward, kinds, constants)]
        found += [(kind, form._backward, kinds, constants | {"BY_KEY": by_key}) for by_key in (False, True)]
    for kind, relu, rate in (("fp32", True, 0.3), ("fp64", False, 0.0)):
        constants = gated_norm_triton._constants(120, relu, rate > 0, rate) | {"EPS": 1e-5}
        kinds = {"seed": "i32", "rows": "i32"}
        found += [(kind, k, kinds, constants) for k in (gated_norm_triton._forward, gated_norm_triton._backward)]
    for kind, width in (("fp32", 64), ("fp64", 120)):
        form, kinds = graph_attention_triton, dict.fromkeys(("ptr", "col", "ptr_t", "col_t", "perm_t"), "*i32")
        constants = form._arguments(8, width, 0.2)
        found += [(kind, kernel, kinds, constants) for kernel in (form._forward, form._by_source, form._by_target)]
    for kind, width, rate in (("fp32", 8, 0.2), ("fp64", 12, 0.0)):
        form, kinds = triangular_attention_triton, {"first": "*i64", "sizes": "*i64", "seed": "i32"}
        constants = form._arguments(8, width, SEED, rate)
        found += [(kind, form._forward, kinds, constants)]
        found += [(kind, form._backward, kinds, constants | {"SECOND": second}) for second in (False, True)]
    return found


def test_the_compiler_takes_every_kernel_for_a_gpu_without_products_in_tf32():
    """Compute capability 8.0. Triton writes `tl.sum(x[:, :, None] * y[None, :, :], 1)` as a product in TF32."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for kind, kernel, kinds, given in compilations():
        constants = {n: value for n, value in given.items() if n in kernel.arg_names and n not in kinds}
        signature = {n: "constexpr" if n in constants else kinds.get(n, f"*{kind}") for n in kernel.arg_names}
        places = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
        source = ASTSource(kernel, signature, constexprs=places)
        compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm
        assert "ld.global" in compiled["ptx"]
        assert "tf32" not in compiled["ttir"]
