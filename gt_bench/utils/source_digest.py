"""The text that decides what a file of one's own computes: itself and the files beside it that it imports. Read, never executed."""

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from gt_bench.utils.code_digest import PACKAGES, meaning


def text_digest(path: Path, root: Path) -> str:
    """sha256 over the meaning (comments and docstrings aside) of `path` and of what it imports, directly or not, below `root`."""
    digest = hashlib.sha256()
    for file in files_of(path, root):
        digest.update(f"{file.relative_to(root).as_posix()} {meaning(file.read_bytes())}\n".encode())
    return digest.hexdigest()


def files_of(path: Path, root: Path) -> list[Path]:
    """`path` and the files below `root` that it imports, in order of their names."""
    found: set[Path] = set()
    todo = [path.resolve()]
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            for base, names in imports(file.read_bytes()):
                for name in (base, *(f"{base}.{n}" for n in names)):
                    todo += _files(name, file, root.resolve())
    return sorted(found)


def imports(text: str | bytes) -> list[tuple[str, tuple[str, ...]]]:
    """(module, imported names) of every import; a relative one begins with its dots."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(("." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)))
    return found


def project_modules(files: Iterable[Path]) -> list[str]:
    """Modules of this project that the files import."""
    bases = {base for file in files for base, _ in imports(file.read_bytes())}
    return sorted(base for base in bases if base.split(".")[0] in PACKAGES and base not in PACKAGES)


def _files(name: str, file: Path, root: Path) -> list[Path]:
    level = len(name) - len(name.lstrip("."))
    folder = file.parents[level - 1] if level else root
    places = [folder.joinpath(*name.lstrip(".").split("."))] + (
        [] if level else [file.parent.joinpath(*name.split("."))]
    )
    return [
        found.resolve()
        for place in places
        for found in (place.with_suffix(".py"), place / "__init__.py")
        if place.name and found.is_file() and found.resolve().is_relative_to(root)
    ]
