"""Vector code for the CPU without a compiler: functions are written as LLVM text and compiled in the process by llvmlite.

For the few loops that torch cannot express without going through memory. `Emitter` writes a function, `Library` compiles several.
"""

import ctypes
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import torch


class Library:
    """Functions of one real type, compiled for this machine; called with addresses and numbers, without the interpreter's lock."""

    def __init__(self, emitters: "Sequence[Emitter]"):
        import llvmlite.binding as llvm

        features = llvm.get_host_cpu_features()
        texts, declared = [e.text() for e in emitters], sorted(set().union(*(e.declared for e in emitters)))
        module = llvm.parse_assembly("\n".join(texts + declared))
        module.verify()
        # by itself LLVM prefers vectors of half the width on machines that have AVX-512
        flags = features.flatten() + (",-prefer-256-bit" if features.get("avx512f") else "")
        machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=flags, opt=3)
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        builder.getModulePassManager().run(module, builder)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._functions = {}
        for emitter in emitters:
            real = ctypes.c_float if emitter.dtype == torch.float32 else ctypes.c_double
            kinds = [{"ptr": ctypes.c_void_p, "i64": ctypes.c_int64}.get(kind, real) for kind, _ in emitter.arguments]
            self._functions[emitter.name] = ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(emitter.name))

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self._functions[name]


@cache
def vector_bytes() -> int:
    """Width of this machine's vectors."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


def in_threads(part: Callable[[int], None], num_threads: int) -> None:
    """part(0), part(1), ... side by side, on threads that take numbers too small for the type as zero (at a hundredth of the cost)."""
    list(_pool(os.getpid(), num_threads).map(part, range(num_threads)))


@cache
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, "kernel", initializer=lambda: torch.set_flush_denormal(True))


class Emitter:
    """One function: a subclass gives its name and arguments ((kind, name): "ptr", "i64" or the real type) and writes its body.

    Values are names of LLVM; a vector has `lanes` entries of the real type unless said otherwise. A `variable` lives in memory until LLVM
    moves it into a register. `at` counts in entries, `tile` in vectors.
    """

    name: str

    @property
    def arguments(self) -> list[tuple[str, str]]:
        raise TypeError(f"{type(self).__name__} does not state its arguments")

    def body(self) -> None:
        raise TypeError(f"{type(self).__name__} has no body")

    def __init__(self, dtype: torch.dtype):
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"compiled kernels take float32 or float64, not {dtype}")
        self.real, self.whole = ("float", "i32") if dtype == torch.float32 else ("double", "i64")
        self.dtype, self.size, self.lanes = dtype, dtype.itemsize, vector_bytes() // dtype.itemsize
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0

    def text(self) -> str:
        self.body()
        arguments = ", ".join(f"{kind} %{name}" for kind, name in self.arguments)
        return "\n".join([f"define void @{self.name}({arguments}) {{", "entry:", *self.entry, *self.lines, "  ret void", "}"])

    # -- values

    def new(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def op(self, text: str) -> str:
        name = self.new()
        self.lines.append(f"  {name} = {text}")
        return name

    def vec(self, lanes: int | None = None, kind: str | None = None) -> str:
        return f"<{lanes or self.lanes} x {kind or self.real}>"

    def call(self, function: str, kind: str, *arguments: tuple[str, str]) -> str:
        kinds = ", ".join(k for k, _ in arguments)
        self.declared.add(f"declare {kind} @{function}({kinds})")
        return self.op(f"call {kind} @{function}({', '.join(f'{k} {v}' for k, v in arguments)})")

    def constant(self, value: float, lanes: int | None = None) -> str:
        bits = torch.tensor(value, dtype=torch.float32 if self.real == "float" else torch.float64).double().view(torch.int64).item()
        literal = f"0x{bits & 0xFFFFFFFFFFFFFFFF:016X}"
        return f"<{', '.join([f'{self.real} {literal}'] * (lanes or self.lanes))}>"

    def whole_constant(self, value: int, kind: str, lanes: int | None = None) -> str:
        return f"<{', '.join([f'{kind} {value}'] * (lanes or self.lanes))}>"

    def splat(self, value: str, lanes: int | None = None, kind: str | None = None) -> str:
        v = self.vec(lanes, kind)
        one = self.op(f"insertelement {v} poison, {kind or self.real} {value}, i64 0")
        return self.op(f"shufflevector {v} {one}, {v} poison, <{lanes or self.lanes} x i32> zeroinitializer")

    def add(self, a: str, b: str, lanes: int | None = None) -> str:
        return self.op(f"fadd fast {self.vec(lanes)} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.op(f"fsub fast {self.vec()} {a}, {b}")

    def mul(self, a: str, b: str, lanes: int | None = None) -> str:
        return self.op(f"fmul fast {self.vec(lanes)} {a}, {b}")

    def fma(self, a: str, b: str, c: str, lanes: int | None = None) -> str:
        v = self.vec(lanes)
        return self.call(f"llvm.fmuladd.v{lanes or self.lanes}f{8 * self.size}", v, (v, a), (v, b), (v, c))

    def integer(self, operation: str, a: str | int, b: str | int) -> str:
        return self.op(f"{operation} i64 {a}, {b}")

    def affine(self, *terms: tuple[str | int, str | int] | str | int) -> str:
        """Sum of products and single terms, in 64-bit integers."""
        total: str | int = 0
        for term in terms:
            value = self.integer("mul", *term) if isinstance(term, tuple) else term
            total = value if total == 0 else self.integer("add", total, value)
        return str(total)

    def minimum(self, a: str | int, b: str | int) -> str:
        less = self.op(f"icmp slt i64 {a}, {b}")
        return self.op(f"select i1 {less}, i64 {a}, i64 {b}")

    # -- memory

    def at(self, base: str, *terms: tuple[str | int, str | int] | str | int, kind: str | None = None) -> str:
        return self.op(f"getelementptr {kind or self.real}, ptr {base}, i64 {self.affine(*terms)}")

    def load(self, pointer: str, lanes: int | None = None, aligned: bool = False) -> str:
        lanes = lanes or self.lanes
        return self.op(f"load {self.vec(lanes)}, ptr {pointer}, align {self.size * (lanes if aligned else 1)}")

    def store(self, value: str, pointer: str, lanes: int | None = None, aligned: bool = False) -> None:
        lanes = lanes or self.lanes
        self.lines.append(f"  store {self.vec(lanes)} {value}, ptr {pointer}, align {self.size * (lanes if aligned else 1)}")

    def scalar(self, pointer: str, kind: str | None = None) -> str:
        return self.op(f"load {kind or self.real}, ptr {pointer}")

    def broadcast(self, pointer: str, lanes: int | None = None) -> str:
        return self.splat(self.scalar(pointer), lanes)

    def first_lanes(self, count: str | int, lanes: int) -> str:
        """Mask of the lanes below `count`."""
        numbers = f"<{', '.join(f'i64 {i}' for i in range(lanes))}>"
        limit = self.splat(str(count), lanes, "i64")
        return self.op(f"icmp slt <{lanes} x i64> {numbers}, {limit}")

    def masked_load(self, pointer: str, mask: str, lanes: int, other: str) -> str:
        v = self.vec(lanes)
        name = f"llvm.masked.load.v{lanes}f{8 * self.size}.p0"
        return self.call(name, v, ("ptr", pointer), ("i32", str(self.size)), (f"<{lanes} x i1>", mask), (v, other))

    def masked_store(self, value: str, pointer: str, mask: str, lanes: int) -> None:
        v, name = self.vec(lanes), f"llvm.masked.store.v{lanes}f{8 * self.size}.p0"
        self.declared.add(f"declare void @{name}({v}, ptr, i32, <{lanes} x i1>)")
        self.lines.append(f"  call void @{name}({v} {value}, ptr {pointer}, i32 {self.size}, <{lanes} x i1> {mask})")

    # -- control

    def variable(self, kind: str, value: str) -> str:
        name = self.new()
        self.entry.append(f"  {name} = alloca {kind}, align 64")
        self.lines.append(f"  store {kind} {value}, ptr {name}")
        return name

    def get(self, variable: str, kind: str | None = None) -> str:
        return self.op(f"load {kind or self.vec()}, ptr {variable}")

    def put(self, variable: str, value: str, kind: str | None = None) -> None:
        self.lines.append(f"  store {kind or self.vec()} {value}, ptr {variable}")

    @contextmanager
    def loop(self, start: str | int, stop: str | int, step: int = 1) -> Iterator[str]:
        index, label = self.variable("i64", str(start)), self.new()[1:]
        self.lines += [f"  br label %{label}.head", f"{label}.head:"]
        i = self.get(index, "i64")
        go = self.op(f"icmp slt i64 {i}, {stop}")
        self.lines += [f"  br i1 {go}, label %{label}.body, label %{label}.end", f"{label}.body:"]
        yield i
        self.put(index, self.integer("add", i, step), "i64")
        self.lines += [f"  br label %{label}.head", f"{label}.end:"]

    # -- pieces of arithmetic

    def transpose(self, rows: list[str], lanes: int) -> list[str]:
        """Square of `lanes` vectors: each pass interleaves vector k with vector k + lanes / 2."""
        low = ", ".join(f"i32 {i // 2 + (i % 2) * lanes}" for i in range(lanes))
        high = ", ".join(f"i32 {lanes // 2 + i // 2 + (i % 2) * lanes}" for i in range(lanes))
        v = self.vec(lanes)
        for _ in range(lanes.bit_length() - 1):
            pairs = list(zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True))
            rows = [self.op(f"shufflevector {v} {a}, {v} {b}, <{lanes} x i32> <{mask}>") for a, b in pairs for mask in (low, high)]
        return rows

    def widen(self, value: str, lanes: int) -> str:
        """A vector of `lanes` continued by poison to full width."""
        if lanes == self.lanes:
            return value
        mask = ", ".join(f"i32 {i}" if i < lanes else "i32 poison" for i in range(self.lanes))
        v = self.vec(lanes)
        return self.op(f"shufflevector {v} {value}, {v} poison, <{self.lanes} x i32> <{mask}>")

    def narrow(self, value: str, lanes: int) -> str:
        if lanes == self.lanes:
            return value
        mask = ", ".join(f"i32 {i}" for i in range(lanes))
        return self.op(f"shufflevector {self.vec()} {value}, {self.vec()} poison, <{lanes} x i32> <{mask}>")

    def tile(self, base: str, *indices: tuple[str | int, int]) -> str:
        """Pointer to a vector of an array of vectors: (index, vectors per index) each."""
        return self.at(base, *[(i, count * self.lanes) for i, count in indices])

    def exp2(self, x: str) -> str:
        """2^x of a vector for x <= 0: 2^k, k the nearest integer, times a series in what is left, to the last bit or two."""
        mantissa, terms, lowest = (52, 13, -1020.0) if self.real == "double" else (23, 6, -125.0)
        v, ints = self.vec(), self.vec(None, self.whole)
        suffix = f"v{self.lanes}f{8 * self.size}"
        small = self.op(f"fcmp olt {v} {x}, {self.constant(lowest)}")
        x = self.op(f"select <{self.lanes} x i1> {small}, {v} {self.constant(lowest)}, {v} {x}")
        k = self.call(f"llvm.rint.{suffix}", v, (v, x))
        rest = self.sub(x, k)
        y = self.constant(math.log(2) ** terms / math.factorial(terms))
        for power in reversed(range(terms)):
            y = self.fma(y, rest, self.constant(math.log(2) ** power / math.factorial(power)))
        exponent = self.op(f"shl {ints} {self.op(f'fptosi {v} {k} to {ints}')}, {self.whole_constant(mantissa, self.whole)}")
        bits = self.op(f"bitcast {v} {y} to {ints}")
        return self.op(f"bitcast {ints} {self.op(f'add {ints} {bits}, {exponent}')} to {v}")

    def hash32(self, x: str, kind: str) -> str:
        """As `_hash32` of gt_models.nn.triangular; `kind` i32 or a vector of it."""

        def const(value: int) -> str:
            return str(value) if kind == "i32" else self.whole_constant(value, "i32")

        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = self.op(f"xor {kind} {x}, {self.op(f'lshr {kind} {x}, {const(shift)}')}")
            x = self.op(f"mul {kind} {x}, {const(factor)}")
        return self.op(f"xor {kind} {x}, {self.op(f'lshr {kind} {x}, {const(16)}')}")

    def greater(self, a: str, b: str) -> str:
        more = self.op(f"fcmp ogt {self.vec()} {a}, {b}")
        return self.op(f"select <{self.lanes} x i1> {more}, {self.vec()} {a}, {self.vec()} {b}")

    def dot(self, scalars: str, vectors: list[str]) -> str:
        """sum over channels of scalar * vector, in two interleaved sums."""
        sums = [self.constant(0.0), self.constant(0.0)]
        for c, vector in enumerate(vectors):
            sums[c % 2] = self.fma(self.broadcast(self.at(scalars, c)), vector, sums[c % 2])
        return self.add(*sums)
