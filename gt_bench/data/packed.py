"""Packed datasets: one memory-mapped safetensors file and one JSON header per dataset.

data/packed/NAME/data.safetensors contains the concatenated arrays of all graphs. Node ids are local to their graph:

    node_ptr, edge_ptr [B + 1]   x [N, F]   source, target [E]   edge_attr [E, D]   y [N|B, ...]
    split [S, N|B|H|L] (1 train, 2 val, 3 test, 0 none)
    pair_ptr [B + 1], pair_source, pair_target [P]   the positive ordered pairs of a set-to-graph dataset
    target_pair [L, 2]   of a dataset of edges: the two nodes of each target, with ids over all graphs; then y and split
                         have L columns (`gt_bench.data.custom.edges` has further tables)
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open

from gt_bench.data.readers import file_digest
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import check_once
from gt_bench.utils.redact import printable

if TYPE_CHECKING:  # importing torch takes seconds, and stages that only read the catalog do not need it
    from torch import LongTensor, Tensor

    from gt_models.batch import GraphBatch

FORMAT = 1
SEEN = "seen"  # table of inductive datasets: the part with which each node becomes visible, [S, N]
PARTS = {"train": 1, "val": 2, "test": 3}


class DatasetUnavailable(DatasetError):
    """The dataset is not available. The message lists what was tried and what to do."""


class PackedHeader(BaseModel):
    """Header of a packed dataset, stored as JSON.

    Attributes:
        name: name of the dataset.
        task: its task.
        metric: the metric that selects and compares models.
        level: what a target belongs to.
        in_dim: argument of model constructors: width of continuous node features, or a vocabulary size per column.
        edge_dim: as `in_dim`, of edge features.
        out_dim: argument of model constructors: number of classes or targets.
        split_kind: what a split divides.
        num_splits: number of splits.
        also: further reported metrics, which select nothing.
        extras: further arrays, by what their rows are. Those of nodes, edges and graphs are in `GraphBatch.extras`,
            tables are not.
        row_normalise: continuous node features are divided by the sum of their row when a batch is made, so that
            counts can be stored as bytes.
        derived: how the data were made, if they are not the original host's. Every report must show it.
        statistics: measured on the packed arrays (`gt_bench.data.statistics`).
        provenance: digest of the spec, sha256 of the raw files, generator arguments, licence, homepage, citation.
        notes: flaws and choices that a user must know.
        data_sha256: sha256 of data.safetensors.
        data_bytes: size of data.safetensors.
        header_sha256: sha256 of all other fields, so that an edited header is detected.
        format: version of the format.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str
    task: str
    metric: str
    level: Literal["graph", "node", "edge", "pair", "hyperedge", "attention"]
    in_dim: int | list[int]
    edge_dim: int | list[int] | None = None
    out_dim: int
    split_kind: Literal["node", "graph", "edge", "hyperedge"]
    num_splits: int
    also: list[str] = []
    extras: dict[str, Literal["node", "edge", "graph", "table"]] = {}
    row_normalise: bool = False
    derived: str | None = None
    statistics: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    notes: list[str] = []
    data_sha256: str = ""
    data_bytes: int = 0
    header_sha256: str = ""
    format: Literal[1] = FORMAT

    def sealed(self) -> PackedHeader:
        """Return the header with `header_sha256` set."""
        fields = json.loads(json.dumps(self.model_dump(exclude={"header_sha256"})))  # as JSON reads them
        return self.model_copy(update={"header_sha256": digest_of(fields, spaced=True)})

    @property
    def pins(self) -> dict[str, dict[str, Any]]:
        """Raw file -> {sha256, bytes, date} of the files that were pinned on first use (`gt_bench.data.pins`)."""
        return self.provenance.get("pinned", {})

    def with_pins(self, pins: Mapping[str, Mapping[str, Any]]) -> PackedHeader:
        """Return the header with `pins`: raw file -> {sha256, bytes, date}, as in the property `pins`."""
        return self.model_copy(update={"provenance": self.provenance | {"pinned": dict(pins)}})

    @property
    def pinned(self) -> list[str]:
        """Dates on which raw files were pinned on first use, because their digests are not published."""
        return sorted({pin["date"] for pin in self.pins.values()})

    @property
    def digest(self) -> str:
        """sha256 of the arrays and of all fields that decide how they are read. Notes and statistics do not count."""
        described = {"statistics", "provenance", "notes", "derived", "header_sha256"}
        decisive = self.model_dump(exclude=described if self.also else described | {"also"})
        return digest_of(decisive, spaced=True)


class PackedDataset:
    """A memory-mapped dataset. Use `PackedDataset.open` to make one.

    Attributes:
        folder: where it is stored.
        header: its header.
        num_graphs: number of graphs B.
        num_nodes: number of nodes N of all graphs.
        num_edges: number of directed edges E of all graphs.
    """

    def __init__(self, folder: Path, header: PackedHeader, arrays: Mapping[str, Tensor]):
        self.folder, self.header, self._arrays = folder, header, arrays
        self.num_graphs = arrays["node_ptr"].numel() - 1
        self.num_nodes = int(arrays["node_ptr"][-1])
        self.num_edges = int(arrays["edge_ptr"][-1])
        self._sparse_x: Tensor | None = None

    @classmethod
    def open(cls, folder: str | Path) -> PackedDataset:
        """Open a packed dataset.

        Header and content are compared with their digests. The content is read only if the file changed since the
        last check, which is recorded next to the folder.

        Args:
            folder: a folder written by `PackedWriter`.

        Returns:
            The dataset.

        Raises:
            DatasetUnavailable: nothing is packed in the folder, or it has an unavailable.json.
            DatasetError: the files are damaged.
        """
        folder = Path(folder)
        if not (folder / "header.json").exists():
            raise _unavailable(folder)
        try:
            header = PackedHeader.model_validate_json((folder / "header.json").read_bytes())
            if header != header.sealed():
                raise DatasetError("header.json was edited, or is of an older version")
            path = folder / "data.safetensors"
            _check_content(path, header)
            with safe_open(path, framework="pt") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            missing = {"node_ptr", "edge_ptr", "x", "source", "target", *header.extras} - set(arrays)
            if missing:
                raise DatasetError(f"no array named {', '.join(sorted(missing))}")
        except (OSError, ValidationError, SafetensorError, DatasetError) as error:
            remedy = f"prepare it again: {_remedy(folder)}"
            raise DatasetError(f"damaged ({error})", file=folder, remedy=remedy) from error
        return cls(folder, header, arrays)

    @property
    def digest(self) -> str:
        """sha256 of everything that decides a run, see `PackedHeader.digest`."""
        return self.header.digest

    @cached_property
    def sizes(self) -> LongTensor:
        """Nodes per graph, long [B]."""
        return self._arrays["node_ptr"].diff()  # type: ignore[return-value]

    @property
    def names(self) -> set[str]:
        """Names of the arrays."""
        return set(self._arrays)

    def array(self, name: str) -> Tensor:
        """Look up an array.

        Args:
            name: its name.

        Returns:
            The array as stored, memory-mapped.

        Raises:
            DatasetError: there is no such array.
        """
        if name not in self._arrays:
            problem, remedy = f"no array {name!r}", f"it has: {', '.join(sorted(self._arrays))}"
            raise DatasetError(problem, file=f"dataset {self.header.name!r}", value=name, remedy=remedy)
        return self._arrays[name]

    def split(self, part: str, index: int = 0) -> LongTensor:
        """Look up one part of a split.

        Args:
            part: "train", "val" or "test".
            index: number of the split.

        Returns:
            Ids of nodes, graphs, edges or hyperedges (`header.split_kind`), long, ascending.

        Raises:
            DatasetError: there is no such part or split.
        """
        if part not in PARTS:
            raise DatasetError(f"no part named {part!r}", value=part, remedy=f"expected one of {', '.join(PARTS)}")
        if not 0 <= index < self.header.num_splits:
            remedy = f"it has {self.header.num_splits}, numbered from 0"
            raise DatasetError(f"no split {index}", file=f"dataset {self.header.name!r}", value=index, remedy=remedy)
        return (self._arrays["split"][index] == PARTS[part]).nonzero().squeeze(1)  # type: ignore[return-value]

    def batch(self, graphs: Tensor) -> GraphBatch:
        """Gather graphs.

        Args:
            graphs: ids [b] in any order, also repeated. Consecutive ids are read as slices, which is faster.

        Returns:
            The graphs in the order of the ids.

        Raises:
            IndexError: an id is out of range.
        """
        import torch

        from gt_models.batch import GraphBatch

        if graphs.numel() and not 0 <= int(graphs.min()) <= int(graphs.max()) < self.num_graphs:
            raise IndexError(
                f"graph ids must lie in 0..{self.num_graphs - 1}; got {int(graphs.min())}..{int(graphs.max())}"
            )
        ids, views = graphs.numpy().astype(np.int64), self._views
        nodes, sizes = _rows(views["node_ptr"], ids)
        edges, degrees = _rows(views["edge_ptr"], ids)
        ptr = np.concatenate([[0], sizes.cumsum()])  # [B + 1]
        edge_index = np.empty((2, int(degrees.sum())), np.int64)
        edge_index[0], edge_index[1] = views["source"][edges], views["target"][edges]  # local ids
        if len(ids) > 1:
            edge_index += np.repeat(ptr[:-1], degrees)  # rows of the batch
        x = self._sparse_x
        if x is None:
            x = _features(views["x"][nodes], self.header.in_dim)
            if self.header.row_normalise:
                x /= x.sum(1, keepdim=True).clamp(min=1e-12)
        rows = {"node": nodes, "edge": edges, "graph": ids}
        y = self._targets(ids, nodes, sizes)
        return GraphBatch(
            x=x,
            edge_index=torch.from_numpy(edge_index),
            ptr=torch.from_numpy(ptr),
            edge_attr=_features(views["edge_attr"][edges], self.header.edge_dim) if "edge_attr" in views else None,
            y=None if y is None else torch.from_numpy(y),
            extras={
                k: torch.from_numpy(views[k][rows[kind]].copy())
                for k, kind in self.header.extras.items()
                if kind in rows
            },
        )

    def with_x(self, x: Tensor, header: PackedHeader) -> PackedDataset:
        """Return a dataset with other node features.

        Args:
            x: features [N, F].
            header: the header, with their width as `in_dim`.
        """
        return PackedDataset(self.folder, header, {**self._arrays, "x": x})

    def with_sparse_x(self) -> PackedDataset:
        """Return a dataset whose batches have `x` in compressed sparse rows.

        Returns:
            Such a dataset; `self` if it has several graphs or its features are not sparse.
        """
        from gt_bench.data.sparse import sparse_rows

        if self.num_graphs != 1 or not isinstance(self.header.in_dim, int):
            return self
        other = copy.copy(self)
        other._sparse_x = sparse_rows(self._views["x"], self.header.row_normalise)
        return self if other._sparse_x is None else other

    def _targets(self, graphs: np.ndarray, nodes: slice | np.ndarray, sizes: np.ndarray) -> np.ndarray | None:
        views = self._views
        if "pair_ptr" in views:
            pairs, counts = _rows(views["pair_ptr"], graphs)
            squares = sizes**2
            start, width = np.repeat(squares.cumsum() - squares, counts), np.repeat(sizes, counts)  # [P]
            y = np.zeros(int(squares.sum()), np.float32)  # [sum n_b^2]
            y[start + views["pair_source"][pairs].astype(np.int64) * width + views["pair_target"][pairs]] = 1
            return y
        if "y" not in views or self.header.level == "edge":  # the loader selects targets of edges
            return None
        y = views["y"][nodes if self.header.level == "node" else graphs]
        return y.copy() if y.base is not None else y

    @cached_property
    def _views(self) -> dict[str, np.ndarray]:
        """The mapped arrays in numpy, which gathers in one thread; torch is up to 50x slower on a busy machine."""
        return {name: array.numpy() for name, array in self._arrays.items()}

    def verify(self) -> None:
        """Read the whole file again.

        Raises:
            DatasetError: its content does not match the header.
        """
        if file_digest(self.folder / "data.safetensors") != self.header.data_sha256:
            path, remedy = self.folder / "data.safetensors", f"prepare it again: {_remedy(self.folder)}"
            raise DatasetError("does not match its header", file=path, remedy=remedy)


def say_notes(folder: str | Path) -> None:
    """Print the notes of a packed dataset. Nothing is printed if it is missing or damaged: opening it raises."""
    with contextlib.suppress(OSError, ValidationError):
        header = PackedHeader.model_validate_json((Path(folder) / "header.json").read_bytes())
        for note in header.notes:
            print(f"{header.name}: note: {printable(note)}", flush=True)


def _rows(ptr: np.ndarray, graphs: np.ndarray) -> tuple[slice | np.ndarray, np.ndarray]:
    """Return the rows of these graphs in the concatenated arrays, and the number of rows of each graph [b]."""
    start, stop = ptr[graphs], ptr[graphs + 1]
    lengths = stop - start
    if len(graphs) and (len(graphs) == 1 or (graphs[1:] - graphs[:-1] == 1).all()):
        return slice(int(start[0]), int(stop[-1])), lengths
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(start - ends + lengths, lengths), lengths


def _features(values: np.ndarray, dim: int | list[int] | None) -> Tensor:
    """Copy features [n, F] out of the mapped file: continuous ones as float, categorical ones as long."""
    values = values.astype(np.float32 if isinstance(dim, int) else np.int64)
    import torch

    return torch.from_numpy(values[:, None] if values.ndim == 1 else values)


def _check_content(path: Path, header: PackedHeader) -> None:
    """Raise DatasetError if the file does not match the header.

    The digest is computed only if the file has changed since the last check.
    """
    if (size := path.stat().st_size) != header.data_bytes:
        raise DatasetError(f"data.safetensors has {size} bytes, its header states {header.data_bytes}")

    def check() -> None:
        if file_digest(path) != header.data_sha256:
            raise DatasetError("the content of data.safetensors does not match its header")

    # next to the folder: DVC tracks its content, and `replace_folder` deletes it
    last_check = path.parent.with_name(f".{path.parent.name}.checked.json")
    check_once(path, last_check, check, {"sha256": header.data_sha256})


def _remedy(folder: Path) -> str:
    """Return the command that prepares the dataset of `folder`, DATA_ROOT/packed/NAME."""
    root = folder.parent.parent
    return f"python -m stages.download {folder.name}" + ("" if root == Path("data") else f" --data-root {root}")


def _unavailable(folder: Path) -> DatasetUnavailable:
    try:
        note = json.loads((folder / "unavailable.json").read_text(encoding="utf-8"))
        tried = "".join(f"\n  {entry['source']}: {entry['error']}" for entry in note["tried"])
        problem, name = f"is not available: {note['reason']}{tried}", f"dataset {note['dataset']!r}"
        return DatasetUnavailable(problem, file=name, remedy=note["remedy"])
    except (FileNotFoundError, NotADirectoryError):
        return DatasetUnavailable("no packed dataset", file=folder, remedy=f"run: {_remedy(folder)}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        file, remedy = folder / "unavailable.json", f"run: {_remedy(folder)}"
        raise DatasetError(f"damaged ({error!r})", file=file, remedy=remedy) from error
