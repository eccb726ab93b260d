"""Declared versions of modules, which are part of the identity of a run.

A module whose code decides numbers may declare `VERSION = 2` at its top level; the default is version 1. If you change
the module so that a number changes, raise its version: runs before and after then have different keys. Golden values
(gt_bench/experiment/golden_values.py) find changes whose version was not raised.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from gt_bench.utils.code_digest import source_file
from gt_bench.utils.errors import UserError

ENCODINGS = "gt_models.encodings"


class VersionError(UserError, ValueError):
    """A version is not a positive integer; the message names file and line."""


def version_of(module: str) -> int:
    """Return the version that a module declares. The module is parsed, not imported.

    Raises:
        VersionError: the version is not a positive integer.
        ModuleNotFoundError: the module does not exist.
    """
    path = source_file(module)
    if path is None:
        raise ModuleNotFoundError(f"no module {module}")
    return version_in(path)


def version_in(path: Path) -> int:
    """Returns the version that a source file declares.

    Raises:
        VersionError: the version is not a positive integer.
    """
    return _declared(path, path.stat().st_mtime_ns)


@cache
def _declared(path: Path, _mtime: int) -> int:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(isinstance(target, ast.Name) and target.id == "VERSION" for target in targets):
            continue
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if type(value) is not int or value < 1:
            remedy = "expected a positive integer literal: VERSION = 2"
            raise VersionError("invalid VERSION", file=path, place=f"line {node.lineno}", value=value, remedy=remedy)
        return value
    return 1


@cache
def encoding_modules() -> dict[str, str]:
    """Return encoding name -> module that declares it. The modules are parsed, so that torch is not imported."""
    package = source_file(ENCODINGS)
    assert package is not None
    return {
        node.args[0].value: f"{ENCODINGS}.{path.stem}"
        for path in sorted(package.parent.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Encoding" and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    }


def modules_of_encodings(names: Iterable[str]) -> dict[str, str]:
    """Return component ("encoding NAME") -> module that declares its version; unknown names are left out."""
    modules = encoding_modules()
    return {f"encoding {name}": modules[name] for name in sorted(names) if name in modules}


def version_text(versions: Mapping[str, int], modified: bool = False) -> str:
    """Return the versions of a run as text."""
    parts = [f"{component} version {version}" for component, version in versions.items()]
    return ", ".join([*parts, "modified"] if modified else parts)
