"""The catalog of datasets: every module of gt_bench/data/families/ with a list `DATASETS` is found automatically."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

import gt_bench.data.families
from gt_bench.config.schema import nearest
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError


class UnknownDataset(DatasetError, KeyError):
    """There is no dataset of that name. The message has the nearest name."""

    __str__ = ValueError.__str__


@cache
def catalog() -> dict[str, DatasetSpec]:
    """Load all families.

    Returns:
        Name -> spec, sorted by name.

    Raises:
        DatasetError: two families have a dataset of the same name.
    """
    specs: dict[str, DatasetSpec] = {}
    for module in pkgutil.iter_modules(gt_bench.data.families.__path__):
        for spec in importlib.import_module(f"gt_bench.data.families.{module.name}").DATASETS:
            if spec.name in specs:
                places = f"in {specs[spec.name].prepare.__module__} and in {module.name}"
                raise DatasetError(f"duplicate dataset {spec.name!r}: {places}", value=spec.name, remedy="rename one")
            specs[spec.name] = spec
    return dict(sorted(specs.items()))


def get_spec(name: str) -> DatasetSpec:
    """Look up a dataset in the catalog, then in datasets.yaml and in entry points of installed packages.

    Args:
        name: its name.

    Returns:
        Its spec.

    Raises:
        UnknownDataset: there is no such dataset.
        DatasetError: the user-supplied dataset of this name cannot be used.
    """
    if name not in catalog():
        from gt_bench.data.declared import declared  # only needed for names outside the catalog

        if (custom := declared(name)) is not None:
            return custom
        hint = nearest(name[:100], dataset_names())
        raise UnknownDataset(
            f"no dataset named {name!r:.100}{hint}",
            value=name,
            remedy="" if hint else "docs/datasets.md has the names; your own data are named by path, as in ./NAME",
        )
    return catalog()[name]


def dataset_names() -> list[str]:
    """Return the names of the catalog, of datasets.yaml and of entry points of installed packages.

    Raises:
        RecipeError: datasets.yaml is not valid YAML.
    """
    from gt_bench.data.declared import GROUP, entries

    return list(dict.fromkeys([*catalog(), *entries(), *(entry.name for entry in entry_points(group=GROUP))]))
