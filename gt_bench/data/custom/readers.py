"""Read user-supplied data (a folder of CSV files, an npz file, a torch_geometric dataset) as blocks of arrays."""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gt_bench.data.custom.arrays import check_edge_index, convert_arrays, with_reverse_edges
from gt_bench.data.custom.csv import check_level, from_csv, from_tables
from gt_bench.data.custom.folders import files_of, form_of, read_folder
from gt_bench.data.custom.frames import tables_of
from gt_bench.data.custom.pyg import Graphs, from_graphs
from gt_bench.data.custom.reading import Reading
from gt_bench.data.custom.splits import SplitSection, named_column
from gt_bench.data.readers import read_npz
from gt_bench.utils.errors import DatasetError, nearest

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
        fixed: whether `text` decides the data. Those of a user's function may come from files that have changed, so
            that each `prepare` calls it again.
    """

    load: Callable[[], Graphs]
    text: str
    where: str
    fixed: bool = False


Source = str | Path | Callable[[], Graphs] | Given


@dataclass(frozen=True)
class Reader:
    """A source and how it is split. Its `repr` is part of the dataset's digest.

    Attributes:
        source: where the data are.
        level: "node", "graph", "edge" (targets of edges) or "link" (the edges themselves are the targets).
        shares: shares of train, val and test, if the data have no split.
        num_splits: number of splits to draw.
        seed: seed of the first split.
        undirected: whether the reverse of each edge is added where it is missing.
        section: a split that replaces that of the data; None for the split of the data, or one by `shares`.
        inductive: whether training sees neither validation nor test nodes.
        remarks: remarks for the user, added while the data are read.
        labels: words of the classes in the order of their numbers, if targets are words; set while the data are read.
    """

    source: Source
    level: str
    shares: tuple[float, float, float]
    num_splits: int
    seed: int
    undirected: bool = False
    section: SplitSection | None = None
    inductive: bool = False
    remarks: list[str] = field(default_factory=list, compare=False)
    labels: list[str] = field(default_factory=list, compare=False)

    def content(self) -> str:
        """Compute a digest of the content of the files or of the text of the function, in hexadecimal."""
        digest = hashlib.sha256(repr((self.shares, self.num_splits, self.seed)).encode())
        if self.undirected:
            digest.update(b"undirected")
        digest.update(self._made.encode())
        if isinstance(self.source, Given):
            digest.update(self.source.text.encode())
        elif callable(self.source):
            digest.update(inspect.getsource(self.source).encode())
        else:
            path = Path(self.source)
            if path.is_dir():
                files = files_of(path) if form_of(path) else sorted(path.iterdir())
            else:
                files = [path] if path.exists() else []
            for file in files:
                if file.is_file():
                    digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def __repr__(self) -> str:
        undirected = " undirected" if self.undirected else ""
        return f"{self.level} {self.shares} {self.num_splits} {self.seed}{undirected}{self._made}"

    @property
    def _made(self) -> str:
        """Text of `section` and `inductive`; empty for data that need neither, whose digests are older than both."""
        section = f" {self.section.content()}" if self.section else ""
        return section + (" inductive" if self.inductive else "")

    @property
    def reading(self) -> Reading:
        """How the source is read."""
        column, own_split = (self.section.column, self.section.kind == "given") if self.section else (None, True)
        return Reading(self.level, column, own_split, self.remarks, self.labels)

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Read the data.

        Yields:
            Arguments of `PackedWriter.graphs` for one or more graphs. If targets belong to edges, also `target`: the
            column of edge_index of each target.

        Raises:
            DatasetError: the data are invalid; the message names the file.
        """
        if not self.undirected:
            yield from self._with_targets()
            return
        total = 0
        for block in self._with_targets():
            block, added = with_reverse_edges(block)
            total += added
            yield block
        self.remarks.append(f"undirected: the reverse of {total:,} edges was added")

    def _with_targets(self) -> Iterator[dict[str, np.ndarray]]:
        for block in self._blocks():
            if self.reading.of_edges:
                block = {**block, "target": np.arange(block["edge_index"].shape[1])}
            yield block

    def _blocks(self) -> Iterator[dict[str, np.ndarray]]:
        source, reading = self.source, self.reading
        if callable(source):
            source = Given(source, "", f"{source.__module__}.{source.__qualname__}()")
        if isinstance(source, Given):
            data = source.load()
            tables = tables_of(data, source.where)
            if tables is None:
                yield from from_graphs(data, source.where, reading)
            else:
                check_level(tables, self.level, source.where)
                yield from_tables(tables, source.where, reading)
        elif Path(source).is_dir() and form_of(Path(source)):
            yield read_folder(Path(source), reading)
        elif Path(source).is_dir():
            yield from_csv(Path(source), reading)
        elif Path(source).suffix == ".npz":
            arrays = read_npz(Path(source))
            # remarks on data that were converted to this file
            self.remarks.extend(np.atleast_1d(arrays.pop("remarks", np.array([], str))).astype(str).tolist())
            by = self._by(arrays, source)
            if self.level == "link" and "edge_index" in arrays:
                arrays["y"] = np.ones(np.shape(arrays["edge_index"])[-1], np.int64)
            _check_names(arrays, source)
            arrays["edge_index"] = check_edge_index(arrays["edge_index"], source)
            arrays.setdefault("num_nodes", np.array([arrays["x"].shape[0] if arrays["x"].ndim else 0]))
            arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
            yield convert_arrays(arrays, source) | by
        else:
            raise DatasetError(f"{source}: neither a folder with nodes.csv and edges.csv nor an npz file")

    def _by(self, arrays: dict[str, np.ndarray], source: str | Path) -> dict[str, np.ndarray]:
        """Remove the arrays of columns that a split can name (`split.NAME`), and return the one that is needed."""
        column = self.reading.column
        columns = {key.removeprefix(BY): arrays.pop(key) for key in list(arrays) if key.startswith(BY)}
        if column is None:
            return {}
        columns |= {key: arrays.pop(key) for key in [column] if key in arrays and key not in ARRAYS}
        if column not in columns:
            raise named_column(column, [*columns, *(key for key in arrays if key not in ARRAYS)], str(source))
        return {"by": columns[column].reshape(-1)}


def _check_names(arrays: Mapping[str, np.ndarray], where: str | Path) -> None:
    """Raise DatasetError for a missing or unknown array of an npz file."""
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
            f"{', '.join(OPTIONAL)}, and {BY}NAME, which a split can name: rename or remove it{hint}"
        )
