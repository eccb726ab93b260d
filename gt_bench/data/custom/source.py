"""Open user-supplied data (a folder, an npz file, a function) and read them as blocks of arrays."""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.custom.arrays import as_declared, check_edge_index, convert_arrays, with_reverse_edges
from gt_bench.data.custom.columns import (
    Column,
    categories_in,
    counted,
    ranged,
    roles_of,
)
from gt_bench.data.custom.description import FILE, TABLES, Description, described, description_file
from gt_bench.data.custom.folders import files_of, form_of, level_of_folder, read_folder
from gt_bench.data.custom.join import joined
from gt_bench.data.custom.pyg import Graphs, from_graphs, level_of
from gt_bench.data.custom.splits import SplitSection, no_column
from gt_bench.data.custom.tables import Table, tables_of
from gt_bench.data.custom.tables import read_folder as read_tables
from gt_bench.data.custom.targets import task_of_array, task_of_columns
from gt_bench.data.readers import read_npz
from gt_bench.utils.errors import DatasetError, nearest

LINK = "link-prediction"
BY = "split."  # prefix of arrays of an npz file that a split can name
NEEDED, OPTIONAL = ("x", "edge_index", "y"), ("num_nodes", "num_edges", "edge_attr", "split")
ARRAYS = (*NEEDED, *OPTIONAL)


@dataclass(frozen=True)
class Given:
    """Data returned by a function.

    Attributes:
        load: returns the data.
        text: text that decides the digest of the dataset.
        where: name of the data for error messages.
        path: the file of the function, next to which a description may be.
        fixed: whether `text` decides the data. Those of a user's function may come from files that have changed, so
            that each `prepare` calls it again.
    """

    load: Callable[[], Any]
    text: str
    where: str
    path: Path | None = None
    fixed: bool = False


Source = str | Path | Callable[[], Graphs] | Given


def level_of_task(task: str) -> str:
    """Return what the targets of a task belong to: "node", "edge" or "graph"."""
    return "edge" if task == LINK else task.partition("-")[0]


def description_of(source: Source) -> Description:
    """Read the description beside the data; an empty one if there is none."""
    if isinstance(source, Given):
        return described(source.path)
    return Description() if callable(source) else described(Path(source))


def content_of(source: Source) -> str:
    """Compute a digest of the content of the files, or of the text of the function, in hexadecimal."""
    digest = hashlib.sha256()
    if isinstance(source, Given):
        digest.update(source.text.encode())
        files = [description_file(source.path)] if source.path else []
    elif callable(source):
        digest.update(inspect.getsource(source).encode())
        files = []
    elif (path := Path(source)).is_dir():
        names = [f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")]
        files = (files_of(path) if form_of(path) else [path / name for name in names]) + [path / FILE]
    else:
        files = [path, description_file(path)]
    for file in files:
        if file.is_file():
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@dataclass
class Reader:
    """A source and how it is read.

    Attributes:
        source: where the data are.
        description: what is declared, including what is written beside the data.
        task: the task; None as long as it is not known, for `level` and `infer_task`.
        made_from: the content for which `inherited` was declared; None for any.
        inherited: what datasets.yaml declares.
        columns: how each column is used; set while the data are read.
        labels: values of the classes in the order of their numbers, if they are not 0, 1, ...; set while the data are
            read.
    """

    source: Source
    description: Description
    task: str | None = None
    made_from: str | None = None
    inherited: Description = field(default_factory=Description)
    columns: list[Column] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        """Text that decides, with the content of the source, the digest of the dataset."""
        return json.dumps([self.task, self.description.content()], sort_keys=True)

    @property
    def section(self) -> SplitSection | None:
        """The declared split, with its column."""
        section = self.description.split
        return section.model_copy(update={"column": self.by}) if section and self.by else section

    @property
    def by(self) -> str | None:
        """The column by which the data are split."""
        section = self.description.split
        if section is None or section.kind not in ("temporal", "grouped"):
            return None
        key = "time" if section.kind == "temporal" else "group"
        return section.column or getattr(self.description, key) or key

    @property
    def where(self) -> str:
        """Name of the data for error messages."""
        if isinstance(self.source, Given):
            return self.source.where
        return f"{self.source.__module__}.{self.source.__qualname__}()" if callable(self.source) else str(self.source)

    @cached_property
    def opened(self) -> Any:
        """The data as they are: tables by name, the path of a folder of OGB or TUDataset, arrays by name, or graphs.

        Raises:
            DatasetError: there are no data, or the tables are invalid.
        """
        source = self.source
        if isinstance(source, Given) or callable(source):
            data = source.load() if isinstance(source, Given) else source()
            tables = tables_of(data, self.where, self.description)
            return data if tables is None else tables
        path = Path(source)
        if path.is_dir():
            return path if form_of(path) else read_tables(path, self.description)
        if path.suffix == ".npz":
            return read_npz(path)
        raise DatasetError(f"{path}: neither a folder with nodes.csv and edges.csv nor an npz file")

    @property
    def level(self) -> str:
        """What targets belong to: "node", "graph", "edge", or "link" for link prediction.

        Raises:
            DatasetError: the data leave it open.
        """
        if self.task:
            return "link" if self.task == LINK else level_of_task(self.task)
        opened = self.opened
        if isinstance(opened, Path):
            return level_of_folder(opened)
        if _are_tables(opened):
            return _level_of_tables(opened, self.description)
        if isinstance(opened, dict):
            return _level_of_arrays(opened, self.where)
        return level_of(opened, self.where)

    def infer_task(self) -> str:
        """Decide the task by the type of the targets: words and whole numbers are classes, other numbers quantities.

        Raises:
            DatasetError: the data leave it open; the message names the options.
        """
        level = self.level
        if _are_tables(self.opened):
            table = self.opened["graphs" if level == "graph" else f"{level}s"]
            roles = roles_of(table, self._declared, level)
            names = [column for column, role in roles.items() if role == "label"]
            if not names:
                raise DatasetError(
                    f"{table.path}: no column label (or y) with the targets; it has {', '.join(table.columns)}: "
                    "--target COLUMN, or --task link-prediction"
                )
            return task_of_columns(table, names, level)
        trial = replace(self, task=f"{level}-", columns=[])
        trial.opened = self.opened
        return task_of_array(next(trial.blocks())["y"], level, self.where)

    @property
    def of_arrays(self) -> bool:
        """Whether the types of arrays decide what is a category: not of tables."""
        return not _are_tables(self.opened)

    @property
    def numbered(self) -> bool:
        """Whether edges name nodes by numbers that the user has counted from 0 or 1."""
        opened = self.opened
        if isinstance(opened, Path):
            return form_of(opened) == "ogb"
        return self.of_arrays or "id" not in roles_of(opened["nodes"], self._declared, self.level).values()

    @property
    def _declared(self) -> Description:
        """The description, with the column of the split as time or group."""
        section, described = self.section, self.description
        if section is None or section.column is None or section.column.lower() in ("id", "graph"):
            return described
        if section.column in (described.id, described.graph):
            return described
        return Description(**{"time" if section.kind == "temporal" else "group": section.column}).over(described)

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Read the data.

        Yields:
            Arguments of `PackedWriter.graphs` for one or more graphs. If targets belong to edges, also `target`: the
            column of edge_index of each target.

        Raises:
            DatasetError: the data are invalid; the message names the file.
        """
        self.columns.clear()
        level, first = self.level, True
        for block in self._blocks(level):
            if first and not _are_tables(self.opened):
                self.columns += _columns_of(block, level)
            first = False
            if level in ("edge", "link"):
                block = {**block, "target": np.arange(block["edge_index"].shape[1])}
            yield with_reverse_edges(block) if self.description.undirected else block

    def _blocks(self, level: str) -> Iterator[dict[str, np.ndarray]]:
        opened, description, by = self.opened, self._declared, self.by
        if isinstance(opened, Path):
            yield read_folder(opened, level, description, by)
        elif _are_tables(opened):
            yield joined(opened, description, self.task or "", level, by, self.columns, self.labels)
        elif isinstance(opened, dict):
            yield _from_arrays(dict(opened), level, description, by, self.where)
        else:
            yield from from_graphs(opened, self.where, level, description, by)


def _are_tables(opened: Any) -> bool:
    return isinstance(opened, dict) and all(isinstance(table, Table) for table in opened.values())


def _level_of_tables(tables: Mapping[str, Table], description: Description) -> str:
    """Decide by where targets are."""
    if "graphs" in tables:
        return "graph"
    found = []
    for level in ("node", "edge"):
        table = tables[f"{level}s"]
        names = {column.lower() for column in table.columns if not description.declares("drop", table.name, column)}
        declared = any(description.declares("target", table.name, column) for column in table.columns)
        if declared or (not description.target and any(n in ("y", "label") or n[:2] == "y_" for n in names)):
            found.append(level)
    if len(found) > 1:
        raise DatasetError(
            f"{tables['nodes'].path.parent}: nodes and edges both have targets; choose: --task node-..., --task "
            "edge-... or --task link-prediction"
        )
    return found[0] if found else "node"


def _level_of_arrays(arrays: Mapping[str, np.ndarray], where: str) -> str:
    """Decide by the number of targets."""
    rows = {key: len(array) for key, array in arrays.items() if array.ndim}
    if rows.get("num_nodes", 1) > 1 and rows["num_nodes"] == rows.get("y"):  # also graphs of one node each
        return "graph"
    if rows.get("x") == rows.get("y") and rows.get("x", 0) > 1:
        return "node"
    return "graph"


def _from_arrays(
    arrays: dict[str, np.ndarray], level: str, description: Description, by: str | None, where: str
) -> dict[str, np.ndarray]:
    """Check and convert the arrays of an npz file."""
    for key in description.drop or ():
        arrays.pop(key, None)
    of_split = {key.removeprefix(BY): arrays.pop(key) for key in list(arrays) if key.startswith(BY)}
    if by is not None:
        of_split |= {key: arrays.pop(key) for key in [by] if key in arrays and key not in ARRAYS}
        if by not in of_split:
            raise no_column(by, [*of_split, *(key for key in arrays if key not in ARRAYS)], f"{where}: split")
    if level == "link" and "edge_index" in arrays:
        arrays["y"] = np.ones(np.shape(arrays["edge_index"])[-1], np.int64)
    if missing := [name for name in NEEDED if name not in arrays]:
        known = ", ".join(sorted(arrays)) or "none"
        raise DatasetError(
            f"{where}: no array {missing[0]!r}{nearest(missing[0], arrays)}; it has {known}, and needs "
            f"{', '.join(NEEDED)}"
        )
    if unknown := sorted(set(arrays) - set(ARRAYS)):
        hint = "; write masks as split: 1 train, 2 val, 3 test, 0 none" if "mask" in " ".join(unknown) else ""
        raise DatasetError(
            f"{where}: unknown array {unknown[0]!r}{nearest(unknown[0], ARRAYS)}; optional arrays are "
            f"{', '.join(OPTIONAL)}, and {BY}NAME, which a split can name: rename it, or --drop {unknown[0]}{hint}"
        )
    arrays["edge_index"] = check_edge_index(arrays["edge_index"] - (description.first_id or 0), where)
    for key in ("x", "edge_attr"):
        if key in arrays:
            arrays[key] = as_declared(arrays[key], key, description)
    arrays.setdefault("num_nodes", np.array([arrays["x"].shape[0] if arrays["x"].ndim else 0]))
    arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
    return convert_arrays(arrays, where) | ({} if by is None else {"by": of_split[by].reshape(-1)})


def _columns_of(block: Mapping[str, np.ndarray], level: str) -> list[Column]:
    """Describe arrays, by their first block."""
    found = []
    for key, table, role in (
        ("x", "nodes", "feature"),
        ("edge_attr", "edges", "feature"),
        ("y", "edges" if level == "link" else f"{level}s", "label"),
        ("split", f"{level}s", "split"),
    ):
        if key not in block or (key == "y" and level == "link"):
            continue
        array = block[key]
        width = array.shape[1] if array.ndim > 1 and key != "split" else 1
        name = key if width == 1 else f"{key} ({width})"
        if array.dtype.kind == "f":
            missing = int(np.isnan(array).any(-1).sum() if array.ndim > 1 else np.isnan(array).sum())
            found.append(Column(table, name, role, "number", ranged(array.astype(np.float64)), missing))
        else:
            codes, values = categories_in(array.reshape(-1)) if array.size < 1 << 20 else (array[:0], [])
            text = counted(values, codes) if values else f"{array.min()} to {array.max()}"
            found.append(Column(table, name, role, "class" if key == "y" else "category", text))
    return found
