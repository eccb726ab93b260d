"""User-supplied models: `path/to/file.py:MyModel`, `package.module:MyModel`, or an entry point `gt_bench.models`.

A class with the decorator `gt_models.register_model` is used as it is; any other nn.Module is wrapped by
`gt_bench.plugins.adapter`. Once found, a model is in the registry under its name in recipes.

The identity of a class is the content of its file and of the files of its folder that it imports
(gt_bench/utils/user_code.py). A class that no new process can import, of a notebook or of the running script, has none:
its runs are computed each time.
"""

import inspect
import secrets
import sys
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gt_bench.config.schema import nearest
from gt_bench.plugins.model_errors import OwnModelError, line_of, where
from gt_bench.runtime.module_loader import imported
from gt_bench.utils.code_digest import closure
from gt_bench.utils.digest import digest_of
from gt_bench.utils.entry_points import described, loaded, package_of
from gt_bench.utils.user_code import project_modules, source_digest, source_files
from gt_bench.utils.versions import version_of
from gt_models import registry
from gt_models.registry import ModelInfo

if TYPE_CHECKING:
    from torch import nn

GROUP = "gt_bench.models"


@dataclass(frozen=True)
class Source:
    """What decides a user-supplied model.

    Attributes:
        path: its file.
        root: folder in which its absolute imports are looked up.
    """

    path: Path
    root: Path

    @property
    def digest(self) -> str:
        """sha256 of its files, and of the versions of the modules of this project that they import."""
        modules = closure(project_modules(source_files(self.path, self.root)))
        versions = {module: version for module in sorted(modules) if (version := version_of(module)) > 1}
        return digest_of([source_digest(self.path, self.root), versions])


@dataclass(frozen=True)
class Unidentified:
    """A class that no new process can import. `digest` is drawn once, so that no other call finds its runs."""

    digest: str


_SOURCES: dict[str, Source | Unidentified] = {}


def is_known(name: str) -> bool:
    """Returns whether a name is one of the library or of an installed package, or of a class in a file or a module."""
    return ":" in name or name.endswith(".py") or name in registry.list_models() or _entry(name) is not None


def find(name: str) -> ModelInfo:
    """Looks up a model.

    Args:
        name: a name of the library, `file.py:Class`, `package.module:Class`, or the name of an entry point.

    Returns:
        The model, which is in the registry afterwards.

    Raises:
        KeyError: the name is unknown; the message has the nearest one.
        OwnModelError: a user-supplied model cannot be used.
    """
    file, colon, cls = name.rpartition(":")
    if name.endswith(".py") or (colon and file.endswith(".py")):
        return from_file(name, Path(file if colon else name), cls if colon else "")
    if colon:
        return from_module(name)
    if name not in registry._INFOS and name not in registry.list_models() and (entry := _entry(name)):
        return from_entry_point(entry)
    info = registry.model_info(name)
    if name in _SOURCES or info.cls.__module__.startswith("gt_models."):
        return info
    return from_class(info.cls)  # a program registered it and passes its name


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
        remedy = "a model of your own is named path/to/file.py:MyModel"
        raise OwnModelError("there is no such file", file=path, remedy=remedy)
    module = _module_of(path.resolve(), str(path))
    model = _class_of(module, cls, str(path))
    held = registry._INFOS.get(name)
    if held is not None and model in (held.cls, getattr(held.cls, "plain", None)):
        return held
    return _registered(name, model, Source(path.resolve(), path.resolve().parent))


def from_module(name: str) -> ModelInfo:
    """Registers a class `package.module:Class`.

    Raises:
        OwnModelError: it cannot be imported, or is no model.
    """
    try:
        loaded_class = EntryPoint(name, name, GROUP).load()
    except Exception as error:  # a module may raise anything
        module, _, cls = name.partition(":")
        file = Path(*module.split(".")).with_suffix(".py")
        remedy = f"use {file}:{cls}" if file.is_file() else "correct the name, or add its folder to PYTHONPATH"
        problem = "expected package.module:Class that Python can import; it raises"
        raise OwnModelError(f"{problem} {type(error).__name__}: {error}", file=name, remedy=remedy) from error
    return _of_module(name, loaded_class, name)


def from_entry_point(entry: EntryPoint) -> ModelInfo:
    """Registers a class of an installed package.

    Raises:
        OwnModelError: it cannot be loaded, or is no model.
    """
    return _of_module(entry.name, loaded(entry, OwnModelError, "module:Class of a torch.nn.Module"), described(entry))


def _of_module(name: str, found: object, what: str) -> ModelInfo:
    cls = _checked(found, file=what)
    path = Path(inspect.getfile(cls)).resolve()
    depth = len(cls.__module__.split(".")) - (path.name != "__init__.py")
    return _registered(name, cls, Source(path, path.parents[depth]))


def from_class(cls: "type[nn.Module]") -> ModelInfo:
    """Registers a class that a program passes to `gt_bench.evaluate`.

    A class at the top level of an imported module is found by its file or module, as it is there now. Any other class
    is `Unidentified`.

    Raises:
        OwnModelError: it is no model.
    """
    _checked(cls, file=getattr(cls, "__name__", type(cls).__name__))
    if cls.__module__.startswith("gt_models."):
        return next(
            registry.model_info(name) for name in registry.list_models() if registry.model_info(name).cls is cls
        )
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None) or ""
    importable = cls.__module__ != "__main__" and getattr(module, cls.__qualname__, None) is cls
    if not (importable and file.endswith(".py") and Path(file).is_file()):
        return _registered(cls.__qualname__, cls, Unidentified(secrets.token_hex(32)))
    if "." in cls.__module__:
        return find(f"{cls.__module__}:{cls.__qualname__}")
    path = Path(file).resolve()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return find(f"{shown}:{cls.__qualname__}")


def is_own(model: str) -> bool:
    """Returns whether `model` is user-supplied and not of the library. Raises KeyError, OwnModelError."""
    if (
        model in _SOURCES or model not in registry.list_models()
    ):  # of the library only the file is read: an import takes seconds
        find(model)
    return model in _SOURCES


def is_importable(model: str) -> bool:
    """Returns whether a new process finds a user-supplied model by its name; False for a model of the library.

    Raises:
        KeyError: the name is unknown.
        OwnModelError: the model cannot be used.
    """
    return is_own(model) and isinstance(_SOURCES[model], Source)


def files_digest(model: str) -> str | None:
    """Returns the sha256 that identifies a user-supplied model; None for a model of the library.

    Raises:
        KeyError: the name is unknown.
        OwnModelError: the model cannot be used.
    """
    return _SOURCES[model].digest if is_own(model) else None


def taken_names() -> list[OwnModelError]:
    """Return an error for each installed entry point whose name is taken, with the name as its value."""
    library: set[str] = set(registry.list_models()) - set(_SOURCES)
    seen: dict[str, EntryPoint] = {}
    wrong: list[OwnModelError] = []
    for entry in entry_points(group=GROUP):
        other = f"the model {entry.name!r} of gt_models" if entry.name in library else None
        if entry.name in seen and seen[entry.name].value != entry.value:
            other = f"{seen[entry.name].value!r} of {package_of(seen[entry.name])}"
        if other:
            problem = f"the name is taken by {other}"
            wrong.append(OwnModelError(problem, file=described(entry), value=entry.name, remedy="rename it"))
        seen.setdefault(entry.name, entry)
    return wrong


def _entry(name: str) -> EntryPoint | None:
    providers = list(entry_points(group=GROUP, name=name))
    if len({entry.value for entry in providers}) > 1:
        raise next(error for error in taken_names() if error.value == name)
    return providers[0] if providers else None


def _registered(name: str, cls: "type[nn.Module]", source: Source | Unidentified) -> ModelInfo:
    """Adds a class to the registry under `name`. Raises OwnModelError if the name is taken."""
    stated = next((info for key, info in registry._INFOS.items() if info.cls is cls and key not in _SOURCES), None)
    if stated is not None:
        info = replace(stated, name=name)
    else:
        from gt_bench.plugins.adapter import adapted
        from gt_models.encodings import ENCODINGS

        arrays = tuple(sorted({array for encoding in ENCODINGS.values() for array in encoding.arrays}))
        info = ModelInfo(name, adapted(cls), ("node", "graph"), "not stated", arrays)
    held = registry._INFOS.get(name)
    if held is not None and name not in _SOURCES:
        problem = f"the name {name!r} is taken by {held.cls.__module__}.{held.cls.__name__}"
        raise OwnModelError(problem, **where(cls, "__init__"), value=name, remedy="rename the class")
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
                f"register_model({key!r}): the name is taken by another model",
                file=shown,
                place=f"line {line_of(info.cls)}",
                value=key,
                remedy="choose another",
            )
    return module


def _class_of(module: ModuleType, name: str, shown: str) -> "type[nn.Module]":
    from torch import nn

    classes = [
        n
        for n, v in vars(module).items()
        if inspect.isclass(v) and issubclass(v, nn.Module) and v.__module__ == module.__name__
    ]
    if not name:
        if len(classes) != 1:
            problem = f"has {len(classes)} models ({', '.join(classes) or 'none'})"
            raise OwnModelError(problem, file=shown, remedy=f"name one: {shown}:{(classes or ['MyModel'])[0]}")
        name = classes[0]
    if not hasattr(module, name):
        problem, remedy = f"has no class {name!r}{nearest(name, classes)}", f"it has: {', '.join(classes) or 'none'}"
        raise OwnModelError(problem, file=shown, value=name, remedy=remedy)
    model = getattr(module, name)
    return _checked(model, file=shown, place=f"line {line_of(model)}: {name}")


def _checked(model: object, **at: str) -> "type[nn.Module]":
    from torch import nn

    if inspect.isclass(model) and issubclass(model, nn.Module):
        return model
    if isinstance(model, nn.Module):
        name = type(model).__name__
        raise OwnModelError(f"is an instance of {name}", **at, value=name, remedy=f"pass the class: {name}")
    kind = "a class" if inspect.isclass(model) else f"a {type(model).__name__}"
    remedy = "expected a class that derives from torch.nn.Module: class MyModel(torch.nn.Module):"
    raise OwnModelError(f"is {kind}", **at, remedy=remedy)
