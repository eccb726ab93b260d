"""A digest of the code that decides a number: comments, docstrings and layout do not count, and neither does code that is not imported.

Starting modules are followed through their imports within this project (gt_models, stages). Imports are read from the source, never executed.
"""

# mypy: disable-error-code="arg-type, union-attr"

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gt_models.registry import model_module
from stages.tasks import task_module

ROOT = Path(__file__).parent.parent
PACKAGES = ("gt_models", "stages")
# keys of a recipe that bring code of their own
PROTOCOLS = {
    "subgraphs": "stages.engine.subgraphs",
    "targets": "stages.engine.targets",
    "start": "stages.engine.weights",
    "processes": "stages.engine.data_parallel",
}


def code_digest(modules: Iterable[str], root: Path = ROOT, without: Iterable[str] = ()) -> str:
    """sha256 over the meaning of `modules` (dotted names) and all project modules they import, directly or not; `without`: see `closure`.

    Raises ModuleNotFoundError for a starting module that does not exist.
    """
    digest = hashlib.sha256()
    for name, of_module in sorted(module_digests(modules, root, without).items()):
        digest.update(f"{name} {of_module}\n".encode())
    return digest.hexdigest()


def module_digests(modules: Iterable[str], root: Path = ROOT, without: Iterable[str] = ()) -> dict[str, str]:
    """What `code_digest` is made of: by name the digest of the meaning of each module."""
    return {name: _read(_path(name, root)).digest for name in closure(modules, root, without)}


def run_modules(model: str, task: str, protocol: Iterable[str] = ()) -> list[str]:
    """Modules whose code, with what they import, decides the numbers of a run of `model` on a dataset with `task`. `protocol`: keys of the
    recipe, some of which bring code of their own (see `PROTOCOLS`)."""
    return [
        model_module(model),
        task_module(task),
        "stages.engine.loop",
        *(PROTOCOLS[key] for key in sorted(PROTOCOLS.keys() & set(protocol))),
    ]


def closure(modules: Iterable[str], root: Path = ROOT, without: Iterable[str] = ()) -> set[str]:
    """Dotted names of `modules` and every project module that they import, directly or not. `without`: imports of `modules` themselves that are left out, unless something else
    that is followed needs them."""
    todo, left_out = list(modules), set(without)
    for name in todo:
        if _path(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} under {root}")
    seen = set(todo)
    todo = [imported for name in todo for imported in _imports(name, root) if imported not in left_out]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports(name, root)
    return seen


def imported_packages(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Top-level packages of others that these modules of the project import, anywhere in their source."""
    paths = [path for name in modules if (path := _path(name, root))]
    return {base.partition(".")[0] for path in paths for level, base, _ in _read(path).imports if not level} - set(PACKAGES)


def _path(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(name: str, root: Path) -> list[str]:
    """Project modules that module `name` imports."""
    path = _path(name, root)
    package = (name if path.name == "__init__.py" else name.rpartition(".")[0]).split(".")
    found = []
    for level, base, names in _read(path).imports:
        if level:
            base = ".".join([*package[: len(package) - level + 1], *([base] if base else [])])
        if base.split(".")[0] in PACKAGES:
            # `from package import module` names a module; `from module import thing` names the module itself
            found += [f"{base}.{n}" if _path(f"{base}.{n}", root) else base for n in names] or [base]
    return [f for f in found if _path(f, root)]


class _Source(NamedTuple):
    """What counts of a file: its `digest`, and its `imports` as (relative level, module, imported names)."""

    digest: str
    imports: list[tuple[int, str, tuple[str, ...]]]


def _read(path: Path) -> _Source:
    stat = path.stat()
    return _read_version(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_version(path: Path, _mtime: int, _size: int) -> _Source:
    tree = ast.parse(path.read_text())
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return _Source(hashlib.sha256(_dump(tree).encode()).hexdigest(), imports)


def _dump(node) -> str:
    """Like ast.dump without positions, docstrings and empty fields, so that it is the same on every Python version."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = value[0] if value else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                    value = value[1:]
            if value is not None and value != [] and name not in ("type_comment", "kind"):
                fields.append(f"{name}={_dump(value)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(_dump(item) for item in node)}]"
    return repr(node)
