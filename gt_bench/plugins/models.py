"""User-supplied models: `path/to/file.py:MyModel`, or a name of an installed package.

Packages declare models as entry points `gt_bench.models`. A class with the decorator `gt_models.register_model` is used
as it is; any other nn.Module is wrapped by `gt_bench.plugins.adapter`. Once found, a model is in the registry under its
name in recipes.
"""

import ast
import hashlib
import inspect
import linecache
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from torch import nn

from gt_bench.config.schema import nearest
from gt_bench.data.readers import file_digest
from gt_bench.plugins.adapter import LEVELS, OwnModelError, adapted, line_of, where
from gt_bench.plugins.captured_values import PICKLED, captured_values
from gt_bench.runtime.module_loader import PREFIX, imported
from gt_bench.utils.code_digest import closure, files_of, meaning, project_modules, text_digest
from gt_bench.utils.digest import digest_of
from gt_bench.utils.entry_points import described, loaded, package_of
from gt_bench.utils.versions import version_of
from gt_models import registry
from gt_models.registry import ModelInfo

GROUP = "gt_bench.models"


@dataclass(frozen=True)
class Source:
    """The text of a user-supplied model.

    Attributes:
        path: its file; None for a notebook.
        root: the folder below which imports of the file count.
        text: the text of a notebook's cell.
        values: what a class reads besides its text, from `captured_values`.
    """

    path: Path | None
    root: Path | None
    text: str = ""
    values: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 of what the text means and of `values`: comments and docstrings do not count."""
        text = text_digest(self.path, self.root) if self.path and self.root else meaning(self.text)
        return digest_of([text, *self.values]) if self.values else text

    @property
    def modules(self) -> list[str]:
        """Modules of this project that the file imports, directly or through others of its folder."""
        return project_modules(files_of(self.path, self.root)) if self.path and self.root else []


_SOURCES: dict[str, Source] = {}


def find(name: str) -> ModelInfo:
    """Looks up a model.

    Args:
        name: a name of the library, `file.py:Class`, or the name of an entry point.

    Returns:
        The model, which is in the registry afterwards.

    Raises:
        KeyError: the name is unknown; the message has the nearest one.
        OwnModelError: a user-supplied model cannot be used.
    """
    held = registry._INFOS.get(name)
    if held is not None and getattr(held.cls, "plain", held.cls).__module__ == "__main__":
        return held  # of the script that is running, which is not run once more
    file, colon, cls = name.rpartition(":")
    if name.endswith(".py") or (colon and file.endswith(".py")):
        return from_file(name, Path(file if colon else name), cls if colon else "")
    if name not in registry._INFOS and name not in registry.list_models() and (entry := _entry(name)):
        return from_entry_point(entry)
    return registry.model_info(name)


def from_file(name: str, path: Path, cls: str) -> ModelInfo:
    """Registers a class of a file.

    Args:
        name: name of the model in recipes.
        path: the file.
        cls: name of the class. Empty for the only model of the file.

    Raises:
        OwnModelError: there is no such file or class, or it is no model.
    """
    if not path.is_file():
        raise OwnModelError(f"{path}: there is no such file; a model of your own is named path/to/file.py:MyModel")
    module = _module_of(path.resolve(), str(path))
    found = _class_of(module, cls, str(path))
    held = registry._INFOS.get(name)
    if held is not None and found in (held.cls, getattr(held.cls, "plain", None)):
        return held
    return _registered(name, found, _source(found, path.resolve(), path.resolve().parent))


def from_entry_point(entry: EntryPoint) -> ModelInfo:
    """Registers a class of an installed package.

    Raises:
        OwnModelError: it cannot be loaded, or is no model.
    """
    found = _checked(loaded(entry, OwnModelError, "module:Class of a torch.nn.Module"), described(entry))
    path = Path(inspect.getfile(found)).resolve()
    parts = found.__module__.split(".")
    root = path.parents[len(parts) - (1 if path.name != "__init__.py" else 0)]
    return _registered(entry.name, found, _source(found, path, root))


def from_class(cls: type[nn.Module]) -> ModelInfo:
    """Registers a class that a program passes to `gt_bench.evaluate`.

    Raises:
        OwnModelError: it is no model, or its text cannot be read, which records depend on.
    """
    _checked(cls, repr(cls))
    if cls.__module__.startswith("gt_models."):
        return next(
            registry.model_info(name) for name in registry.list_models() if registry.model_info(name).cls is cls
        )
    file = _code_file(cls)
    if file and Path(file).is_file():
        path = Path(file).resolve()
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        name, parts = f"{shown}:{cls.__qualname__}", cls.__module__.split(".")
        # a file by itself is read as it is now; the running script and a part of a package cannot be imported alone
        alone = len(parts) == 1 and cls.__module__ != "__main__"
        root = path.parents[len(parts) - 1]
        values = tuple(captured_values(cls, path, root))
        if not alone:
            return _registered(name, cls, Source(path, root, values=values))
        info = find(name)
        _check_unchanged(shown, cls, values, captured_values(getattr(info.cls, "plain", info.cls), path, root))
        return info
    text = _definitions("".join(linecache.getlines(file))) if file else ""
    if not text:
        raise OwnModelError(
            f"the text of {cls.__name__} cannot be read, and records depend on it: write the class into a file or a "
            "notebook's cell"
        )
    return _registered(cls.__qualname__, cls, Source(None, None, text, tuple(captured_values(cls))))


def _source(cls: type, path: Path, root: Path) -> Source:
    """Returns the text of a class that a new process imports, and the values that the import computes."""
    plain = getattr(cls, "plain", cls)
    # pickles may differ between processes
    values = [line for line in captured_values(plain, path, root) if f"={PICKLED} " not in line]
    return Source(path, root, values=tuple(values))


def _check_unchanged(shown: Path, cls: type, values: Sequence[str], in_file: Sequence[str]) -> None:
    """Raises OwnModelError if a program changed what a class of a file reads, because runs import the file again."""
    changed = [line for line in sorted({*values} - {*in_file}) if f"={PICKLED} " not in line]
    if changed:
        raise OwnModelError(
            f"{shown}: {cls.__name__} reads {changed[0]:.200}, which was set after the import; runs import the file "
            'again, where it differs: make it an argument of the constructor and pass set={"model.NAME": ...}, or edit '
            "the file"
        )


def is_own(model: str) -> bool:
    """Returns whether `model` is user-supplied and not of the library. Raises KeyError, OwnModelError."""
    if (
        model in _SOURCES or model not in registry.list_models()
    ):  # of the library only the file is read: an import takes seconds
        find(model)
    return model in _SOURCES


def is_importable(model: str) -> bool:
    """Returns whether a new process finds a user-supplied model by its name.

    True for a model of a file or of an installed package; False for one of a notebook or of the running script.

    Raises:
        KeyError: the name is unknown.
        OwnModelError: the model cannot be used.
    """
    if not is_own(model):
        return False
    cls = find(model).cls
    module = getattr(cls, "plain", cls).__module__
    return _SOURCES[model].path is not None and (module.startswith(PREFIX) or _entry(model) is not None)


def files_digest(model: str, arguments: Mapping[str, object] | None = None) -> str | None:
    """Returns a sha256 of everything that decides a user-supplied model; None for a model of the library.

    That is: its file, what this imports next to it, the files that its `arguments` name, and the versions of the
    modules of this project that it imports.

    Raises:
        KeyError: the name is unknown.
        OwnModelError: the model cannot be used.
    """
    if not is_own(model):
        return None
    source = _SOURCES[model]
    versions = {module: version_of(module) for module in sorted(closure(source.modules))}
    declared = [f"{module}={version}" for module, version in versions.items() if version > 1]
    return hashlib.sha256(
        " ".join([source.digest, *_files_named(find(model).cls, arguments or {}), *declared]).encode()
    ).hexdigest()


def _files_named(cls: type[nn.Module], arguments: Mapping[str, object]) -> list[str]:
    """Returns `argument=sha256` of each argument that is the path of a file or folder, such as weights that are loaded.

    The name of a folder without a slash may be any word, and is not read.
    """
    found = []
    for name, parameter in sorted(inspect.signature(cls).parameters.items()):
        value = arguments.get(name, parameter.default)
        with suppress(OSError, ValueError):  # a word too long for a path, or with a NUL, is none
            if isinstance(value, str | Path) and Path(value).is_file():
                found.append(f"{name}={file_digest(Path(value))}")
            elif isinstance(value, str | Path) and value and os.sep in str(value) and Path(value).is_dir():
                files = sorted(file for file in Path(value).rglob("*") if file.is_file())
                listed = [f"{file.relative_to(value).as_posix()} {file_digest(file)}" for file in files]
                found.append(f"{name}={digest_of(listed)}")
    return found


def taken_names() -> list[str]:
    """Returns a line for each installed entry point whose name is taken."""
    library: set[str] = set(registry.list_models()) - set(_SOURCES)
    seen: dict[str, EntryPoint] = {}
    wrong: list[str] = []
    for entry in entry_points(group=GROUP):
        other = f"the model {entry.name!r} of gt_models" if entry.name in library else None
        if entry.name in seen and seen[entry.name].value != entry.value:
            other = f"{seen[entry.name].value!r} of {package_of(seen[entry.name])}"
        if other:
            wrong.append(f"{described(entry)}: the name is taken by {other}; rename it")
        seen.setdefault(entry.name, entry)
    return wrong


def _entry(name: str) -> EntryPoint | None:
    found = list(entry_points(group=GROUP, name=name))
    if len({entry.value for entry in found}) > 1:
        raise OwnModelError(next(line for line in taken_names() if f" {name} = " in line))
    return found[0] if found else None


def _registered(name: str, cls: type[nn.Module], source: Source) -> ModelInfo:
    """Adds a class to the registry under `name`. Raises OwnModelError if the name is taken."""
    stated = next((info for key, info in registry._INFOS.items() if info.cls is cls and key not in _SOURCES), None)
    if stated is not None:
        info = replace(stated, name=name)
    else:
        from gt_models.encodings import ENCODINGS

        arrays = tuple(sorted({array for encoding in ENCODINGS.values() for array in encoding.arrays}))
        info = ModelInfo(name, adapted(cls), LEVELS, "not stated", arrays)
    held = registry._INFOS.get(name)
    if held is not None and name not in _SOURCES:
        raise OwnModelError(
            f"{where(cls, '__init__')}: the name {name!r} is taken by {held.cls.__module__}.{held.cls.__name__}; "
            "rename the class"
        )
    registry._INFOS[name], _SOURCES[name] = info, source
    return info


def _module_of(path: Path, shown: str) -> ModuleType:
    """Imports a file. Raises ImportFails, and OwnModelError if it registers a name that is taken."""
    before = dict(registry._INFOS)
    module = imported(path, shown)
    name = module.__name__
    for key, info in list(registry._INFOS.items()):
        if key in _SOURCES or info.cls.__module__ != name:
            continue
        if (key in before and before[key].cls.__module__ != name) or registry.model_module(key) != name:
            del registry._INFOS[key]
            registry._INFOS.update({key: before[key]} if key in before else {})
            raise OwnModelError(
                f"{shown}, line {line_of(info.cls)}: register_model({key!r}): the name is taken by another model; "
                "choose another"
            )
    return module


def _class_of(module: ModuleType, name: str, shown: str) -> type[nn.Module]:
    classes = [
        n
        for n, v in vars(module).items()
        if inspect.isclass(v) and issubclass(v, nn.Module) and v.__module__ == module.__name__
    ]
    if not name:
        if len(classes) != 1:
            raise OwnModelError(
                f"{shown}: has {len(classes)} models ({', '.join(classes) or 'none'}); name one: "
                f"{shown}:{(classes or ['MyModel'])[0]}"
            )
        name = classes[0]
    if not hasattr(module, name):
        raise OwnModelError(
            f"{shown}: has no class {name!r}{nearest(name, classes)}; it has: {', '.join(classes) or 'none'}"
        )
    found = getattr(module, name)
    return _checked(found, f"{shown}, line {line_of(found)}: {name}")


def _checked(found: object, what: str) -> type[nn.Module]:
    if inspect.isclass(found) and issubclass(found, nn.Module):
        return found
    kind = "a class" if inspect.isclass(found) else f"a {type(found).__name__}"
    raise OwnModelError(
        f"{what} is {kind}; expected a class that derives from torch.nn.Module: class MyModel(torch.nn.Module):"
    )


def _code_file(cls: type) -> str | None:
    for method in ("__init__", "forward"):
        code = getattr(cls.__dict__.get(method), "__code__", None)
        if code is not None:
            return code.co_filename
    return None


def _definitions(cell: str) -> str:
    """A notebook's cell without what it only calls, so that another number of seeds is no other model.

    IPython's own lines are left out.
    """
    lines = [line for line in cell.splitlines() if not line.lstrip().startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    kept = [
        node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
    ]
    return ast.unparse(ast.Module([*kept], []))
