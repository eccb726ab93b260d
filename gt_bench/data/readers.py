"""Reading foreign files so that each ends in arrays or in one DatasetError: npz without pickles, tables, JSON, graph6; edge lists."""

# mypy: disable-error-code="assignment"

import csv
import gzip
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.utils.errors import DatasetError

_DAMAGED = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
)
_DAMAGED += (SyntaxError, zipfile.BadZipFile, zlib.error, tokenize.TokenError)
MAX_BYTES = 16 << 30


def read_npz(
    path: Path | io.BytesIO, keys: Sequence[str] | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, np.ndarray]:
    """Arrays of an npz file by name, all of them or `keys`. Raises DatasetError for a pickled, absent, damaged or oversized one."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
            absent = [key for key in keys or () if key not in sizes]
            if absent:
                raise DatasetError(f"{path}: no array {absent[0]!r}; it has: {', '.join(sorted(sizes))}")
            wanted = list(keys) if keys is not None else list(sizes)
            if sum(sizes[key] for key in wanted) > max_bytes:
                raise DatasetError(f"{path}: the arrays unpack to more than {max_bytes:,} bytes")
            return {key: read_npy(archive.read(f"{key}.npy"), f"{path}, array {key!r}") for key in wanted}
    except DatasetError:
        raise
    except _DAMAGED as error:
        raise DatasetError(f"{path}: not a readable npz file ({type(error).__name__}: {error})") from error


def read_npy(content: bytes, where: str) -> np.ndarray:
    """One npy array from its bytes; the length is checked before anything is allocated. Raises DatasetError."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise DatasetError(f"{where}: npy version {version} is not known")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
        if dtype.hasobject:
            raise DatasetError(f"{where}: holds pickled objects, which are not read")
        count = 1
        for length in shape:
            count *= length
        if min(shape, default=0) < 0 or count * dtype.itemsize != len(content) - stream.tell():
            raise DatasetError(f"{where}: {len(content) - stream.tell()} bytes do not hold shape {shape} of {dtype}")
        if not dtype.itemsize:
            raise DatasetError(f"{where}: elements of no size")
        array = np.frombuffer(content, dtype, count, stream.tell())
        return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    except DatasetError:
        raise
    except _DAMAGED as error:
        raise DatasetError(f"{where}: not a readable npy array ({type(error).__name__}: {error})") from error


def read_table(
    path: Path, columns: int, delimiter: str = "\t", header: bool = True, max_bytes: int = MAX_BYTES
) -> list[list[str]]:
    """Rows of a text table (.gz too), the header dropped. Raises DatasetError for a row of another width, naming it."""
    try:
        opener = gzip.open if str(path).endswith(".gz") else open
        rows, size = [], 0
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(_bounded(file, path, max_bytes), delimiter=delimiter), 1):
                if (header and number == 1) or not row:
                    continue
                if len(row) != columns:
                    raise DatasetError(f"{path}: line {number} has {len(row)} columns where {columns} are expected")
                rows.append(row)
                size += 1
        return rows
    except DatasetError:
        raise
    except (*_DAMAGED, csv.Error) as error:
        raise DatasetError(f"{path}: not a readable table ({type(error).__name__}: {error})") from error


def numbers(rows: Iterable[Sequence[str]], dtype: type, where: Any) -> np.ndarray:
    """Text cells -> an array of int or float. Raises DatasetError naming the file."""
    try:
        return np.array([[dtype(cell) for cell in row] for row in rows])
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{where}: {error}") from error


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """A JSON file (.gz too). Raises DatasetError."""
    try:
        opener = gzip.open if str(path).endswith(".gz") else open
        with opener(path, "rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise DatasetError(f"{path}: unpacks to more than {max_bytes:,} bytes")
        return json.loads(content)
    except DatasetError:
        raise
    except (*_DAMAGED, RecursionError) as error:
        raise DatasetError(f"{path}: not readable JSON ({type(error).__name__}: {error})") from error


def parse_graph6(line: bytes, where: Any = "graph6") -> tuple[int, np.ndarray]:
    """(nodes, upper-triangle edges [2, E] with i < j, by column) of one graph6 line. Raises DatasetError."""
    line = bytes(line).strip().removeprefix(b">>graph6<<")
    data = np.frombuffer(line, np.uint8).astype(np.int64) - 63
    if not data.size or data.min() < 0 or data.max() > 63:
        raise DatasetError(f"{where}: {line[:40]!r} is not graph6")
    if data[0] < 63:
        nodes, start = int(data[0]), 1
    elif data.size >= 4 and data[1] < 63:
        nodes, start = int(data[1] << 12 | data[2] << 6 | data[3]), 4
    else:
        raise DatasetError(f"{where}: a graph6 line of more than 258,047 nodes, or cut off")
    pairs = nodes * (nodes - 1) // 2
    if data.size - start != -(-pairs // 6):
        raise DatasetError(f"{where}: {data.size - start} bytes where {nodes} nodes need {-(-pairs // 6)}")
    bits = np.unpackbits(data[start:].astype(np.uint8)[:, None], axis=1)[:, 2:].ravel()
    if bits[pairs:].any():
        raise DatasetError(f"{where}: {line[:40]!r} has bits beyond its last pair")
    positions = bits[:pairs].nonzero()[0]
    # column j holds the pairs (0, j) .. (j - 1, j), starting at j (j - 1) / 2
    column = ((1 + np.sqrt(1 + 8.0 * positions)) / 2).astype(np.int64)
    column -= column * (column - 1) // 2 > positions
    return nodes, np.stack([positions - column * (column - 1) // 2, column])


def both_directions(edges: np.ndarray, nodes: int, loops: bool = False) -> np.ndarray:
    """Edges [2, E] -> each in both directions, once, sorted; no self-loops unless `loops`. Raises DatasetError."""
    edges = np.asarray(edges, np.int64).reshape(2, -1)
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        raise DatasetError(
            f"edges name node {edges.min() if edges.min() < 0 else edges.max()} of a graph with {nodes} nodes"
        )
    if not loops:
        edges = edges[:, edges[0] != edges[1]]
    keys = np.unique(np.concatenate([edges[0] * nodes + edges[1], edges[1] * nodes + edges[0]]))
    return np.stack([keys // nodes, keys % nodes]) if nodes else edges


def masks_to_split(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Three masks [..., N] -> codes 0 none, 1 train, 2 val, 3 test. Raises DatasetError where they overlap or differ in shape."""
    train, val, test = (np.asarray(mask).astype(bool) for mask in (train, val, test))
    if not train.shape == val.shape == test.shape:
        raise DatasetError(f"masks of shapes {train.shape}, {val.shape} and {test.shape}")
    if (train & val).any() or (train & test).any() or (val & test).any():
        raise DatasetError("a node is in two parts of one split")
    return (train + 2 * val.astype(np.uint8) + 3 * test.astype(np.uint8)).astype(np.uint8)


def ids_to_split(count: int, train: np.ndarray, val: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Three lists of ids -> codes [count], as `masks_to_split`. Raises DatasetError where ids overlap, repeat or are out of range."""
    split = np.zeros(count, np.uint8)
    for code, ids in enumerate((train, val, test), 1):
        ids = np.asarray(ids, np.int64).ravel()
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            raise DatasetError(f"a split names id {ids.min() if ids.min() < 0 else ids.max()} of {count}")
        if split[ids].any() or np.unique(ids).size != ids.size:
            raise DatasetError("an id is twice in one split")
        split[ids] = code
    return split


def read_index_lines(path: Path, max_bytes: int = MAX_BYTES) -> list[np.ndarray]:
    """Comma-separated ids, one array per line. Raises DatasetError."""
    try:
        with open(path, encoding="ascii") as file:
            lines = [
                np.array([int(i) for i in line.split(",")]) for line in _bounded(file, path, max_bytes) if line.strip()
            ]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: not lines of numbers ({error})") from error
    if not lines:
        raise DatasetError(f"{path}: empty")
    return lines


def _bounded(file: Iterable[str], path: Path, limit: int) -> Iterable[str]:
    size = 0
    for line in file:
        size += len(line)
        if size > limit:
            raise DatasetError(f"{path}: unpacks to more than {limit:,} bytes")
        yield line


def per_class_splits(labels: np.ndarray, val: int, test: int, seeds: Iterable[int]) -> np.ndarray:
    """Codes [S, N]: `val` and `test` random nodes of each class, all others for training; one split per seed. Raises DatasetError."""
    splits = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        split = np.ones(len(labels), np.uint8)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            if len(members) <= val + test:
                raise DatasetError(
                    f"class {label} has {len(members)} nodes: too few for {val} validation and {test} test nodes"
                )
            chosen = rng.permutation(members)[: val + test]
            split[chosen[:val]], split[chosen[val:]] = 2, 3
        splits.append(split)
    return np.stack(splits)
