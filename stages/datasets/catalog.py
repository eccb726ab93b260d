"""All datasets that exist, found by reading this folder: a file with a list `DATASETS` is a family, and nothing else has to be told."""

import difflib
import importlib
import pkgutil
from functools import cache

import stages.datasets
from stages.datasets.inspection import DatasetError
from stages.datasets.spec import DatasetSpec

_ROOMS = {
    "catalog",
    "packed",
    "sources",
    "spec",
    "inspection",
    "prepare",
    "encoded",
    "readers",
    "archives",
    "custom",
    "pickles",
    "miniature",
    "page",
}


class UnknownDataset(DatasetError, KeyError):
    """No dataset of that name; the message names the nearest."""

    __str__ = ValueError.__str__


@cache
def catalog() -> dict[str, DatasetSpec]:
    """Name -> spec, sorted. Raises DatasetError where two families claim one name."""
    specs: dict[str, DatasetSpec] = {}
    for module in pkgutil.iter_modules(stages.datasets.__path__):
        if module.name in _ROOMS:
            continue
        for spec in getattr(importlib.import_module(f"stages.datasets.{module.name}"), "DATASETS", ()):
            if spec.name in specs:
                raise DatasetError(
                    f"two datasets are named {spec.name!r}: one in {specs[spec.name].prepare.__module__}, one in {module.name}"
                )
            specs[spec.name] = spec
    return dict(sorted(specs.items()))


def get_spec(name: str) -> DatasetSpec:
    """The spec of dataset `name`. Raises UnknownDataset with the nearest known name."""
    if name not in catalog():
        near = difflib.get_close_matches(name, catalog(), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownDataset(f"no dataset named {name!r}; {hint}known: {', '.join(catalog())}")
    return catalog()[name]
