"""Users' code: the .py files that decide a model, a metric or a function that makes a dataset, and their digest.

These are a file and the files of its own folder tree that it imports. They are parsed, never executed. What they read
at run time (other files, environment variables) and what they import from elsewhere is not part of the digest.
"""

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

from gt_bench.utils.code_digest import PACKAGES, imports, source_file

INSTALLED = {"site-packages", "dist-packages"}


def source_files(path: Path, root: Path | None = None) -> dict[str, Path]:
    """Return {path below `root`: file} of a file and the files of its folder tree that it imports, directly or not.

    Args:
        path: the file.
        root: folder in which its absolute imports are looked up: that of the file, or that of its package.
    """
    path = path.resolve()
    root = path.parent if root is None else root.resolve()
    tree = root / path.relative_to(root).parts[0] if path.parent != root else root
    files: dict[str, Path] = {}
    todo = [path]
    while todo:
        file = todo.pop()
        name = file.relative_to(root).as_posix()
        if name in files:
            continue
        files[name] = file
        for module in _imported(file.read_bytes()):
            level = len(module) - len(module.lstrip("."))
            parts = [part for part in module.split(".") if part]
            if level > len(file.parents) or (not level and parts[0] in PACKAGES):
                continue
            place = file.parents[level - 1] if level else root
            places = [place / "__init__.py"] if level else []
            for part in parts:  # importing a.b.c also executes a/__init__.py and a/b/__init__.py
                place = place / part
                places += [place / "__init__.py", place.with_suffix(".py")]
            todo += [
                one for one in places if (one.is_file() and one.is_relative_to(tree) and tree.name not in INSTALLED)
            ]
    return files


def source_digest(path: Path, root: Path | None = None) -> str:
    """Return the sha256 of the bytes of `source_files`, in hexadecimal; arguments as there."""
    files = sorted(source_files(path, root).items())
    lines = [f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for name, file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def project_modules(files: dict[str, Path]) -> list[str]:
    """Return the modules of this project that `source_files` import."""
    found = {module for file in files.values() for module in _imported(file.read_bytes())}
    own = {module for module in found if module.split(".")[0] in PACKAGES}
    return sorted(module for module in own.difference(PACKAGES) if source_file(module))


@lru_cache(maxsize=512)  # the page of results asks for the same files 150 times
def _imported(text: bytes) -> frozenset[str]:
    """Return the names that a source text imports: `from a import b` may be the module a or the module a.b."""
    try:
        found = imports(ast.parse(text))
    except SyntaxError:  # whoever executes the file reports it
        return frozenset()
    names = {base for base, _ in found if base.strip(".")}
    return frozenset(names | {f"{base}{'' if base.endswith('.') else '.'}{name}" for base, of in found for name in of})
