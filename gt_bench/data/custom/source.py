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

from gt_bench.config.tasks import LINK
from gt_bench.data.custom.arrays import as_declared, check_edge_index, convert_arrays, with_reverse_edges
from gt_bench.data.custom.columns import (
    TableColumn,
    categories_in,
    counted,
    ranged,
    roles_of,
)
from gt_bench.data.custom.description import FILE, TABLES, Description, described, description_file
from gt_bench.data.custom.join import joined
from gt_bench.data.custom.pyg import Graphs, from_graphs, level_of
from gt_bench.data.custom.splits import SplitSection, no_column
from gt_bench.data.custom.tables import Table, read_folder, tables_of
from gt_bench.data.custom.targets import task_of_array, task_of_columns
from gt_bench.data.readers import located, read_npz
from gt_bench.utils.errors import DatasetError, nearest

STORED = Path("data/own")  # where data of a program are stored, without what was dropped

TASKS = (
    *(f"{level}-{kind}" for level in ("node", "edge", "graph") for kind in ("classification", "regression")),
    "graph-multilabel", LINK,
)  # fmt: skip
BY = "split."  # prefix of arrays of an npz file that a split can name
NEEDED, OPTIONAL = ("x", "edge_index", "y"), ("num_nodes", "num_edges", "edge_attr", "split")
ARRAYS = (*NEEDED, *OPTIONAL)
# keys of a description that speak of columns or of text: arrays and Data have neither
OF_TABLES = ("id", "graph", "target", "ends", "weight", "sep", "decimal", "thousands", "encoding", "missing")
FEATURES = ("x", "edge_attr", "edge_weight")


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


def no_task(task: str | None) -> DatasetError:
    """Make the error for a task that does not exist."""
    problem = f"no task {task!r}{nearest(str(task), TASKS)}"
    return DatasetError(problem, value=task, remedy=f"expected one of {', '.join(TASKS)}")


def level_of_task(task: str) -> str:
    """Return what the targets of a task belong to: "node", "edge" or "graph".

    Raises:
        DatasetError: there is no such task.
    """
    level = "edge" if task == LINK else task.partition("-")[0]
    if level not in ("node", "edge", "graph"):
        raise no_task(task)
    return level


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
        files = [path / f"{table}.{kind}" for table in TABLES for kind in ("csv", "parquet")] + [path / FILE]
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
    columns: list[TableColumn] = field(default_factory=list)
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
        """The data as they are: tables by name, arrays by name, or graphs.

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
            return read_folder(path, self.description)
        if path.suffix == ".npz":
            return read_npz(path)
        raise DatasetError("neither a folder with nodes.csv and edges.csv nor an npz file", file=path)

    @property
    def level(self) -> str:
        """What targets belong to: "node", "graph", "edge", or "link" for link prediction.

        Raises:
            DatasetError: the data leave it open.
        """
        if self.task:
            return "link" if self.task == LINK else level_of_task(self.task)
        opened = self.opened
        if _are_tables(opened):
            return _level_of_tables(opened, self.description)
        if isinstance(opened, dict):
            return _level_of_arrays(opened)
        with located(self.where):
            return level_of(opened)

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
                wanted = self.description.target
                column = f"{wanted[0]!r}{nearest(wanted[0], table.columns)}" if wanted else "label (or y)"
                raise DatasetError(
                    f"no column {column} with the targets",
                    file=table.path,
                    value=wanted and wanted[0],
                    remedy=f"it has {', '.join(table.columns)}: --target COLUMN, or --task link-prediction",
                )
            return task_of_columns(table, names, level)
        trial = replace(self, task=f"{level}-", columns=[])
        trial.opened = self.opened
        y = next(trial.blocks())["y"]
        with located(self.where):
            return task_of_array(y, level)

    @property
    def of_arrays(self) -> bool:
        """Whether the types of arrays decide what is a category: not of tables."""
        return not _are_tables(self.opened)

    @property
    def numbered(self) -> bool:
        """Whether edges name nodes by numbers that the user has counted from 0 or 1."""
        return self.of_arrays or "id" not in roles_of(self.opened["nodes"], self._declared, self.level).values()

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
        if _are_tables(opened):
            yield joined(opened, description, self.task or "", level, by, self.columns, self.labels)
            return
        with located(self.where):
            _check_declared(self.description)
            if isinstance(opened, dict):
                absent = [key for key in self.description.drop or () if key not in opened]
                if absent and not (isinstance(self.source, Path) and self.source.is_relative_to(STORED)):
                    raise no_column(absent[0], list(opened), place="drop")
                yield _from_arrays(dict(opened), level, description, by)
            else:
                yield from from_graphs(opened, level, description, by)


def _check_declared(description: Description) -> None:
    """Refuse what is declared of columns: arrays and Data have fixed names."""
    stated = description.stated()
    for key in OF_TABLES:
        if key in stated and stated[key] != ("y",):
            raise DatasetError(
                "is for tables, whose columns have names",
                place=key,
                value=stated[key],
                remedy="arrays and Data have x, edge_index, edge_attr, and y for targets: store them under these names "
                "and remove it",
            )
    for key in ("categories", "numbers"):
        if unknown := [name for name in stated.get(key, ()) if name not in FEATURES]:
            remedy = f"of arrays and Data it can name {', '.join(FEATURES)}, each as a whole"
            raise DatasetError(f"names {unknown[0]!r}", place=key, value=unknown[0], remedy=remedy)


def _are_tables(opened: Any) -> bool:
    return isinstance(opened, dict) and all(isinstance(table, Table) for table in opened.values())


def _level_of_tables(tables: Mapping[str, Table], description: Description) -> str:
    """Decide by where targets are."""
    if "graphs" in tables:
        return "graph"
    levels = []
    for level in ("node", "edge"):
        table = tables[f"{level}s"]
        names = {column.lower() for column in table.columns if not description.declares("drop", table.name, column)}
        declared = any(description.declares("target", table.name, column) for column in table.columns)
        if declared or (not description.target and any(n in ("y", "label") or n[:2] == "y_" for n in names)):
            levels.append(level)
    if len(levels) > 1:
        raise DatasetError(
            "nodes and edges both have targets",
            file=tables["nodes"].path.parent,
            remedy="choose: --task node-..., --task edge-... or --task link-prediction",
        )
    return levels[0] if levels else "node"


def _level_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Decide by the number of targets."""
    rows = {key: len(array) for key, array in arrays.items() if array.ndim}
    if rows.get("num_nodes", 1) > 1 and rows["num_nodes"] == rows.get("y"):  # also graphs of one node each
        return "graph"
    if rows.get("x") == rows.get("y") and rows.get("x", 0) > 1:
        return "node"
    return "graph"


def _from_arrays(
    arrays: dict[str, np.ndarray], level: str, description: Description, by: str | None
) -> dict[str, np.ndarray]:
    """Check and convert the arrays of an npz file."""
    for key in description.drop or ():
        arrays.pop(key, None)
    of_split = {key.removeprefix(BY): arrays.pop(key) for key in list(arrays) if key.startswith(BY)}
    if by is not None:
        of_split |= {key: arrays.pop(key) for key in [by] if key in arrays and key not in ARRAYS}
        if by not in of_split:
            raise no_column(by, [*of_split, *(key for key in arrays if key not in ARRAYS)], place="split")
    if level == "link" and "edge_index" in arrays:
        arrays["y"] = np.ones(np.shape(arrays["edge_index"])[-1], np.int64)
    if missing := [name for name in NEEDED if name not in arrays]:
        known = ", ".join(sorted(arrays)) or "none"
        problem = f"no array {missing[0]!r}{nearest(missing[0], arrays)}"
        raise DatasetError(problem, value=missing[0], remedy=f"it has {known}, and needs {', '.join(NEEDED)}")
    if unknown := sorted(set(arrays) - set(ARRAYS)):
        hint = "; write masks as split: 1 train, 2 val, 3 test, 0 none" if "mask" in " ".join(unknown) else ""
        raise DatasetError(
            f"unknown array {unknown[0]!r}{nearest(unknown[0], ARRAYS)}",
            value=unknown[0],
            remedy=f"optional arrays are {', '.join(OPTIONAL)}, and {BY}NAME, which a split can name: rename it, or "
            f"--drop {unknown[0]}{hint}",
        )
    arrays["edge_index"] = check_edge_index(arrays["edge_index"] - (description.first_id or 0))
    for key in ("x", "edge_attr"):
        if key in arrays:
            arrays[key] = as_declared(arrays[key], key, description)
    arrays.setdefault("num_nodes", np.array([arrays["x"].shape[0] if arrays["x"].ndim else 0]))
    arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
    return convert_arrays(arrays) | ({} if by is None else {"by": of_split[by].reshape(-1)})


def _columns_of(block: Mapping[str, np.ndarray], level: str) -> list[TableColumn]:
    """Describe arrays, by their first block."""
    columns = []
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
            columns.append(TableColumn(table, name, role, "number", ranged(array.astype(np.float64)), missing))
        else:
            known = array[array != -1] if key == "y" else array.reshape(-1)
            codes, values = categories_in(known) if known.size < 1 << 20 else (known[:0], [])
            text = counted(values, codes) if values else f"{array.min()} to {array.max()}"
            kind, missing = "class" if key == "y" else "category", array.size - known.size
            columns.append(TableColumn(table, name, role, kind, text, missing))
    return columns
