"""Scaled features and filled gaps, fitted on the training part of a split alone (`features:` of a recipe).

- A column without a known value in the training part is 0 in all rows. With scaling, so is a constant one.
- A column with only 0 and 1 in the training part is not scaled: it is a flag, or one column of a category.
- Scaling ignores missing values. A missing value then becomes the mean of the scaled training values.
- "indicator" also adds a column of 0 and 1 for each column that has a missing value anywhere, so that all splits have
  the same width.
"""

from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from gt_bench.config.recipe_sections import FeaturesSection
    from gt_bench.data.packed import PackedDataset, PackedHeader

QUANTILES = 1000


def prepared_header(header: "PackedHeader", section: "FeaturesSection | None") -> "PackedHeader":
    """Returns the header with the width that features have after their preparation.

    Args:
        header: header of the dataset.
        section: `features:` of the recipe.

    Raises:
        ValueError: features are categories, or values are missing and the section does not state what they become.
    """
    missing = header.statistics.get("missing", {})
    if section is not None and not isinstance(header.in_dim, int):
        raise ValueError(
            f"features: the features of nodes of {header.name!r} are categories, which are neither scaled nor filled; "
            "remove features, or write quantities with a point (12.0)"
        )
    if missing and (section is None or section.missing == "error"):
        nodes = header.statistics["nodes"]
        listed = ", ".join(f"{column} ({count:,} of {nodes:,} nodes)" for column, count in islice(missing.items(), 5))
        listed += f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ValueError(
            f"features: {header.name!r} has missing values in column {listed} of x, counted from 0; fill them: "
            "--set features.missing=mean (or indicator), in a recipe `features: {missing: mean}`"
        )
    if section is None or section.missing != "indicator":
        return header
    return header.model_copy(update={"in_dim": cast(int, header.in_dim) + len(missing)})


def prepared(packed: "PackedDataset", section: "FeaturesSection | None", split: int) -> "PackedDataset":
    """Returns a dataset with prepared node features.

    Args:
        packed: the dataset.
        section: `features:` of the recipe; None returns the dataset unchanged.
        split: index of the split whose training part is fitted: training nodes, or the nodes of training graphs. With
            targets of edges, all nodes, because training sees the features of all of them.

    Raises:
        ValueError: as `prepared_header`; or with scaling, every column is constant in the training part.
    """
    header = prepared_header(packed.header, section)
    if section is None:
        return packed
    x = packed.array("x").numpy()
    x = (x[:, None] if x.ndim == 1 else x).astype(np.float64)
    if header.row_normalise:
        x /= np.maximum(x.sum(1, keepdims=True), 1e-12)
    train = packed.split("train", split)
    if header.split_kind == "edge":  # training sees all nodes
        rows = np.ones(len(x), bool)
    elif header.split_kind == "graph":
        in_training = torch.zeros(packed.num_graphs, dtype=torch.bool).index_fill(0, train, True)
        rows = in_training.repeat_interleave(packed.sizes).numpy()
    else:
        rows = np.zeros(len(x), bool)
        rows[train.numpy()] = True
    missing = np.isnan(x)
    x = _scaled(x, rows, section.scale, f"{header.name!r}: the train part of split {split}")
    x = _filled(x, rows)
    if section.missing == "indicator":
        gaps = sorted(map(int, header.statistics.get("missing", {})))
        x = np.concatenate([x, missing[:, gaps]], axis=1)
    values = torch.from_numpy(x.astype(np.float32))
    return packed.with_x(values, header.model_copy(update={"row_normalise": False}))


def _scaled(x: np.ndarray, rows: np.ndarray, scale: str, where: str) -> np.ndarray:
    """Return the scaled columns [N, F], NaN where x is. `rows` are those of the training part."""
    train = x[rows]
    known = ~np.isnan(train)
    low = np.where(known, train, np.inf).min(0, initial=np.inf)
    high = np.where(known, train, -np.inf).max(0, initial=-np.inf)
    empty = low > high
    if scale == "none":
        return np.where(empty & ~np.isnan(x), 0.0, x)
    constant = ~(high > low)
    if constant.all():
        count = int(rows.sum())
        raise ValueError(
            f"features: {where} has {count} node{'s' if count > 1 else ''}, in which every column of x is constant, so "
            "that nothing would be left after scaling; use features.scale: none, or another split"
        )
    flags = ~constant & (np.isnan(train) | (train == 0) | (train == 1)).all(0)
    scaled = np.where(constant & ~np.isnan(x), 0.0, x)
    columns = np.flatnonzero(~constant & ~flags)
    if len(columns):
        scaled[:, columns] = _transformer(scale, len(train)).fit(train[:, columns]).transform(x[:, columns])
    return scaled


def _transformer(scale: str, rows: int) -> Any:
    from sklearn.preprocessing import QuantileTransformer, StandardScaler

    if scale == "standard":
        return StandardScaler()
    return QuantileTransformer(n_quantiles=min(QUANTILES, rows), output_distribution="normal", subsample=None)


def _filled(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return x without NaN: they become the mean of the training rows, 0 in a column without any known value there."""
    train = x[rows]
    known = ~np.isnan(train)
    mean = np.where(known, train, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return np.where(np.isnan(x), mean, x)
