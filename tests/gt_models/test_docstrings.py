"""Public methods have docstrings, and that of a model describes every argument."""

import inspect
import pkgutil
import re
import sys

import pytest

import gt_models
from gt_models import list_models, model_info

# with the same meaning in every module of torch


def modules() -> list[str]:
    """All modules, except for those that need an optional package (triton)."""
    found = [m.name for m in pkgutil.walk_packages(gt_models.__path__, "gt_models.")]
    return ["gt_models", *(name for name in found if not name.endswith("_triton"))]


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
