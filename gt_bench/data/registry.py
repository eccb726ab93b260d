"""The catalog of datasets: every module of gt_bench/data/families/ with a list `DATASETS` is found automatically."""

import importlib
import pkgutil
import traceback
from functools import cache
from importlib.machinery import FileFinder
from pathlib import Path
from types import ModuleType
from typing import cast

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
        DatasetError: two families have a dataset of the same name, or a family cannot be imported.
    """
    specs: dict[str, DatasetSpec] = {}
    for module in pkgutil.iter_modules(gt_bench.data.families.__path__):
        for spec in _datasets(_family(module)):
            if spec.name in specs:
                raise DatasetError(
                    f"duplicate dataset {spec.name!r}: in {specs[spec.name].prepare.__module__} and in {module.name}; "
                    "rename one"
                )
            specs[spec.name] = spec
    return dict(sorted(specs.items()))


def _family(module: pkgutil.ModuleInfo) -> ModuleType:
    path = str(Path(cast(FileFinder, module.module_finder).path) / f"{module.name}.py")
    try:
        return importlib.import_module(f"gt_bench.data.families.{module.name}")
    except Exception as error:  # a user's file may raise anything
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if isinstance(error, SyntaxError) and error.filename == path:
            lines = [error.lineno]
        problem = str(error) if isinstance(error, DatasetError) else f"{type(error).__name__}: {error}"
        raise DatasetError(
            f"{path}, line {lines[-1] if lines else '?'}: {problem}; correct the file, or move it away"
        ) from error


def _datasets(module: ModuleType) -> list[DatasetSpec] | tuple[DatasetSpec, ...]:
    datasets = getattr(module, "DATASETS", ())
    if not isinstance(datasets, list | tuple) or not all(isinstance(spec, DatasetSpec) for spec in datasets):
        raise DatasetError(f"{module.__file__}: DATASETS must be a list of datasets: DATASETS = [custom_dataset(...)]")
    return datasets


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
        name = name[:100]  # it is repeated in the message
        raise UnknownDataset(
            f"no dataset named {name!r}{nearest(name, list(catalog()))}; expected one of {', '.join(catalog())}, or "
            "a path of your own data: ./NAME (docs/own_data.md)"
        )
    return catalog()[name]
