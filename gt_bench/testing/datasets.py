"""Datasets that only golden runs have: miniatures of user-supplied data, whose tasks no dataset of a paper has.

Their shapes are in gt_bench/data/shapes.json. Recipes on them are in suites/SUITE/golden/, and their cells in no grid.
"""

from collections.abc import Mapping
from pathlib import Path

from gt_bench.data.registry import get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.standin import miniature


def _prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    miniature(spec, folder)


def _spec(name: str, task: str, metric: str, level: str) -> DatasetSpec:
    # like all user-supplied data, they have `content`: only with it, features may be missing
    return DatasetSpec(
        name, task, metric, _prepare, arguments={"content": "a miniature"}, level=level, split_kind=level
    )


DATASETS = {
    spec.name: spec
    for spec in (
        _spec("golden-links", "link-prediction", "mrr", "edge"),
        _spec("golden-edge-classes", "edge-classification", "accuracy", "edge"),
        _spec("golden-edge-numbers", "edge-regression", "mae", "edge"),
        _spec("golden-node-numbers", "node-regression", "mae", "node"),
    )
}


def spec_of(name: str) -> DatasetSpec:
    """Returns a dataset of this module or, as `get_spec`, of the catalog.

    Raises:
        UnknownDataset: there is no such dataset.
        DatasetError: the user-supplied dataset of this name cannot be used.
    """
    return DATASETS[name] if name in DATASETS else get_spec(name)
