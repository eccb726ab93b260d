"""All datasets that exist, found by reading data/families/: a file with a list `DATASETS` is a family, and nothing else has to be specified."""

import difflib
import importlib
import pkgutil
import traceback
from functools import cache
from importlib.machinery import FileFinder
from pathlib import Path
from types import ModuleType
from typing import cast

import gt_bench.data.families
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError


class UnknownDataset(DatasetError, KeyError):
    """No dataset of that name; the message names the nearest."""

    __str__ = ValueError.__str__


@cache
def catalog() -> dict[str, DatasetSpec]:
    """Name -> spec, sorted. Raises DatasetError where two families claim one name or a family's file cannot be imported."""
    specs: dict[str, DatasetSpec] = {}
    for module in pkgutil.iter_modules(gt_bench.data.families.__path__):
        for spec in _datasets(_family(module)):
            if spec.name in specs:
                raise DatasetError(
                    f"two datasets are named {spec.name!r}: one in {specs[spec.name].prepare.__module__}, one in {module.name}"
                )
            specs[spec.name] = spec
    return dict(sorted(specs.items()))


def _family(module: pkgutil.ModuleInfo) -> ModuleType:
    path = str(Path(cast(FileFinder, module.module_finder).path) / f"{module.name}.py")
    try:
        return importlib.import_module(f"gt_bench.data.families.{module.name}")
    except Exception as error:  # whatever a user's file may raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line = (
            error.lineno if isinstance(error, SyntaxError) and error.filename == path else lines[-1] if lines else "?"
        )
        said = str(error) if isinstance(error, DatasetError) else f"{type(error).__name__}: {error}"
        raise DatasetError(f"{path}, line {line}: {said}; correct the file, or move it away") from error


def _datasets(module: ModuleType) -> list[DatasetSpec] | tuple[DatasetSpec, ...]:
    datasets = getattr(module, "DATASETS", ())
    if not isinstance(datasets, list | tuple) or not all(isinstance(spec, DatasetSpec) for spec in datasets):
        raise DatasetError(f"{module.__file__}: DATASETS must be a list of datasets: DATASETS = [custom_dataset(...)]")
    return datasets


def get_spec(name: str) -> DatasetSpec:
    """The spec of dataset `name`: of a file of this folder, or of one's own. Raises UnknownDataset with the nearest known name."""
    if name not in catalog():
        from gt_bench.data.declared import declared  # only a name that no family has is looked for there

        if (own := declared(name)) is not None:
            return own
        name = name[:100]  # it is echoed
        near = difflib.get_close_matches(name, catalog(), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownDataset(f"no dataset named {name!r}; {hint}known: {', '.join(catalog())}")
    return catalog()[name]
