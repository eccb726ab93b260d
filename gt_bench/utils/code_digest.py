"""Digests of source code, and the modules and files that code imports. Files are parsed, never executed.

`code_digest` covers modules of this project: it shows where golden values must be compared again
(gt_bench/experiment/modified_code.py) and is part of no key. `text_digest` covers a user's file and the files of its
folder that it imports. Comments, docstrings and layout do not count.
"""

import ast
import hashlib
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("gt_bench", "gt_models")


def code_digest(modules: Iterable[str], root: Path = ROOT, packages: Collection[str] = ()) -> str:
    """Return the sha256 of `modules` and all project modules that they import, directly or not.

    Args:
        modules: dotted names.
        root: folder of the packages.
        packages: count only modules in these packages (or of these names); all if empty.

    Raises:
        ModuleNotFoundError: one of `modules` does not exist.
    """
    names = sorted(closure(modules, root))
    if packages:
        names = [name for name in names if any(f"{name}.".startswith(f"{package}.") for package in packages)]
    lines = [f"{name} {_read(path).digest}\n" for name in names if (path := source_file(name, root))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def closure(modules: Iterable[str], root: Path = ROOT) -> set[str]:
    """Return the names of `modules` and of all project modules that they import, directly or not.

    Raises:
        ModuleNotFoundError: one of `modules` does not exist.
    """
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
    """Return the third-party top-level packages that these project modules import anywhere in their source."""
    paths = [path for name in modules if (path := source_file(name, root))]
    bases = {base.partition(".")[0] for path in paths for base, _ in _read(path).imports}
    return bases - {"", *PACKAGES}  # "": relative imports


def source_file(module: str, root: Path = ROOT) -> Path | None:
    """Return the file of a project module; None if there is none."""
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def text_digest(path: Path, root: Path) -> str:
    """Return the sha256 of the meaning of a file and of the files below `root` that it imports, directly or not."""
    digest = hashlib.sha256()
    for file in files_of(path, root):
        digest.update(f"{file.relative_to(root).as_posix()} {meaning(file.read_bytes())}\n".encode())
    return digest.hexdigest()


def files_of(path: Path, root: Path) -> list[Path]:
    """Return `path` and the files below `root` that it imports, directly or not, sorted."""
    found: set[Path] = set()
    todo = [path.resolve()]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            for base, names in _imports_of_text(file.read_bytes()):
                for name in (base, *(f"{base}.{n}" for n in names)):
                    todo += _local_files(name, file, root.resolve())
    return sorted(found)


def project_modules(files: Iterable[Path]) -> list[str]:
    """Return the modules of this project that the files import."""
    bases = {base for file in files for base, _ in imports(file.read_bytes())}
    return sorted(base for base in bases if base.split(".")[0] in PACKAGES and base not in PACKAGES)


def imports(text: str | bytes | ast.AST) -> list[tuple[str, tuple[str, ...]]]:
    """Return (module, imported names) of every import in a source text; relative modules begin with their dots."""
    tree = text if isinstance(text, ast.AST) else ast.parse(text)
    found: list[tuple[str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)))
    return found


@lru_cache(maxsize=512)
def _imports_of_text(text: bytes) -> list[tuple[str, tuple[str, ...]]]:
    """`imports`, once per content: the page of results asks for the same files 150 times."""
    return imports(text)


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
    found: list[str] = []
    for base, names in _read(path).imports:
        if level := len(base) - len(base.lstrip(".")):
            base = ".".join(filter(None, [*package[: len(package) - level + 1], base.lstrip(".")]))
        if base.split(".")[0] in PACKAGES:
            # `from package import module` names a module; `from module import thing` names the module itself
            found += [f"{base}.{n}" if source_file(f"{base}.{n}", root) else base for n in names] or [base]
    return [f for f in found if source_file(f, root)]


def _local_files(name: str, file: Path, root: Path) -> list[Path]:
    """Return the files below `root` that an import of `name` in `file` may read."""
    level = len(name) - len(name.lstrip("."))
    folder = file.parents[level - 1] if level else root
    places = [folder.joinpath(*name.lstrip(".").split("."))]
    if not level:
        places.append(file.parent.joinpath(*name.split(".")))
    return [
        found.resolve()
        for place in places
        for found in (place.with_suffix(".py"), place / "__init__.py")
        if place.name and found.is_file() and found.resolve().is_relative_to(root)
    ]


class _Source(NamedTuple):
    """The digest of a file, and its imports as `imports` returns them."""

    digest: str
    imports: list[tuple[str, tuple[str, ...]]]


def _read(path: Path) -> _Source:
    stat = path.stat()
    return _read_version(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_version(path: Path, _mtime: int, _size: int) -> _Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return _Source(meaning(tree), imports(tree))


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
