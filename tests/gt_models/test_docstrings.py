"""Public methods have docstrings, and that of a model describes every argument."""

import importlib
import inspect
import pkgutil
import re
import sys
from types import FunctionType

import pytest

import gt_models
from gt_models import list_models, model_info
from gt_models.layers.cached import cached_property

# with the same meaning in every module of torch
USUAL = {"reset_parameters", "extra_repr"}


def modules() -> list[str]:
    """All modules, except for those that need an optional package (triton)."""
    found = [m.name for m in pkgutil.walk_packages(gt_models.__path__, "gt_models.")]
    return ["gt_models", *(name for name in found if not name.endswith("_triton"))]


def public_methods(module) -> dict[str, object]:
    """Methods and properties of the classes that `module` defines, by dotted name. ruff checks the rest."""
    kinds = (staticmethod, classmethod, property, cached_property, FunctionType)
    return {
        f"{owner.__name__}.{key}": value
        for owner in vars(module).values()
        if inspect.isclass(owner) and owner.__module__ == module.__name__ and not owner.__name__.startswith("_")
        for key, value in vars(owner).items()
        if isinstance(value, kinds) and not key.startswith("_") and key not in USUAL
        if getattr(value, "__name__", key) != "<lambda>"
    }


def says(module, name: str, value: object) -> bool:
    """Whether an object has a docstring.

    A method may also have that of the method that it overrides in this library.
    """
    owner, _, method = name.rpartition(".")
    bases = getattr(module, owner).__mro__ if owner else ()
    ours = [value, *(vars(base).get(method) for base in bases if base.__module__.startswith("gt_models"))]
    return any(getattr(one, "__doc__", None) for one in ours if one is not None)


@pytest.mark.parametrize("name", modules())
def test_every_public_method_has_a_docstring_of_its_own_or_of_what_it_overrides(name):
    module = importlib.import_module(name)
    assert not [key for key, value in public_methods(module).items() if not says(module, key, value)]


@pytest.mark.parametrize("name", [name for name in modules() if name.startswith("gt_models.released.")])
def test_every_override_of_released_code_states_what_differs(name):
    methods = public_methods(importlib.import_module(name)).items()
    assert not [key for key, value in methods if not key.endswith(".forward") and not getattr(value, "__doc__", None)]


def described(cls: type) -> set[str]:
    """Arguments in the docstrings of a model and its bases (`name, name: text`), and of a model that one refers to."""
    text = " ".join(
        " ".join((base.__doc__ or "").split()) for base in cls.__mro__ if base.__module__.startswith("gt_models")
    )
    found = {name for names in re.findall(r"(\w+(?:, \w+)*): ", text) for name in names.split(", ")}
    others = re.findall(r"The others: see `(\w+)`", cls.__doc__ or "")
    return found.union(*(described(getattr(sys.modules[cls.__module__], name)) for name in others))


@pytest.mark.parametrize("name", list_models())
def test_every_argument_of_a_model_is_described(name):
    cls = model_info(name).cls
    missing = [argument for argument in inspect.signature(cls).parameters if argument not in described(cls)]
    assert not missing, f"{cls.__module__}.{cls.__qualname__} does not describe {', '.join(missing)}"
