"""Folders as OGB and TUDataset store them on disk, also those that one's own scripts write in these formats.

- OGB (ogb 1.3): raw/edge.csv.gz, raw/num-node-list.csv.gz, raw/num-edge-list.csv.gz, optionally raw/node-feat.csv.gz
  and raw/edge-feat.csv.gz, raw/node-label.csv.gz or raw/graph-label.csv.gz, and split/NAME/train.csv.gz, valid.csv.gz
  and test.csv.gz. Any raw/NAME.csv.gz with a row per target can name a split: `temporal:node_year`.
- TUDataset (Morris et al. 2020): NAME_A.txt, NAME_graph_indicator.txt, NAME_graph_labels.txt or
  NAME_graph_attributes.txt, and optionally labels and attributes of nodes and edges; in the folder or in its raw/.
"""

import gzip
from pathlib import Path
from typing import cast

import numpy as np

from gt_bench.data.custom.arrays import MAX_ID, as_declared, check_whole_numbers, convert_arrays
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.splits import no_column
from gt_bench.data.readers import dataset_errors, ids_to_split
from gt_bench.utils.errors import DatasetError

FEW = 1000  # distinct values of a label next to attributes, each of which becomes a column


def form_of(folder: Path) -> str | None:
    """Return "ogb" or "tu" for a folder of this form, otherwise None."""
    if (folder / "raw/edge.csv.gz").exists() or (folder / "raw/data.npz").exists():
        return "ogb"
    return "tu" if _tu_files(folder) else None


def files_of(folder: Path) -> list[Path]:
    """Return the files that decide a folder of this form, sorted: without what loaders have made of them."""
    if form_of(folder) == "ogb":
        return sorted(path for part in ("raw", "split") for path in (folder / part).rglob("*") if path.is_file())
    return _tu_files(folder)


def level_of_folder(folder: Path) -> str:
    """Return "node" or "graph": what the targets of a folder belong to."""
    return "node" if form_of(folder) == "ogb" and (folder / "raw/node-label.csv.gz").exists() else "graph"


def read_folder(folder: Path, level: str, description: Description, by: str | None) -> dict[str, np.ndarray]:
    """Read a folder.

    Args:
        folder: a folder for which `form_of` is not None.
        level: "node" or "graph".
        description: what is declared.
        by: the column by which the data are split.

    Returns:
        Arguments of `PackedWriter.graphs`, and "by".

    Raises:
        DatasetError: a file is missing or invalid.
    """
    if level not in ("node", "graph"):
        raise DatasetError(f"{folder}: a folder of this form has targets of nodes or graphs; use a task of these")
    return (_from_tu if form_of(folder) == "tu" else _from_ogb)(folder, level, description, by)


# OGB


def _from_ogb(folder: Path, level: str, description: Description, column: str | None) -> dict[str, np.ndarray]:
    raw = folder / "raw"
    if not (raw / "edge.csv.gz").exists():
        raise DatasetError(
            f"{raw}/data.npz: the binary form of OGB is not read; save the graphs as CSV files, or "
            "write a function load() that returns Data"
        )
    label = raw / f"{level}-label.csv.gz"
    if not label.exists():
        raise DatasetError(f"{label}: no such file; a dataset of OGB has node-label.csv.gz or graph-label.csv.gz")
    arrays = {
        "edge_index": np.ascontiguousarray(_csv(raw / "edge.csv.gz", width=2).T),
        "num_nodes": _csv(raw / "num-node-list.csv.gz", width=1)[:, 0],
        "num_edges": _csv(raw / "num-edge-list.csv.gz", width=1)[:, 0],
        "y": _csv(label),
    }
    check_whole_numbers(arrays["edge_index"], "edge ids", raw / "edge.csv.gz", MAX_ID)
    nodes = int(arrays["num_nodes"].sum())
    for key, name, rows in (("x", "node-feat", nodes), ("edge_attr", "edge-feat", arrays["edge_index"].shape[1])):
        path = raw / f"{name}.csv.gz"
        if path.exists():
            arrays[key] = as_declared(_rows(_csv(path), rows, path), key, description)
    arrays.setdefault("x", np.zeros((nodes, 1), np.int64))
    count = nodes if level == "node" else len(arrays["num_nodes"])
    y = _rows(arrays["y"], count, label)
    arrays["y"] = y[:, 0] if y.shape[1] == 1 else y
    own = description.split is None or description.split.kind == "given"
    if own and (split := _ogb_split(folder, count)) is not None:
        arrays["split"] = split
    by = {}
    if column is not None:
        path = raw / f"{column}.csv.gz"
        if not path.exists():
            raise no_column(
                column, sorted(p.name.removesuffix(".csv.gz") for p in raw.glob("*.csv.gz")), f"{raw}: split"
            )
        by = {"by": _rows(_csv(path, numbers=False), count, path)[:, 0]}
    return convert_arrays(arrays, folder) | by


def _ogb_split(folder: Path, count: int) -> np.ndarray | None:
    kinds = sorted(path for path in (folder / "split").glob("*") if path.is_dir())
    if not kinds:
        return None
    if len(kinds) > 1:
        raise DatasetError(
            f"{folder}/split: has {', '.join(path.name for path in kinds)}; keep one, or draw a split: --split random"
        )
    paths = [kinds[0] / f"{part}.csv.gz" for part in ("train", "valid", "test")]
    if missing := next((path for path in paths if not path.exists()), None):
        raise DatasetError(f"{missing}: no such file; add it, or draw a split: --split random")
    ids = [_csv(path, width=1)[:, 0] for path in paths]
    try:
        return ids_to_split(count, *ids)
    except DatasetError as error:
        raise DatasetError(f"{kinds[0]}: {error}; correct it, or draw a split: --split random") from error


def _csv(path: Path, width: int | None = None, numbers: bool = True) -> np.ndarray:
    """Return a gzipped table without a header [rows, columns]."""
    import pandas as pd

    if not path.exists():
        raise DatasetError(f"{path}: no such file; a dataset of OGB has it")
    with dataset_errors(path, "not a readable table"):
        found = cast(np.ndarray, pd.read_csv(path, header=None, skip_blank_lines=False).to_numpy())
    if numbers and found.dtype.kind not in "iufb":
        wrong = np.argwhere(np.vectorize(lambda cell: isinstance(cell, str))(found))
        row, column = wrong[0].tolist() if len(wrong) else (0, 0)
        raise DatasetError(
            f"{path}: row {row}, column {column} (counted from 0) is {str(found[row, column])!r:.60}; expected a number"
        )
    _check_blank(path)
    if width is not None and found.shape[1] != width:
        raise DatasetError(f"{path}: has {found.shape[1]} columns, expected {width}")
    return found


def _check_blank(path: Path) -> None:
    """Raise DatasetError for empty lines, which would be read as missing values or shift the rows."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = content.rstrip().split(b"\n")
    if blank := next((number for number, line in enumerate(lines, 1) if not line.strip()), None):
        raise DatasetError(f"{path}: line {blank} is empty; write nan, or the number of an unknown label")


def _rows(array: np.ndarray, rows: int, path: Path) -> np.ndarray:
    if len(array) != rows:
        raise DatasetError(f"{path}: has {len(array):,} rows, expected {rows:,}")
    return array


# TUDataset


def _tu_files(folder: Path) -> list[Path]:
    """Return the files NAME_*.txt of the folder or of its raw/, if NAME_A.txt is one of them."""
    for place in (folder, folder / "raw"):
        if matrices := sorted(place.glob("*_A.txt")):
            return sorted(place.glob(f"{matrices[0].name.removesuffix('A.txt')}*.txt"))
    return []


def _from_tu(folder: Path, level: str, description: Description, column: str | None) -> dict[str, np.ndarray]:
    found = _tu_files(folder)
    prefix = next(path.name.removesuffix("A.txt") for path in found if path.name.endswith("_A.txt"))
    paths = {path.stem.removeprefix(prefix): path for path in found}
    if level != "graph":
        raise DatasetError(f"{folder}: a TUDataset has targets of graphs; use a task of graphs")
    if column is not None:
        raise no_column(column, ["no columns, so use random or k-fold"], f"{folder}: split")
    if "graph_indicator" not in paths:
        raise DatasetError(f"{folder}/{prefix}graph_indicator.txt: no such file; a TUDataset has it")
    indicator = _ids(_txt(paths["graph_indicator"])[:, 0], paths["graph_indicator"], MAX_ID)
    if (np.diff(indicator) < 0).any():
        row = int(np.flatnonzero(np.diff(indicator) < 0)[0]) + 2
        raise DatasetError(
            f"{paths['graph_indicator']}: line {row}: rows of a graph must be adjacent, in the order of graphs"
        )
    num_nodes = np.bincount(indicator)
    edges = _ids(_txt(paths["A"]), paths["A"], len(indicator))
    if edges.shape[1] != 2:
        raise DatasetError(f"{paths['A']}: has {edges.shape[1]} columns, expected 2: row and column of an entry")
    graph = indicator[edges[:, 0]]
    if (wrong := np.flatnonzero(graph != indicator[edges[:, 1]])).size:
        raise DatasetError(
            f"{paths['A']}: line {wrong[0] + 1}: joins nodes of two graphs; ids must run on over all graphs: add the "
            "number of nodes of the graphs before"
        )
    without = len(num_nodes) - len(np.unique(graph))
    if edges.size and without and edges.max() < num_nodes.max() and not description.isolated:
        raise DatasetError(
            f"{paths['A']}: ids go only up to {edges.max() + 1} of {len(indicator)} nodes, and {without} of "
            f"{len(num_nodes)} graphs have no edge; ids must run on over all graphs: add the number of nodes of the "
            "graphs before, or --isolated if this is meant"
        )
    order = np.argsort(graph, kind="stable")
    starts = num_nodes.cumsum() - num_nodes
    arrays = {
        "num_nodes": num_nodes,
        "num_edges": np.bincount(graph, minlength=len(num_nodes)),
        "edge_index": (edges - starts[graph][:, None])[order].T.astype(np.int32),
        "y": _tu_targets(paths, len(num_nodes), folder, description),
    }
    x = _tu_features(paths, "node", len(indicator))
    arrays["x"] = np.zeros((len(indicator), 1), np.int64) if x is None else x
    edge_attr = _tu_features(paths, "edge", len(edges))
    if edge_attr is not None:
        arrays["edge_attr"] = edge_attr[order]
    return convert_arrays(arrays, folder)


def _tu_targets(paths: dict[str, Path], graphs: int, folder: Path, description: Description) -> np.ndarray:
    """Return targets: labels numbered in sorted order, or attributes."""
    names = [key for key in ("graph_labels", "graph_attributes") if key in paths]
    names = [key for key in names if key in (description.target or names) and key not in (description.drop or ())]
    if len(names) != 1:
        found = "both graph_labels and" if names else "neither graph_labels nor"
        raise DatasetError(
            f"{folder}: has {found} graph_attributes, one of which is the target"
            + ("; choose: --target graph_labels or --target graph_attributes" if names else "")
        )
    y = _rows(_txt(paths[names[0]]), graphs, paths[names[0]])
    if names[0] == "graph_attributes":
        y = y.astype(np.float64)
    elif y.shape[1] == 1 and y.dtype.kind in "iu" and "regression" not in (description.task or ""):
        return np.unique(y[:, 0], return_inverse=True)[1].reshape(-1).astype(np.int64)
    return y[:, 0] if y.shape[1] == 1 else y


def _tu_features(paths: dict[str, Path], what: str, rows: int) -> np.ndarray | None:
    """Return labels as categories; next to attributes, one column of 0 and 1 per label."""
    labels, attributes = paths.get(f"{what}_labels"), paths.get(f"{what}_attributes")
    categories = None
    if labels is not None:
        categories = _rows(_txt(labels), rows, labels)
        if categories.dtype.kind not in "iu":
            raise DatasetError(f"{labels}: has a number that is not whole; labels are categories")
        categories = categories - (categories.min(axis=0) if len(categories) else 0)
    if attributes is None:
        return categories
    quantities = _rows(_txt(attributes), rows, attributes).astype(np.float64)
    if not np.isfinite(quantities).all():
        raise DatasetError(f"{attributes}: has a number that is not finite")
    if categories is None:
        return quantities
    widths = (categories.max(axis=0, initial=0) + 1).tolist()
    if max(widths) > FEW:
        raise DatasetError(f"{labels}: has labels up to {max(widths) - 1}, too many for a column each; remove the file")
    return np.concatenate([quantities, *(np.eye(width)[column] for width, column in zip(widths, categories.T))], axis=1)


def _ids(numbers: np.ndarray, path: Path, limit: int) -> np.ndarray:
    """Return ids that a file counts from 1, from 0."""
    wrong = np.argwhere(~((numbers >= 1) & (numbers <= limit) & (numbers == np.floor(numbers))))
    if len(wrong):
        place = tuple(wrong[0])
        raise DatasetError(f"{path}: line {place[0] + 1}: {numbers[place]} is not a whole number from 1 to {limit}")
    return numbers.astype(np.int64) - 1


def _txt(path: Path) -> np.ndarray:
    """Return comma-separated numbers [rows, columns]: int64 if all are whole numbers, else float64."""
    import pandas as pd

    with dataset_errors(path, "not a readable table of numbers"):
        found = cast(np.ndarray, pd.read_csv(path, header=None, skipinitialspace=True).to_numpy())
        _check_blank(path)
    if found.dtype.kind not in "iuf":
        raise DatasetError(f"{path}: {_not_a_number(path)}; expected comma-separated numbers")
    return found


def _not_a_number(path: Path) -> str:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        for cell in line.split(","):
            try:
                float(cell)
            except ValueError:
                return f"line {number}: {cell.strip()!r:.60} is not a number"
    return "has something else than numbers"
