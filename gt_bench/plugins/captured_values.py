"""What a class of a notebook or script reads although the text of its file does not decide it.

Such a class may read variables that other cells, the command line or a loop have set, arguments of the function in
which it is defined, attributes that were assigned to it later, and functions and classes of other cells. Its runs
depend on all of these, so they are part of the digest of the model.

Starting from the class, all functions, classes and objects that it can reach are visited. What a library defines
counts by its name, an object of a library by its state. Devices, loggers and open files do not count.
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
import re
import sys
import weakref
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gt_bench.runtime.opened_files import shown_path
from gt_bench.utils.code_digest import files_of, is_installed, is_user_code, meaning, text_digest
from gt_bench.utils.digest import digest_of

PICKLED = "pickled"  # in a line of an object that only a library can read
_MISSING = object()
_IGNORED = (torch.device, logging.Logger, io.IOBase)  # they decide no number
_DEVICE = re.compile(r"(cpu|cuda|mps)(:\d+)?")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice, torch.dtype)
_GENERATED = re.compile(r"_(orig|jinja)_(propagate|edge_updater)")
_EMPTY = frozenset(vars(nn.Module()))  # attributes of each module, most of them empty


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
    visit.named(cls.__qualname__, cls, str(path))
    return sorted(visit.lines)


class _Import(NamedTuple):
    """What an import binds to a name: a module, or with `name` a part of it."""

    module: str
    name: str = ""


class _Pickler(pickle.Pickler):
    """Leaves out the user's functions and classes, which pickle would only name, and arrays.

    Attributes:
        parts: what is left out.
    """

    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=4)
        self.parts: list[object] = []

    def persistent_id(self, value: Any) -> str | None:
        """Return the place of an object in `parts`, None for one that is pickled."""
        is_user_code = isinstance(value, type | FunctionType) and _is_own(value)
        if not is_user_code and not isinstance(value, (torch.Tensor, np.ndarray, *_IGNORED)):
            return None
        self.parts.append(value)
        return str(len(self.parts) - 1)


class _Visit:
    """A walk through the functions, classes and objects that a class reaches.

    Args:
        known: files whose text is part of the digest already.

    Attributes:
        lines: what was found.
    """

    def __init__(self, known: set[Path]):
        self.known = known
        self.lines: set[str] = set()
        self._decided: dict[str, Mapping[str, object]] = {}  # {file: what its text decides}
        self._seen: dict[int, tuple[object, str]] = {}  # {id: an object, and the name with which it was found first}

    def named(self, name: str, value: object, file: str) -> None:
        """Add a value that is read by its name, unless the text of `file` decides it."""
        if file not in self._decided:
            # a cell of a notebook decides nothing that a later cell could not change
            self._decided[file] = _decided_by(file) if Path(file).is_file() else {}
        said = self._decided[file].get(name.rpartition(".")[2], _MISSING)
        if isinstance(said, _Import):
            module = sys.modules.get(said.module)
            if module is not None and value is (getattr(module, said.name, _MISSING) if said.name else module):
                if _is_of_library(module):
                    return
                origin = _file_of(module)
                if origin in self.known and str(origin) != file:
                    self.named(said.name or name, value, str(origin))
                    return
        elif isinstance(said, ast.AST):
            if getattr(value, "__name__", None) == name.rpartition(".")[2]:
                self._reach(value, name)
                return
        elif type(said) is type(value) and said == value:
            return
        self._value(name, value)

    def _reach(self, value: object, name: str) -> None:
        """Visit a function or class if it is the user's, and the user's function in a wrapper of a library."""
        if isinstance(value, type):
            if _is_own(value) and not self._is_seen(value, name):
                self._class(value, name)
        elif isinstance(value, FunctionType):
            if (_is_own(value) or vars(value)) and not self._is_seen(value, name):
                self._function(value, name)
        elif hasattr(value, "__wrapped__"):  # of functools.cache
            self._reach(value.__wrapped__, name)

    def _class(self, cls: type, name: str) -> None:
        self._reach(type(cls), f"{name}.__class__")
        if cls.__bases__ not in ((object,), (nn.Module,)):
            for number, base in enumerate(cls.__bases__):
                self._value(f"{name}.__bases__[{number}]", base)
        content = {key: value for key, value in vars(cls).items() if not _is_internal(cls, key, value)}
        functions = {key: found for key, value in content.items() if (found := _functions_in(value))}
        file = next((f.__code__.co_filename for found in functions.values() for f in found if _is_own(f)), "")
        fields = vars(cls).get("__dataclass_fields__", {})
        for key, value in content.items():
            if key in functions:
                for one in functions[key]:
                    self.named(f"{name}.{key}", one, file)
            elif key not in fields:
                self.named(f"{name}.{key}", value, file)
        for key, field in fields.items():
            for value in (field.default, field.default_factory):
                if value is not MISSING:
                    self.named(f"{name}.{key}", value, file)

    def _function(self, function: FunctionType, name: str) -> None:
        own = _is_own(function)
        for key, value in vars(function).items():
            if own or key in ("__wrapped__", "registry"):  # of functools.wraps and functools.singledispatch
                self._value(f"{name}.{key}", value)
        if not own:
            return
        code, scope = function.__code__, function.__globals__
        self._text(code)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if key != "__class__":
                self._value(f"{name}: {key}", value)
        for key, value in _computed_defaults(function):
            self._value(f"{name}({key})", value)
        for key, value, module in _globals_read(code, scope):
            self.named(key, value, code.co_filename if module is None else getattr(module, "__file__", None) or "")

    def _text(self, code: CodeType) -> None:
        """Add the text of a function, unless it is part of the digest already."""
        file = Path(code.co_filename)
        if file.is_file():
            if (file := file.resolve()) not in self.known:
                self.known.add(file)
                self.lines.add(f"file {file.name} {text_digest(file, file.parent)}")
            return
        for one in _body_of(code.co_filename):  # a cell of a notebook
            if _first_line(one) <= code.co_firstlineno <= (one.end_lineno or one.lineno):
                self.lines.add(f"text {meaning(ast.Module([one], []))}")

    def _value(self, name: str, value: object) -> None:
        if isinstance(value, _IGNORED) or (isinstance(value, str) and _DEVICE.fullmatch(value)):
            return
        if isinstance(value, type | FunctionType):
            self.lines.add(f"{name}={_identity(value)}")
            self._reach(value, name)
            return
        self._reach(type(value), type(value).__qualname__)
        if isinstance(value, ModuleType):
            self._module(name, value)
        elif isinstance(value, PurePath):
            self.lines.add(f"{name}=path {shown_path(Path(value))}")
        elif isinstance(value, enum.Enum):
            self.lines.add(f"{name}={value}")
            self._value(f"{name}.value", value.value)
        elif isinstance(value, _PLAIN):
            self.lines.add(f"{name}={type(value).__name__} {value!r}")
            self._attributes(name, value)
        elif not self._is_seen(value, name):
            self._object(name, value)

    def _object(self, name: str, value: object) -> None:
        if isinstance(value, np.ndarray | np.generic | torch.Tensor):
            self._array(name, value)
            return
        self.lines.add(f"{name}={_identity(type(value))}")
        if isinstance(value, MethodType):
            self._value(f"{name}.__func__", value.__func__)
            self._value(f"{name}.__self__", value.__self__)
        elif isinstance(value, functools.partial):
            self._value(name, (value.func, value.args, value.keywords))
        elif isinstance(value, weakref.ref):
            self._value(f"{name}()", value())
        elif isinstance(value, Mapping):
            self._mapping(name, value)
        elif isinstance(value, set | frozenset):
            for one in value:
                self._value(f"{name}{{}}", one)
            self._attributes(name, value)
        elif isinstance(value, list | tuple):
            if all(type(one) in _PLAIN for one in value):
                self.lines.add(f"{name}={value!r}")
            else:
                for number, one in enumerate(value):
                    self._value(f"{name}[{number}]", one)
            self._attributes(name, value)
        elif isinstance(value, Namespace | SimpleNamespace | nn.Module) or is_dataclass(value) or _is_own(type(value)):
            self._attributes(name, value)
        elif hasattr(value, "__wrapped__"):  # of functools.cache
            self._value(f"{name}.__wrapped__", value.__wrapped__)
        else:
            self._pickled(name, value)

    def _array(self, name: str, value: np.ndarray | np.generic | torch.Tensor) -> None:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                sparse = value.detach().to_sparse_coo().coalesce()
                self._value(f"{name}.indices", sparse.indices())
                self._value(f"{name}.values", sparse.values())
            self.lines.add(f"{name}={value.dtype} {list(value.shape)} {_bytes_of(value)}")
        elif value.dtype.hasobject:
            self._value(name, value.tolist())
        else:
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            self.lines.add(f"{name}=numpy {value.dtype} {list(value.shape)} {content}")

    def _module(self, name: str, module: ModuleType) -> None:
        self.lines.add(f"{name}=module {module.__name__}")
        if not _is_of_library(module) and not self._is_seen(module, name):
            for key, value in vars(module).items():
                if not key.startswith("__"):
                    self.named(f"{name}.{key}", value, getattr(module, "__file__", None) or "")

    def _mapping(self, name: str, value: Mapping[object, object]) -> None:
        for number, (key, one) in enumerate(value.items()):
            place = f"{name}[{key!r}]"
            if not isinstance(key, _PLAIN):
                place = f"{name}[{number}]"
                self._value(f"{place} key", key)
            self._value(place, one)
        if isinstance(value, defaultdict):
            self._value(f"{name}[...]", value.default_factory)
        self._attributes(name, value)

    def _attributes(self, name: str, value: object) -> None:
        for key, one in _attributes(value).items():
            if isinstance(value, nn.Module) and key in _EMPTY:
                if not one:
                    continue
                if "hooks" in key and isinstance(one, Mapping):  # their keys count the hooks of the process
                    one = list(one.values())
            if key != "_torchdynamo_wrapper_id":
                self._value(f"{name}.{key}", one)

    def _pickled(self, name: str, value: object) -> None:
        content = io.BytesIO()
        pickler = _Pickler(content)
        try:
            pickler.dump(value)
        except Exception:  # it has a lambda or the like: its attributes decide
            self._attributes(name, value)
            return
        self.lines.add(f"{name}={PICKLED} {hashlib.sha256(content.getvalue()).hexdigest()}")
        for number, one in enumerate(pickler.parts):
            self._value(f"{name}({number})", one)

    def _is_seen(self, value: object, name: str) -> bool:
        """Return whether an object was found before. If that was with another name, add a line with both."""
        if id(value) not in self._seen:
            self._seen[id(value)] = value, name  # another object cannot get its id
            return False
        if (first := self._seen[id(value)][1]) != name:
            self.lines.add(f"{name} is {first}")
        return True


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
    node, literal = _node_of(function.__code__), dict[str, object]()
    if node is not None:
        places = [*node.args.posonlyargs, *node.args.args]
        pairs = [*zip(places[::-1], node.args.defaults[::-1], strict=False)]
        pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
        literal = {argument.arg: _literal(default) for argument, default in pairs}
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        value, said = parameter.default, literal.get(name, _MISSING)
        if value is not parameter.empty and not (type(said) is type(value) and said == value):
            yield name, value


def _node_of(code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """Return the definition of a function; None if it has no text, or if there are several in its line."""
    found = [
        node
        for one in _body_of(code.co_filename)
        for node in ast.walk(one)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and _first_line(node) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


def _first_line(node: ast.stmt | ast.expr) -> int:
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])


def _identity(value: type | FunctionType) -> str:
    """Return the name of a function or class, and a hash of the user's text: two may have one name."""
    if isinstance(value, type):
        if not _is_own(value):
            return f"{value.__module__}.{value.__qualname__}"
        said = [
            (key, _meaning_of(function.__code__))
            for key, one in vars(value).items()
            for function in _functions_in(one)
            if _is_own(function) and not _is_internal(value, key, one)
        ]
        return f"{value.__qualname__} {digest_of(sorted(said))[:12]}"
    name = value.__code__.co_filename
    if not _is_own(value) and not name.startswith("<"):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{value.__qualname__} {_meaning_of(value.__code__)[:12]}"


def _meaning_of(code: CodeType) -> str:
    node = _node_of(code)
    return _bytecode(code) if node is None else meaning(node)


def _bytecode(code: CodeType) -> str:
    return digest_of([code.co_code.hex(), code.co_names, code.co_varnames, [*map(_constant, code.co_consts)]])


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _bytecode(value)
    if isinstance(value, frozenset):  # its order differs between processes
        return sorted(map(repr, value))
    return [*map(_constant, value)] if isinstance(value, tuple) else repr(value)


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
    return _parsed("".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in linecache.getlines(file)))


@lru_cache(maxsize=64)
def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError:
        return []


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _MISSING


def _functions_in(value: object) -> list[FunctionType]:
    """Return the function of a method, a static method or a class method, and the functions of a property."""
    parts = [value]
    if isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    elif isinstance(value, staticmethod | classmethod):
        parts = [value.__func__]
    return [one for one in parts if isinstance(one, FunctionType)]


def _is_internal(cls: type, name: str, value: object) -> bool:
    """Return whether Python or a library made this attribute of a class, and not the user."""
    if isinstance(value, MemberDescriptorType | GetSetDescriptorType):  # a slot
        return True
    if isinstance(value, FunctionType):
        # torch_geometric generates methods when the first object of a class is created
        return _GENERATED.fullmatch(name) is not None or (
            name in ("propagate", "edge_updater") and value.__module__.endswith(f"{cls.__name__}_{name}")
        )
    return (name.startswith("__") and name.endswith("__")) or (issubclass(cls, enum.Enum) and name.endswith("_"))


def _is_own(value: type | FunctionType) -> bool:
    """Return whether a class or function is the user's."""
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)  # None for a user's file that was imported again since
        return module is None or not _is_of_library(module)
    return is_user_code(value.__code__)


def _is_of_library(module: ModuleType) -> bool:
    file = _file_of(module)
    return module.__name__ != "__main__" and (file is None or is_installed(file))


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None


def _bytes_of(tensor: torch.Tensor) -> str:
    """Return the sha256 of a dense tensor."""
    if tensor.layout is not torch.strided or not tensor.numel() or tensor.is_meta:
        return ""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return hashlib.sha256(plain.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
