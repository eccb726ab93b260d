"""A digest of the code that decides a number: comments, docstrings and layout do not count, and neither does code that is not imported.

Starting modules are followed through their imports within this project (gt_models, stages). Imports are read from the source, never executed.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gt_models.registry import model_module
from stages.tasks import task_module

ROOT = Path(__file__).parent.parent
PACKAGES = ("gt_models", "stages")


def code_digest(modules: Iterable[str], root: Path = ROOT) -> str:
    """sha256 over the meaning of `modules` (dotted names) and all project modules they import, directly or not.

    Raises ModuleNotFoundError for a starting module that does not exist.
    """
    digest = hashlib.sha256()
    for name in sorted(closure(modules, root)):
        digest.update(f"{name} {_module_digest(_path(name, root))}\n".encode())
    return digest.hexdigest()


def run_modules(model: str, task: str) -> list[str]:
    """Modules whose code, with what they import, decides the numbers of a run of `model` on a dataset with `task`."""
    return [model_module(model), task_module(task), "stages.engine.loop"]


def closure(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Dotted names of `modules` and every project module that they import, directly or not."""
    seen: set[str] = set()
    todo = list(modules)
    for name in todo:
        if _path(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} under {root}")
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports(name, _path(name, root), root)
    return seen


def _path(name: str, root: Path) -> Path | None:
    base = root.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(name: str, path: Path, root: Path) -> list[str]:
    found = []
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")
                base = ".".join([*parent[: len(parent) - node.level + 1], *([node.module] if node.module else [])])
            # `from package import module` names a module; `from module import thing` names the module itself
            found += [f"{base}.{a.name}" if _path(f"{base}.{a.name}", root) else base for a in node.names]
    return [f for f in found if f.split(".")[0] in PACKAGES and _path(f, root)]


@cache
def _parse_cached(path: Path, stamp: tuple[int, int]) -> ast.Module:
    return ast.parse(path.read_text())


def _parse(path: Path) -> ast.Module:
    stat = path.stat()
    return _parse_cached(path, (stat.st_mtime_ns, stat.st_size))


def _module_digest(path: Path) -> str:
    return hashlib.sha256(_dump(_parse(path)).encode()).hexdigest()


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
