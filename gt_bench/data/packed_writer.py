"""Write packed datasets (`gt_bench.data.packed`), in one piece or block by block."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from safetensors import safe_open

from gt_bench.data.packed import PackedHeader
from gt_bench.data.readers import file_digest
from gt_bench.data.statistics import inspect
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import is_plain_name, write_errors, write_json

_DTYPES = {
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float32": "F32",
    "float64": "F64",
}


class PackedWriter:
    """Writes a dataset block by block in bounded memory.

    Use it as a context manager. The folder appears, complete, at `finish`. If the block raises, nothing is written.

    Args:
        folder: the folder of the dataset.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._written: dict[str, tuple[str, tuple[int, ...], int]] = {}  # dtype, shape of a row, rows
        self._counts: dict[str, list[np.ndarray]] = {"node": [], "edge": [], "pair": []}

    def __enter__(self) -> PackedWriter:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=f".{self.folder.name}."))
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def graphs(
        self,
        *,
        num_nodes: ArrayLike,
        num_edges: ArrayLike,
        edge_index: ArrayLike,
        num_pairs: ArrayLike | None = None,
        pair_index: ArrayLike | None = None,
        **arrays: ArrayLike,
    ) -> None:
        """Append graphs.

        Args:
            num_nodes: nodes of each graph [b].
            num_edges: edges of each graph [b].
            edge_index: edges [2, e] with local ids.
            num_pairs: positive pairs of each graph [b], for set-to-graph datasets.
            pair_index: positive pairs [2, p] with local ids.
            arrays: further arrays with a row per node, edge or graph.
        """
        self._counts["node"].append(np.asarray(num_nodes, np.int64))
        self._counts["edge"].append(np.asarray(num_edges, np.int64))
        edge_index = np.asarray(edge_index)
        arrays |= {"source": edge_index[0], "target": edge_index[1]}
        if num_pairs is not None:
            self._counts["pair"].append(np.asarray(num_pairs, np.int64))
            arrays |= {"pair_source": np.asarray(pair_index)[0], "pair_target": np.asarray(pair_index)[1]}
        for name, array in arrays.items():
            self.append(name, array)

    def append(self, name: str, array: ArrayLike) -> None:
        """Append rows to an array.

        Args:
            name: its name.
            array: the rows. Type and width must be those of the earlier rows.

        Raises:
            DatasetError: the type is not supported, or type or width changed.
            WriteError: the disk is full.
        """
        array = np.ascontiguousarray(array)
        if array.dtype == bool:
            array = array.astype(np.uint8)
        if array.dtype.name not in _DTYPES:
            problem, remedy = f"unsupported type {array.dtype}", f"expected one of {', '.join(_DTYPES)}"
            raise DatasetError(problem, place=f"array {name!r}", value=array.dtype.name, remedy=remedy)
        dtype, row, rows = self._written.get(name, (array.dtype.name, array.shape[1:], 0))
        if (dtype, row) != (array.dtype.name, array.shape[1:]):
            problem = f"was {dtype} with rows {row} and is now {array.dtype.name} with rows {array.shape[1:]}"
            raise DatasetError(problem, place=f"array {name!r}")
        with write_errors(self.folder), open(self._temporary / f"{name}.bin", "ab") as file:
            file.write(array.data if array.size else b"")
        self._written[name] = (dtype, row, rows + len(array))

    def finish(self, header: PackedHeader) -> PackedHeader:
        """Check the arrays, measure the statistics and move the folder into place.

        Args:
            header: the header without statistics and digests.

        Returns:
            The complete header.

        Raises:
            DatasetError: the arrays contradict each other or the header. Nothing is changed then.
            WriteError: the disk is full.
        """
        for name, blocks in self._counts.items():
            if blocks:
                self.append(f"{name}_ptr", np.concatenate([[0], np.concatenate(blocks).cumsum()]))
        with write_errors(self.folder):
            path = self._merge()
            with safe_open(path, framework="pt") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            statistics = inspect(header, arrays)
            del arrays
            measured = {"statistics": statistics, "data_sha256": file_digest(path), "data_bytes": path.stat().st_size}
            header = header.model_copy(update=measured).sealed()
            write_header(path.parent, header)
            replace_folder(path.parent, self.folder)
        return header

    def _merge(self) -> Path:
        """Merge the files of the arrays into one safetensors file with the same bytes on every machine.

        Arrays of wider types come first, so that all are aligned.
        """
        names = sorted(self._written, key=lambda n: (-np.dtype(self._written[n][0]).itemsize, n))
        layout, offset = {}, 0
        for name in names:
            dtype, row, rows = self._written[name]
            size = rows * int(np.prod(row, dtype=np.int64)) * np.dtype(dtype).itemsize
            layout[name] = {"dtype": _DTYPES[dtype], "shape": [rows, *row], "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(layout, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        out = self._temporary / "out"
        out.mkdir(mode=0o755)
        with open(out / "data.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                with open(self._temporary / f"{name}.bin", "rb") as part:
                    shutil.copyfileobj(part, file, 1 << 22)
                os.unlink(self._temporary / f"{name}.bin")
            file.flush()
            os.fsync(file.fileno())
        return out / "data.safetensors"


def pack(folder: str | Path, header: PackedHeader, arrays: Mapping[str, Any]) -> PackedHeader:
    """Write a dataset that fits in memory. Integers are stored in the narrowest type that holds them.

    Args:
        folder: the folder of the dataset. It is replaced only if everything is correct.
        header: the header without statistics and digests.
        arrays: the arguments of `PackedWriter.graphs`, and tables (split, ...).

    Returns:
        The complete header.

    Raises:
        DatasetError: the arrays contradict each other or the header.
        WriteError: the disk is full.
    """
    tables = {"split", *(name for name, rows in header.extras.items() if rows == "table")}
    blocks = {name: np.asarray(array) for name, array in arrays.items()}
    blocks = {
        name: array.astype(np.float32 if array.dtype.kind == "f" else np.int64, copy=False)
        if name == "y"
        else compact(array)
        for name, array in blocks.items()
    }
    with PackedWriter(folder) as writer:
        writer.graphs(**{name: array for name, array in blocks.items() if name not in tables})
        for name in sorted(tables & set(blocks)):
            writer.append(name, blocks[name])
        return writer.finish(header)


def pack_graph(
    folder: str | Path, header: PackedHeader, *, x: np.ndarray, edge_index: np.ndarray, y: np.ndarray, split: np.ndarray
) -> PackedHeader:
    """Write a dataset of one graph with a target per node. See `pack`.

    Args:
        folder: the folder of the dataset.
        header: the header without statistics and digests.
        x: node features [N, F].
        edge_index: edges [2, E].
        y: targets [N].
        split: split codes [S, N].

    Returns:
        The complete header.
    """
    arrays = {"num_nodes": [len(x)], "num_edges": [edge_index.shape[1]], "x": x, "edge_index": edge_index}
    return pack(folder, header, arrays | {"y": y, "split": split})


def compact(array: np.ndarray) -> np.ndarray:
    """Convert an array to the type in which it is stored.

    Args:
        array: of any type.

    Returns:
        Integers in the narrowest type that holds them, floating-point numbers as float32.
    """
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        for dtype in (np.uint8, np.int8, np.int16, np.int32):
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return array.astype(dtype, copy=False)
        return array.astype(np.int64, copy=False)
    return array.astype(np.uint8) if array.dtype.kind in "iu" else array


def write_header(folder: Path, header: PackedHeader) -> None:
    """Write header.json in the folder of a dataset, with `header_sha256` set."""
    write_json(folder / "header.json", header.sealed().model_dump())


def replace_folder(new: Path, folder: Path) -> None:
    """Replace a folder by another one.

    Args:
        new: the folder that is moved.
        folder: its new path. An existing folder is deleted after `new` is in place.

    Raises:
        DatasetError: `folder` has an invalid name, or is not a folder that contains only files. It is not deleted.
    """
    if not is_plain_name(folder.name) or ".." in folder.parts:
        remedy = "its name must consist of letters, digits, '.', '_', '-'"
        raise DatasetError("not a dataset's folder", file=folder, value=folder.name, remedy=remedy)
    if folder.exists() and not (folder.is_dir() and all(path.is_file() for path in folder.iterdir())):
        problem = "contains more than a packed dataset and was not changed"
        raise DatasetError(problem, file=folder, remedy="move it away and run the command again")
    old = None
    if folder.exists():
        old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
        os.rename(folder, old / "was")
    os.rename(new, folder)
    if old is not None:
        shutil.rmtree(old)
