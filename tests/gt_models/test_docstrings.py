"""Every public name of the library has a docstring, and that of a model describes every argument."""

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


def public(module) -> dict[str, object]:
    """Classes and functions that `module` defines, and the methods and properties of these classes, by dotted name."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            found[name] = value
            found |= {f"{name}.{key}": method for key, method in vars(value).items() if _is_public_method(key, method)}
        elif inspect.isfunction(value):
            found[name] = value
    return found


def _is_public_method(name: str, value: object) -> bool:
    kinds = (staticmethod, classmethod, property, cached_property, FunctionType)
    return (
        not name.startswith("_")
        and name not in USUAL
        and isinstance(value, kinds)
        and getattr(value, "__name__", name) != "<lambda>"
    )


def says(module, name: str, value: object) -> bool:
    """Whether an object has a docstring.

    A method may also have that of the method that it overrides in this library.
    """
    owner, _, method = name.rpartition(".")
    bases = getattr(module, owner).__mro__ if owner else ()
    ours = [value, *(vars(base).get(method) for base in bases if base.__module__.startswith("gt_models"))]
    return any(getattr(one, "__doc__", None) for one in ours if one is not None)


@pytest.mark.parametrize("name", modules())
def test_every_public_name_states_what_it_is(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    silent = [f"{name}.{key}" for key, value in public(module).items() if not says(module, key, value)]
    assert not silent, f"without a docstring: {', '.join(silent)}"


@pytest.mark.parametrize("name", [name for name in modules() if name.startswith("gt_models.released.")])
def test_every_override_of_released_code_states_what_differs(name):
    module = importlib.import_module(name)
    methods = [(key, value) for key, value in public(module).items() if "." in key and not key.endswith(".forward")]
    assert not [key for key, value in methods if not getattr(value, "__doc__", None)]


def test_what_the_library_shows_is_described():
    for name in gt_models.__all__:
        assert inspect.getdoc(getattr(gt_models, name)), f"gt_models.{name} has no docstring"


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


def test_an_argument_without_a_word_is_found():
    class Silent:
        """Does something.

        Args:
            width, depth: of it.
        """

        __module__ = "gt_models.silent"

    assert described(Silent) >= {"width", "depth"}
    assert "rate" not in described(Silent)
