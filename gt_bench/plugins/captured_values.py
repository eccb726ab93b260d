"""What a class of a notebook or script reads although the text of its file does not decide it.

Such a class may read variables that other cells, the command line or a loop have set, arguments of the function in
which it is defined, attributes that were assigned to it later, and functions and classes of other cells. Its runs
depend on all of these, so they are part of the digest of the model.

Starting from the class, all functions and classes of the user that it can reach are visited. Libraries count by the
names that are imported from them. Devices, paths, loggers and open files do not count.
"""

import ast
import dis
import enum
import functools
import hashlib
import inspect
import io
import linecache
import logging
import pickle
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from gt_bench.utils.code_digest import files_of, is_installed, meaning, text_digest

PICKLED = "pickled"  # in a line of an object that only a library can read
_MISSING = object()
_IGNORED = (torch.device, PurePath, ModuleType, logging.Logger, io.IOBase)  # they decide no number
_PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice, enum.Enum, torch.dtype)


def captured_values(cls: type, path: Path | None = None, root: Path | None = None) -> list[str]:
    """Return a line for each value that a class can read and that its text does not decide.

    Args:
        cls: the class.
        path: its file. None for a notebook.
        root: the first folder in which imports of the file are looked up.

    Returns:
        Lines such as `HIDDEN=int 64`, sorted; empty if the text decides everything.
    """
    visit = _Visit(set(files_of(path, root)) if path and root else set())
    visit.reach(cls)
    return sorted(visit.lines)


class _Import(NamedTuple):
    """What an import binds to a name: a module, or with `name` a part of it."""

    module: str
    name: str = ""


class _Visit:
    """A walk through the functions and classes that a class reaches.

    Args:
        known: files whose text is part of the digest already.

    Attributes:
        lines: what was found.
    """

    def __init__(self, known: set[Path]):
        self.known = known
        self.lines: set[str] = set()
        self._decided: dict[str, Mapping[str, object]] = {}  # {file: what its text decides}
        self._seen: dict[int, object] = {}

    def reach(self, value: object) -> None:
        """Visit a function or class if it is the user's."""
        if isinstance(value, type):
            if _is_own(value) and not self._is_seen(value):
                self._class(value)
        elif isinstance(value, FunctionType) and _is_own_code(value.__code__) and not self._is_seen(value):
            self._function(value)

    def _class(self, cls: type) -> None:
        for base in cls.__mro__[1:]:
            self.reach(base)
        functions = {name: function for name, value in vars(cls).items() if (function := _function_in(value))}
        file = next((f.__code__.co_filename for f in functions.values() if _is_own_code(f.__code__)), "")
        for name, value in vars(cls).items():
            if name in functions:
                self.reach(functions[name])
            elif not (name.startswith("__") and name.endswith("__")) and not inspect.isdatadescriptor(value):
                self._named(f"{cls.__qualname__}.{name}", value, file)

    def _function(self, function: FunctionType) -> None:
        code, scope = function.__code__, function.__globals__
        self._text(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if name != "__class__":
                self._value(f"{function.__qualname__}: {name}", value)
        for name, value in _computed_defaults(function):
            self._value(f"{function.__qualname__}({name})", value)
        for name, value, module in _globals_read(code, scope):
            self._named(name, value, code.co_filename if module is None else getattr(module, "__file__", None) or "")

    def _text(self, code: CodeType) -> None:
        """Add the text of a function, unless it is part of the digest already."""
        file = Path(code.co_filename)
        if file.is_file():
            if (file := file.resolve()) not in self.known:
                self.known.add(file)
                self.lines.add(f"file {file.name} {text_digest(file, file.parent)}")
            return
        for one in _body_of(code.co_filename):  # a cell of a notebook
            first = min([one.lineno, *(part.lineno for part in getattr(one, "decorator_list", []))])
            if first <= code.co_firstlineno <= (one.end_lineno or one.lineno):
                self.lines.add(f"text {meaning(ast.Module([one], []))}")

    def _named(self, name: str, value: object, file: str) -> None:
        """Add a value that is read by its name, unless the text of `file` decides it."""
        if file not in self._decided:
            # a cell of a notebook decides nothing that a later cell could not change
            self._decided[file] = _decided_by(file) if Path(file).is_file() else {}
        said = self._decided[file].get(name.rpartition(".")[2], _MISSING)
        if isinstance(said, _Import):
            module = sys.modules.get(said.module)
            is_known = module is not None and (_is_of_library(module) or _file_of(module) in self.known)
            if is_known and value is (getattr(module, said.name, _MISSING) if said.name else module):
                self.reach(value)
                return
        elif isinstance(said, ast.AST):
            if getattr(value, "__name__", None) == name.rpartition(".")[2]:
                self.reach(value)
                return
        elif type(said) is type(value) and said == value:
            return
        self._value(name, value)

    def _value(self, name: str, value: object) -> None:
        if isinstance(value, _IGNORED):
            return
        if isinstance(value, type | FunctionType):
            self.reach(value)
            self.lines.add(f"{name}={value.__qualname__}")
        elif isinstance(value, MethodType):
            self._value(name, value.__func__)
        elif isinstance(value, functools.partial):
            self._value(name, (value.func, value.args, value.keywords))
        elif isinstance(value, nn.Module):
            self.reach(type(value))
            self._value(name, dict(value.state_dict()))
        elif isinstance(value, np.ndarray | np.generic | torch.Tensor):
            self.lines.add(f"{name}={_array(value)}")
        elif isinstance(value, _PLAIN):
            self.lines.add(f"{name}={type(value).__name__} {value!r}")
        elif not self._is_seen(value):
            self.lines.add(f"{name}={type(value).__qualname__}")
            self._parts(name, value)

    def _parts(self, name: str, value: object) -> None:
        if isinstance(value, Mapping):
            for key, one in value.items():
                self._value(f"{name}[{key!r}]", one)
        elif isinstance(value, set | frozenset):
            self.lines.add(f"{name}={sorted(map(repr, value))}")
        elif isinstance(value, list | tuple):
            if all(isinstance(one, _PLAIN) for one in value):
                self.lines.add(f"{name}={value!r}")
                return
            for number, one in enumerate(value):
                self._value(f"{name}[{number}]", one)
        elif isinstance(value, Namespace | SimpleNamespace) or is_dataclass(value) or _is_own(type(value)):
            self.reach(type(value))
            for key, one in _attributes(value).items():
                self._value(f"{name}.{key}", one)
        else:
            try:
                self.lines.add(f"{name}={PICKLED} {hashlib.sha256(pickle.dumps(value, 4)).hexdigest()}")
            except Exception:  # it has a lambda or the like: its attributes decide
                for key, one in _attributes(value).items():
                    self._value(f"{name}.{key}", one)

    def _is_seen(self, value: object) -> bool:
        if id(value) in self._seen:
            return True
        self._seen[id(value)] = value  # another object cannot get its id
        return False


def _attributes(value: object) -> dict[str, object]:
    """Return the attributes of an object, in its `__dict__` and in slots, whatever it lets pickle see."""
    state = object.__getstate__(value)
    own, slots = state if isinstance(state, tuple) else (state, None)
    return {**(own or {}), **(slots or {})}


def _decided_by(file: str) -> dict[str, object]:
    """Return {name: literal value, _Import, or node of the definition} of names that a text binds exactly once."""
    tree = ast.Module(_body_of(file), [])
    bound: dict[str, list[object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = _MISSING if node.value is None else _literal(node.value)
            for target in targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                bound.setdefault(name, []).append(_Import(alias.name if alias.asname else name))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                bound.setdefault(alias.asname or alias.name, []).append(_Import(node.module or "", alias.name))
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            bound.setdefault(node.attr, []).append(_MISSING)
        elif isinstance(node, ast.Global):
            for name in node.names:
                bound.setdefault(name, []).append(_MISSING)
    stores = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    return {
        name: values[0]
        for name, values in bound.items()
        if len(values) == 1 and stores.count(name) <= (not isinstance(values[0], ast.AST | _Import))
    }


def _computed_defaults(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the defaults of arguments that the text does not write out as literals."""
    code = function.__code__
    literal: set[str] = set()
    for node in ast.walk(ast.Module(_body_of(code.co_filename), [])):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and code.co_firstlineno == min(
            [node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]
        ):
            places = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(places[::-1], node.args.defaults[::-1], strict=False)]
            pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
            literal |= {argument.arg for argument, default in pairs if _literal(default) is not _MISSING}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty and parameter.name not in literal:
            yield parameter.name, parameter.default


def _globals_read(code: CodeType, scope: Mapping[str, object]) -> Iterator[tuple[str, object, ModuleType | None]]:
    """Yield the global variables that code reads: name, value, and for `module.name` the module."""
    instructions = list(dis.get_instructions(code))
    for number, one in enumerate(instructions):
        if one.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or one.argval not in scope:
            continue
        name, value, module = str(one.argval), scope[one.argval], None
        for after in instructions[number + 1 :]:
            part = str(after.argval)
            if not isinstance(value, ModuleType) or _is_of_library(value) or not hasattr(value, part):
                break
            if after.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            name, value, module = f"{name}.{part}", getattr(value, part), value
        yield name, value, module
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_read(constant, scope)


def _body_of(file: str) -> list[ast.stmt]:
    """Return the statements of a file or of a cell of a notebook, without IPython's own lines."""
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    try:
        return ast.parse("".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in lines)).body
    except SyntaxError:
        return []


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _MISSING


def _function_in(value: object) -> FunctionType | None:
    """Return the function of a method, a static method, a class method or a property."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    return function if isinstance(function, FunctionType) else None


def _is_own(cls: type) -> bool:
    """Return whether a class is the user's."""
    module = sys.modules.get(cls.__module__)  # None for a user's file that was imported again since
    return module is None or not _is_of_library(module)


def _is_of_library(module: ModuleType) -> bool:
    file = _file_of(module)
    return module.__name__ != "__main__" and (file is None or is_installed(file))


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None


def _is_own_code(code: CodeType) -> bool:
    """Return whether code is the user's. Generated code, such as the constructor of a dataclass, is not."""
    name = code.co_filename
    return not (name.startswith("<") and not linecache.getlines(name)) and not is_installed(Path(name).resolve())


def _array(value: np.ndarray | np.generic | torch.Tensor) -> str:
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
    tensor = tensor.detach().cpu().contiguous()
    data = tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(data).hexdigest()}"
