"""Names of models.

A model named `edge-transformer` is `gt_models/edge_transformer.py`, the package of that name, or a file in
`gt_models/baselines/`. What its authors' released code does differently is `edge-transformer-released` in
`gt_models/released/`. The file name is the registry: a new model is one new file, and only requested models are
imported.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from gt_models.suggestions import nearest

if TYPE_CHECKING:
    from torch import nn

Level = Literal["graph", "node", "edge", "pair", "hyperedge", "attention"]
LEVELS: tuple[Level, ...] = get_args(Level)
# group of the entry points of packages that load trained models; each is a function of (model, name of its training)
PRETRAINED = "gt_models.pretrained"
# {package: suffix of the names of its models}
_PACKAGES = {"gt_models": "", "gt_models.baselines": "", "gt_models.released": "-released"}
_NOT_MODELS = {
    "baselines",
    "batch",
    "batch_checks",
    "encodings",
    "api",
    "layers",
    "kernels",
    "metadata",
    "registry",
    "released",
    "suggestions",
    "transforms",
}
_INFOS: dict[str, ModelInfo] = {}
_PRETRAINED: list[EntryPoint] = []


class Registration(TypedDict, total=False):
    """Arguments of `register_model` that a model shares with its released form."""

    levels: tuple[Level, ...]
    cost: str
    encodings: tuple[str, ...]
    paper: str
    sparse_x: bool


@dataclass(frozen=True)
class ModelInfo:
    """What a model states about itself.

    Attributes:
        name: name of the model.
        cls: its class. Arguments of the constructor are its hyperparameters.
        levels: of `LEVELS`: what it can predict.
        cost: time per layer as a formula in n (nodes), m (edges) and d (width), for example "n^3 d".
        encodings: names of the encodings it can use (see `gt_models.encodings`).
        paper: authors, title, venue and link.
        sparse_x: whether `batch.x` may be in compressed sparse rows, as a `FeatureEncoder` reads them.
    """

    name: str
    cls: type[nn.Module]
    levels: tuple[Level, ...]
    cost: str
    encodings: tuple[str, ...] = ()
    paper: str = ""
    sparse_x: bool = False


def register_model(
    name: str,
    *,
    levels: tuple[Level, ...],
    cost: str,
    encodings: tuple[str, ...] = (),
    paper: str = "",
    sparse_x: bool = False,
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Registers a model. A class decorator; the arguments are the attributes of `ModelInfo`.

    Raises:
        ValueError: an unknown level, or a name that does not match its file.
    """
    unknown = set(levels) - set(LEVELS)
    if unknown:
        raise ValueError(f"model {name!r}: unknown levels {sorted(unknown)}; known: {LEVELS}")

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        if cls.__module__.startswith("gt_models.") and cls.__module__ not in _places(name):
            raise ValueError(f"model {name!r} must be in {' or '.join(_places(name))}, not in {cls.__module__}")
        _INFOS[name] = ModelInfo(name, cls, tuple(levels), cost, tuple(encodings), paper, sparse_x)
        return cls

    return register


def list_models() -> list[str]:
    """Returns the names of all models, sorted. It lists folders and imports nothing."""
    names = set(_INFOS)
    for package, ending in _PACKAGES.items():
        names |= {name.replace("_", "-") + ending for name in _modules(_folder(package)) - _NOT_MODELS}
    return sorted(names)


@cache
def _modules(folder: Path) -> set[str]:
    """Returns the names of modules in a folder, as of the first call: a leaderboard asks for the models 400 times."""
    return {module.name for module in pkgutil.iter_modules([str(folder)])}


def model_module(name: str) -> str:
    """Returns the dotted name of the module of model `name`.

    Raises:
        KeyError: unknown name; the message has the nearest one.
    """
    if name in list_models():
        for module in _places(name):
            folder = _folder(module)
            if folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file():
                return module
        return _INFOS[name].cls.__module__
    raise KeyError(f"no model named {name!r}{nearest(name, list_models())}; known: {', '.join(list_models())}")


def model_info(name: str) -> ModelInfo:
    """Returns what model `name` states about itself; imports its module.

    Raises:
        KeyError: unknown name; the message has the nearest one.
    """
    if name not in _INFOS:
        importlib.import_module(model_module(name))
    return _INFOS[name]


def create_model(name: str, **arguments) -> nn.Module:
    """Builds a model.

    Args:
        name: name of the model.
        arguments: of its constructor. Every model has `in_dim` (int: width of continuous node features; list: one
            vocabulary size per categorical column), `out_dim` and `level` (one of its levels).

    Raises:
        KeyError: there is no such model; the message has the nearest name.
        TypeError: there is no such argument; the message has the nearest one.
        ValueError: the model does not have this level.
    """
    info = model_info(name)
    known = list(inspect.signature(info.cls).parameters)
    for key in arguments:
        if key not in known:
            raise TypeError(f"model {name!r} has no argument {key!r}{nearest(key, known)}; known: {', '.join(known)}")
    level = arguments.get("level")
    if level is not None and level not in info.levels:
        raise ValueError(f"model {name!r} cannot predict at level {level!r}; it predicts: {', '.join(info.levels)}")
    return info.cls(**arguments)


def register_pretrained(loader: str) -> None:
    """Registers the function that loads trained models, for a package whose entry points are not installed.

    Args:
        loader: "package.module:function", imported at first use. It is called with the name of a model and the name of
            its training.
    """
    _PRETRAINED[:] = [EntryPoint("registered", loader, PRETRAINED)]


def pretrained_loader() -> Callable[[str, str], nn.Module]:
    """Returns the function of `register_pretrained`, else of the entry point in the group "gt_models.pretrained".

    Raises:
        ValueError: there is neither.
    """
    for entry in (*_PRETRAINED, *entry_points(group=PRETRAINED)):
        return entry.load()
    raise ValueError(
        f"no installed package loads trained models (entry points {PRETRAINED!r}): install the benchmark again, or "
        "import it before"
    )


def _folder(package: str) -> Path:
    return Path(__file__).parent.joinpath(*package.split(".")[1:])


def _places(name: str) -> list[str]:
    """Returns the modules that may contain model `name`."""
    packages = [(package, ending) for package, ending in _PACKAGES.items() if name.endswith(ending)]
    return [f"{package}.{name.removesuffix(ending).replace('-', '_')}" for package, ending in packages]
