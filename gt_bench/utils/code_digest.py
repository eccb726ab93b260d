"""Digests of source code, and the modules and files that code imports. Files are parsed, never executed.

`code_digest` covers modules of this project: it shows where golden values must be compared again
(gt_bench/experiment/modified_code.py) and is part of no key. `text_digest` covers a user's file and the user's files
that it imports: of its folder, of PYTHONPATH, and of packages that are installed with `pip install -e`. Comments,
docstrings and layout do not count.
"""

import ast
import contextlib
import hashlib
import json
import linecache
import sys
import sysconfig
from collections.abc import Collection, Iterable
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import Any, NamedTuple

from gt_bench.utils.io import WriteError, write_json

ROOT = Path(__file__).parents[2]
PACKAGES = ("gt_bench", "gt_models")
PARSED = ROOT / ".golden" / "parsed.json"  # cache of `_read`: parsing 200 modules takes half a second in each process
_STDLIB = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})


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
    _save_parsed()
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
    """Return the sha256 of the meaning of a file and of all user's files that it imports, directly or not.

    Args:
        path: the file.
        root: the first folder in which imports are looked up.
    """
    digest = hashlib.sha256()
    for file, name in sorted(modules_of(path, root).items(), key=lambda one: PurePosixPath(one[1])):
        digest.update(f"{name} {meaning(file.read_bytes())}\n".encode())
    return digest.hexdigest()


def files_of(path: Path, root: Path) -> list[Path]:
    """Return `path` and all user's files that it imports, directly or not, sorted. Arguments as in `text_digest`."""
    return sorted(modules_of(path, root))


def modules_of(path: Path, root: Path) -> dict[Path, str]:
    """Return {file: its path in the folder from which it is imported} of `files_of`. Arguments as in `text_digest`."""
    root = root.resolve()
    found: dict[Path, str] = {}
    todo = [(path.resolve(), root)]
    while todo:
        file, folder = todo.pop()
        if file not in found:
            found[file] = file.relative_to(folder).as_posix()
            for base, names in _imports_of_text(file.read_bytes()):
                prefix = base if base.endswith(".") else f"{base}."  # of `from . import name`
                for name in (base, *(f"{prefix}{n}" for n in names)):
                    todo += _user_files(name, file, folder, root)
    return found


def is_installed(path: Path) -> bool:
    """Return whether a file belongs to Python, to an installed package or to this project, and not to the user."""
    return (
        bool({"site-packages", "dist-packages"} & set(path.parts))
        or any(path.is_relative_to(folder) for folder in _STDLIB)
        or any(path.is_relative_to(ROOT / package) for package in PACKAGES)
    )


def is_user_code(code: CodeType) -> bool:
    """Return whether code is the user's. Generated code, such as the constructor of a dataclass, is not."""
    return _is_user_file(code.co_filename) and not (
        code.co_filename.startswith("<") and not linecache.getlines(code.co_filename)
    )


@cache
def _is_user_file(name: str) -> bool:
    return not is_installed(Path(name).resolve())


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
    found = [file for place in places if place.name for file in (place.with_suffix(".py"), place / "__init__.py")]
    parents = [parent / "__init__.py" for place in places for parent in place.parents[: name.lstrip(".").count(".")]]
    if any(file.is_file() for file in found):
        found += [file for file in parents if file.is_file() and meaning(file.read_bytes()) != meaning("")]
    return [file.resolve() for file in found if file.is_file() and file.resolve().is_relative_to(root)]


def _user_files(name: str, file: Path, folder: Path, root: Path) -> list[tuple[Path, Path]]:
    """Return (file, folder from which it is imported) of the user's files that an import of `name` in `file` reads."""
    top = name.partition(".")[0]
    if found := _local_files(name, file, folder):
        # below site-packages, the neighbours of a package are other packages
        return [(one, folder) for one in found if not (is_installed(one) and _top(one, folder) != _top(file, folder))]
    if not top:  # relative
        return []
    if folder != root and (found := _local_files(name, root / "_", root)):
        return [(one, root) for one in found]
    elsewhere = _import_folder(top)
    return [] if elsewhere is None else [(one, elsewhere) for one in _local_files(name, elsewhere / "_", elsewhere)]


def _top(file: Path, folder: Path) -> str:
    return file.relative_to(folder).parts[0]


def _import_folder(top: str) -> Path | None:
    """Return the folder from which Python imports a user's top-level module; None for other modules.

    `sys.modules` is not read: it may have a module of this name that another file imported from its own folder.
    """
    if top in sys.stdlib_module_names or top in PACKAGES:
        return None
    specs = (finder.find_spec(top, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next((spec for spec in specs if spec is not None), None)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        place = Path(next(iter(spec.submodule_search_locations))).resolve()
    elif spec.origin and spec.origin.endswith(".py"):
        place = Path(spec.origin).resolve()
    else:
        return None
    return None if is_installed(place) else place.parent


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
            write_json(PARSED, {"parser": _parser(), "files": _parsed()})


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
