"""Digests of the code of this project, and the modules that it imports. Files are parsed, never executed.

`code_digest` shows where golden values must be compared again (gt_bench/experiment/modified_code.py). It is part of no
key. Comments, docstrings and layout do not count.
"""

import ast
import contextlib
import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gt_bench.utils.io import WriteError, write_bytes

ROOT = Path(__file__).parents[2]
PACKAGES = ("gt_bench", "gt_models")
PARSED = ROOT / ".golden" / "parsed.json"  # cache of `_read`: parsing 200 modules takes half a second in each process


def code_digest(modules: Iterable[str], root: Path = ROOT, packages: Collection[str] = ()) -> str:
    """Return the sha256 of `modules` and all project modules that they import, directly or not.

    Args:
        modules: dotted names.
        root: folder of the packages.
        packages: count only modules in these packages (or of these names); all if empty.

    Raises:
        ModuleNotFoundError: one of `modules` does not exist.
    """
    files = _closure(modules, root)
    names = [
        name
        for name in sorted(files)
        if not packages or any(f"{name}.".startswith(f"{package}.") for package in packages)
    ]
    lines = [f"{name} {_read(files[name]).digest}\n" for name in names]
    _save_parsed()
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def closure(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Return the names of `modules` and of all project modules that they import, directly or not.

    Raises:
        ModuleNotFoundError: one of `modules` does not exist.
    """
    return set(_closure(modules, root))


def _closure(modules: Iterable[str], root: Path) -> dict[str, Path]:
    """Return {name: file} of `closure`."""
    todo, files = list(modules), dict[str, Path]()
    for name in todo:
        if source_file(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} under {root}")
    while todo:
        name = todo.pop()
        if name not in files and (path := source_file(name, root)):
            files[name] = path
            todo += _imports(name, root)
    return files


@cache
def source_file(module: str, root: Path = ROOT) -> Path | None:
    """Return the file of a project module as of the first call; None if there is none.

    A process that shows all results asks for 1,000 names 13 times each, which would take a second.
    """
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imports(text: str | bytes | ast.AST) -> list[tuple[str, tuple[str, ...]]]:
    """Return (module, imported names) of every import in a source text; relative modules begin with their dots."""
    tree = text if isinstance(text, ast.AST) else ast.parse(text)
    imported: list[tuple[str, tuple[str, ...]]] = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imported += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported.append(("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)))
    return imported


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements. `ast.walk` also yields expressions: of 190 modules it takes 0.3 seconds longer."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from _statements(child)


def meaning(text: str | bytes | ast.AST) -> str:
    """Return the sha256 of a module's source without comments, docstrings and layout.

    Raises:
        SyntaxError: the text is not Python.
    """
    tree = text if isinstance(text, ast.AST) else ast.parse(text)
    return hashlib.sha256(_dump(tree).encode()).hexdigest()


def _imports(name: str, root: Path) -> list[str]:
    """Return the project modules that module `name` imports."""
    path = source_file(name, root)
    if path is None:
        return []
    package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    modules: list[str] = []
    for base, names in _read(path).imports:
        if level := len(base) - len(base.lstrip(".")):
            base = ".".join(filter(None, [*package[: len(package) - level + 1], base.lstrip(".")]))
        if base.split(".")[0] in PACKAGES:
            # `from package import module` names a module; `from module import thing` names the module itself
            modules += [f"{base}.{n}" if source_file(f"{base}.{n}", root) else base for n in names] or [base]
    return [f for f in modules if source_file(f, root)]


class _Source(NamedTuple):
    """The digest of a file, and its imports as `imports` returns them."""

    digest: str
    imports: list[tuple[str, tuple[str, ...]]]


def _read(path: Path) -> _Source:
    stat = path.stat()
    return _read_version(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_version(path: Path, _mtime: int, _size: int) -> _Source:
    text = path.read_bytes()
    if not path.is_relative_to(ROOT):
        return _parse(text)
    name, content = path.relative_to(ROOT).as_posix(), hashlib.sha256(text).hexdigest()
    with contextlib.suppress(KeyError, ValueError, TypeError):  # a damaged entry is parsed again
        known, digest, found = _parsed()[name]
        if known == content:
            return _Source(digest, [(base, tuple(names)) for base, names in found])
    source = _parse(text)
    _parsed()[name] = [content, *source]
    _new.append(name)
    return source


def _parse(text: bytes) -> _Source:
    tree = ast.parse(text)
    return _Source(meaning(tree), imports(tree))


_new: list[str] = []  # names of entries of `_parsed` that are not in the file


@cache
def _parsed() -> dict[str, list[Any]]:
    """Return {path below ROOT: [sha256 of the file's bytes, *_Source]}, as the last process wrote it."""
    try:
        content = json.loads(PARSED.read_text(encoding="utf-8"))
        return dict(content["files"]) if content["parser"] == _parser() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _parser() -> str:
    """Return what decides the content of `_Source` besides the file: this module and the version of Python."""
    return f"{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()} {sys.version_info[:2]}"


def _save_parsed() -> None:
    """Write `_parsed` to its file if it has new entries. Of two processes that write at once, one is in vain."""
    if _new:
        _new.clear()
        with contextlib.suppress(WriteError):  # an installed package may be read-only
            # without an indent json is written in C: a process that parses all models writes 17 times
            write_bytes(PARSED, json.dumps({"parser": _parser(), "files": _parsed()}).encode())


def _dump(node: object) -> str:
    """Return `ast.dump` without positions, docstrings and empty fields: it is the same on every Python version."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = value[0] if value else None
                if (
                    isinstance(first, ast.Expr)
                    and isinstance(first.value, ast.Constant)
                    and isinstance(first.value.value, str)
                ):
                    value = value[1:]
            if value is not None and value != [] and name not in ("type_comment", "kind"):
                fields.append(f"{name}={_dump(value)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(_dump(item) for item in node)}]"
    return repr(node)
