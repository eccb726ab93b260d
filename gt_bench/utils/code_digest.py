"""A hash of the code that a run imports: it says where golden values must be compared again (gt_bench/experiment/golden_values.py); no key contains it.

Starting modules are followed through their imports within this project. Imports are read from the source, never executed; comments,
docstrings and layout do not count.
"""

import ast
import hashlib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("gt_bench", "gt_models")


def code_digest(modules: Iterable[str], root: Path = ROOT, packages: Collection[str] = ()) -> str:
    """sha256 over `modules` and all project modules that they import, directly or not.

    Args:
        modules: dotted names.
        root: folder of the packages.
        packages: only modules in these packages (or of these names) count; all if empty.

    Raises:
        ModuleNotFoundError: a starting module does not exist.
    """
    names = sorted(closure(modules, root))
    if packages:
        names = [name for name in names if any(f"{name}.".startswith(f"{package}.") for package in packages)]
    lines = [f"{name} {_read(path).digest}\n" for name in names if (path := source_file(name, root))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def closure(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Dotted names of `modules` and of every project module that they import, directly or not. Raises as `code_digest`."""
    todo, seen = list(modules), set[str]()
    for name in todo:
        if source_file(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} under {root}")
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports(name, root)
    return seen


def imported_packages(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Top-level packages of others that these modules of the project import, anywhere in their source."""
    paths = [path for name in modules if (path := source_file(name, root))]
    return {base.partition(".")[0] for path in paths for level, base, _ in _read(path).imports if not level} - set(
        PACKAGES
    )


def source_file(module: str, root: Path = ROOT) -> Path | None:
    """The file of a module of the project; None where there is none."""
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def meaning(text: str | bytes) -> str:
    """sha256 of a module's text without comments, docstrings and layout. Raises SyntaxError."""
    return hashlib.sha256(_dump(ast.parse(text)).encode()).hexdigest()


def _imports(name: str, root: Path) -> list[str]:
    """Project modules that module `name` imports."""
    path = source_file(name, root)
    if path is None:
        return []
    package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    found: list[str] = []
    for level, base, names in _read(path).imports:
        if level:
            base = ".".join([*package[: len(package) - level + 1], *([base] if base else [])])
        if base.split(".")[0] in PACKAGES:
            # `from package import module` names a module; `from module import thing` names the module itself
            found += [f"{base}.{n}" if source_file(f"{base}.{n}", root) else base for n in names] or [base]
    return [f for f in found if source_file(f, root)]


class _Source(NamedTuple):
    """What counts of a file: its `digest`, and its `imports` as (relative level, module, imported names)."""

    digest: str
    imports: list[tuple[int, str, tuple[str, ...]]]


def _read(path: Path) -> _Source:
    stat = path.stat()
    return _read_version(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_version(path: Path, _mtime: int, _size: int) -> _Source:
    text = path.read_text(encoding="utf-8")
    imports: list[tuple[int, str, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return _Source(meaning(text), imports)


def _dump(node: object) -> str:
    """Like ast.dump without positions, docstrings and empty fields, so that it is the same on every Python version."""
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
