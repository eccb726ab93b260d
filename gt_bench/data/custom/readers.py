"""Reading a user's own data: a folder of CSV files, an npz file, or a torch_geometric dataset, as blocks of arrays with `PackedWriter`'s names."""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gt_bench.data.custom.arrays import edges_of, typed, with_reverse_edges
from gt_bench.data.custom.csv import from_csv
from gt_bench.data.custom.pyg import Graphs, from_graphs
from gt_bench.data.readers import read_npz
from gt_bench.utils.errors import DatasetError

ARRAYS = ("num_nodes", "num_edges", "x", "edge_index", "edge_attr", "y", "split")


@dataclass(frozen=True)
class Given:
    """Data that something gives: `load()` returns them, `text` decides their digest, `where` names them in messages."""

    load: Callable[[], Graphs]
    text: str
    where: str


Source = str | Path | Callable[[], Graphs] | Given


@dataclass(frozen=True)
class Reader:
    """A source with its form and its split. Its text is part of the dataset's digest.

    Attributes:
        undirected: whether the reverse of each edge is added where it is missing.
        remarks: what was done to the data that their user should know, filled while they are read.
    """

    source: Source
    level: str
    shares: tuple[float, float, float]
    num_splits: int
    seed: int
    undirected: bool = False
    remarks: list[str] = field(default_factory=list, compare=False)

    def content(self) -> str:
        """A digest of what is read: the files' bytes, or the text of the function."""
        digest = hashlib.sha256(repr((self.shares, self.num_splits, self.seed)).encode())
        if self.undirected:
            digest.update(b"undirected")
        if isinstance(self.source, Given):
            digest.update(self.source.text.encode())
        elif callable(self.source):
            digest.update(inspect.getsource(self.source).encode())
        else:
            path = Path(self.source)
            for file in sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []:
                if file.is_file():
                    digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"{self.level} {self.shares} {self.num_splits} {self.seed}{' undirected' if self.undirected else ''}"

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one or more graphs at a time, named as `PackedWriter.graphs` takes them.

        Raises:
            DatasetError: naming the file and what is wrong.
        """
        if not self.undirected:
            yield from self._blocks()
            return
        total = 0
        for block in self._blocks():
            block, added = with_reverse_edges(block)
            total += added
            yield block
        self.remarks.append(f"undirected: the reverse of {total:,} edges was added")

    def _blocks(self) -> Iterator[dict[str, np.ndarray]]:
        if isinstance(self.source, Given):
            yield from from_graphs(self.source.load(), self.level, self.source.where, self.remarks)
        elif callable(self.source):
            yield from from_graphs(
                self.source(), self.level, f"{self.source.__module__}.{self.source.__qualname__}()", self.remarks
            )
        elif Path(self.source).is_dir():
            yield from_csv(Path(self.source), self.level, self.remarks)
        elif Path(self.source).suffix == ".npz":
            arrays = read_npz(Path(self.source))
            self.remarks.extend(
                np.atleast_1d(arrays.pop("remarks", np.array([], str))).astype(str).tolist()
            )  # of what was not put into the file
            unknown = set(arrays) - set(ARRAYS)
            if unknown or not {"x", "edge_index", "y"} <= set(arrays):
                raise DatasetError(
                    f"{self.source}: holds {', '.join(sorted(arrays))}; it may hold {', '.join(ARRAYS)} and needs x, edge_index, y"
                )
            arrays["edge_index"] = edges_of(arrays["edge_index"], self.source)
            arrays.setdefault("num_nodes", np.array([arrays["x"].shape[0] if arrays["x"].ndim else 0]))
            arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
            yield typed(arrays, self.source)
        else:
            raise DatasetError(f"{self.source}: neither a folder with nodes.csv and edges.csv nor an npz file")
