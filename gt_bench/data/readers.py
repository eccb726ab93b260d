"""Read untrusted files (npz without pickles, tables, graph6), and build edge lists and splits.

Every damaged file ends in one DatasetError that names it.
"""

# mypy: disable-error-code="assignment"

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gt_bench.utils.errors import DatasetError, UserError

MAX_BYTES = 16 << 30


@contextmanager
def dataset_errors(
    where: object,
    problem: str,
    errors: tuple[type[Exception], ...] = (Exception,),
    error_class: type[DatasetError] = DatasetError,
    place: str = "",
) -> Iterator[None]:
    """Turn exceptions of a block that reads a file into errors that name the file.

    Libraries raise exceptions of many types for damaged files, therefore all are converted by default. Errors of users
    pass; a DatasetError that does not name its file gets it.

    Args:
        where: the file, as it is named in the message.
        problem: what is wrong with it, for example "not a readable npz file".
        errors: exceptions to convert.
        error_class: class of the exception that is raised instead.
        place: where in the file.

    Raises:
        DatasetError: the block raised one of `errors`.
    """
    try:
        with located(str(where), place):
            yield
    except UserError:
        raise
    except errors as error:
        problem = f"{problem} ({type(error).__name__}: {str(error)[:200]})"
        raise error_class(problem, file=str(where), place=place) from error


@contextmanager
def located(file: str | Path = "", place: str = "") -> Iterator[None]:
    """Add the file and what surrounds the place to each DatasetError of the block that does not name its file."""
    try:
        yield
    except DatasetError as error:
        if not error.file:
            error.within(file, place, ": ")
        raise


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Compute the digest of a file.

    Args:
        path: the file.
        algorithm: name of the hash in hashlib.

    Returns:
        The digest in hexadecimal.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_npz(
    path: Path | io.BytesIO, keys: Sequence[str] | None = None, max_bytes: int = MAX_BYTES
) -> dict[str, np.ndarray]:
    """Read arrays of an npz file. Pickled objects are refused.

    Args:
        path: the file.
        keys: names of the arrays to read; all by default.
        max_bytes: maximum size of the unpacked arrays.

    Returns:
        Arrays by name.

    Raises:
        DatasetError: the file is damaged or too large, an array is missing, or it holds pickled objects.
    """
    with dataset_errors(path, "not a readable npz file"), zipfile.ZipFile(path) as archive:
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        missing = [key for key in keys or () if key not in sizes]
        if missing:
            remedy = f"it has: {', '.join(sorted(sizes))}"
            raise DatasetError(f"no array {missing[0]!r}", value=missing[0], remedy=remedy)
        wanted = list(keys) if keys is not None else list(sizes)
        if sum(sizes[key] for key in wanted) > max_bytes:
            raise DatasetError(f"the arrays unpack to more than {max_bytes:,} bytes")
        return {key: read_npy(archive.read(f"{key}.npy"), path, f"array {key!r}") for key in wanted}


def read_npy(content: bytes, file: object, place: str = "") -> np.ndarray:
    """Parse an npy file. Pickled objects are refused.

    Args:
        content: the content of the file.
        file: its name for error messages.
        place: where in the file it is.

    Returns:
        The array.

    Raises:
        DatasetError: the content is damaged or holds pickled objects.
    """
    with dataset_errors(file, "not a readable npy array of numbers", place=place):
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def read_table(path: Path, columns: int) -> list[list[str]]:
    """Read a text table whose columns are separated by tabs.

    Args:
        path: the file. Its first line, the names of the columns, is skipped.
        columns: expected number of columns.

    Returns:
        The rows.

    Raises:
        DatasetError: the file cannot be read, or a line has another number of columns.
    """
    rows = []
    with dataset_errors(path, "not a readable table"), open(path, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t"), 1):
            if number == 1 or not row:
                continue
            if len(row) != columns:
                problem = f"has {len(row)} columns where {columns} are expected"
                raise DatasetError(problem, place=f"line {number}", value=len(row))
            rows.append(row)
    return rows


def numbers(rows: Sequence[Sequence[str]], dtype: type, file: Path, place: str) -> np.ndarray:
    """Convert cells of a table to numbers.

    Args:
        rows: cells.
        dtype: int or float.
        file: the file, for error messages.
        place: where in the file.

    Returns:
        Array [rows, columns].

    Raises:
        DatasetError: a cell is not a number.
    """
    with dataset_errors(file, "not a table of numbers", place=place):
        return np.array([[dtype(cell) for cell in row] for row in rows], dtype).reshape(len(rows), -1)


def read_index_lines(path: Path) -> list[np.ndarray]:
    """Read lines of comma-separated ids.

    Args:
        path: the file.

    Returns:
        One array of ids per line.

    Raises:
        DatasetError: the file cannot be read, is empty, or has something else than ids.
    """
    with dataset_errors(path, "not lines of numbers"), open(path, encoding="ascii") as file:
        lines = [np.array([int(i) for i in line.split(",")]) for line in file if line.strip()]
    if not lines:
        raise DatasetError("the file is empty", file=path)
    return lines


def parse_graph6(line: bytes) -> tuple[int, np.ndarray]:
    """Parse one line of graph6 (http://users.cecs.anu.edu.au/~bdm/data/formats.txt).

    Args:
        line: the line.

    Returns:
        The number of nodes, and the edges [2, E] with i < j, ordered by j.

    Raises:
        DatasetError: the line is not graph6, or has more than 258,047 nodes.
    """
    line = bytes(line).strip().removeprefix(b">>graph6<<")
    data = np.frombuffer(line, np.uint8).astype(np.int64) - 63
    if not data.size or data.min() < 0 or data.max() > 63:
        raise DatasetError(f"{line[:40]!r} is not graph6", value=line)
    if data[0] < 63:
        nodes, start = int(data[0]), 1
    elif data.size >= 4 and data[1] < 63:
        nodes, start = int(data[1] << 12 | data[2] << 6 | data[3]), 4
    else:
        raise DatasetError("a graph6 line is truncated or has more than 258,047 nodes", value=line)
    pairs = nodes * (nodes - 1) // 2
    if data.size - start != -(-pairs // 6):
        raise DatasetError(f"{data.size - start} bytes where {nodes} nodes need {-(-pairs // 6)}", value=line)
    bits = np.unpackbits(data[start:].astype(np.uint8)[:, None], axis=1)[:, 2:].ravel()
    if bits[pairs:].any():
        raise DatasetError(f"{line[:40]!r} has bits after its last pair", value=line)
    positions = bits[:pairs].nonzero()[0]
    # column j holds the pairs (0, j) .. (j - 1, j), starting at j (j - 1) / 2
    column = ((1 + np.sqrt(1 + 8.0 * positions)) / 2).astype(np.int64)
    column -= column * (column - 1) // 2 > positions
    return nodes, np.stack([positions - column * (column - 1) // 2, column])


def both_directions(edges: np.ndarray, nodes: int, loops: bool = False) -> np.ndarray:
    """Make edges undirected.

    Args:
        edges: [2, E].
        nodes: number of nodes.
        loops: keep self-loops.

    Returns:
        Edges [2, E'], each in both directions, without duplicates, sorted.

    Raises:
        DatasetError: an edge names a node that does not exist.
    """
    edges = np.asarray(edges, np.int64).reshape(2, -1)
    if edges.size and (edges.min() < 0 or edges.max() >= nodes):
        wrong = edges.min() if edges.min() < 0 else edges.max()
        raise DatasetError(f"edges name node {wrong} of a graph with {nodes} nodes", value=int(wrong))
    if not loops:
        edges = edges[:, edges[0] != edges[1]]
    keys = distinct(np.concatenate([edges[0] * nodes + edges[1], edges[1] * nodes + edges[0]]))
    return np.stack([keys // nodes, keys % nodes]) if nodes else edges


def distinct(keys: np.ndarray) -> np.ndarray:
    """Sort whole numbers [n] without duplicates, 100 times faster than `np.unique` of NumPy 2.4."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def concatenate_graphs(graphs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenate the arrays of graphs.

    Args:
        graphs: arrays by name, the same names for each graph. `edge_index` [2, e] has local ids.

    Returns:
        The concatenated arrays, and `num_edges`: edges per graph.
    """
    axes = {"edge_index": 1, "split": 1}
    arrays = {key: np.concatenate([graph[key] for graph in graphs], axes.get(key, 0)) for key in graphs[0]}
    return arrays | {"num_edges": np.array([graph["edge_index"].shape[1] for graph in graphs])}


def concatenate_edges(edges: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Concatenate the edges of graphs.

    Args:
        edges: edges [2, e] of each graph, with local ids.

    Returns:
        `edge_index` [2, E], and `num_edges`: edges per graph.
    """
    return concatenate_graphs([{"edge_index": edge_index} for edge_index in edges])


def consecutive_split(train: int, val: int, test: int) -> np.ndarray:
    """Make a split whose parts are stored one after the other.

    Args:
        train: number of rows of the training part.
        val: number of rows of the validation part.
        test: number of rows of the test part.

    Returns:
        Codes [1, rows], uint8, as from `masks_to_split`.
    """
    return np.repeat([1, 2, 3], [train, val, test])[None].astype(np.uint8)


def masks_to_split(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Convert masks to split codes.

    Args:
        train: mask [..., N].
        val: mask [..., N].
        test: mask [..., N].

    Returns:
        Codes [..., N], uint8: 0 none, 1 train, 2 val, 3 test.

    Raises:
        DatasetError: the masks overlap or differ in shape.
    """
    train, val, test = (np.asarray(mask).astype(bool) for mask in (train, val, test))
    if not train.shape == val.shape == test.shape:
        shapes = (train.shape, val.shape, test.shape)
        raise DatasetError("split masks have different shapes: {}, {} and {}".format(*shapes), value=shapes)
    if (train & val).any() or (train & test).any() or (val & test).any():
        raise DatasetError("a node is in two parts of one split")
    return (train + 2 * val.astype(np.uint8) + 3 * test.astype(np.uint8)).astype(np.uint8)


def ids_to_split(count: int, train: np.ndarray, val: np.ndarray, test: np.ndarray, *, remedy: str = "") -> np.ndarray:
    """Convert lists of ids to split codes.

    Args:
        count: number of rows.
        train: ids of the training part.
        val: ids of the validation part.
        test: ids of the test part.
        remedy: what to do about an invalid id.

    Returns:
        Codes [count], as from `masks_to_split`.

    Raises:
        DatasetError: an id is duplicate or out of range.
    """
    split = np.zeros(count, np.uint8)
    for code, ids in enumerate((train, val, test), 1):
        ids = np.asarray(ids, np.int64).ravel()
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise DatasetError(f"a split names id {wrong} of {count} rows", value=wrong, remedy=remedy)
        if split[ids].any() or np.unique(ids).size != ids.size:
            values, counts = np.unique(np.concatenate([ids, np.flatnonzero(split)]), return_counts=True)
            wrong = int(values[counts > 1][0])
            raise DatasetError(f"duplicate id {wrong} in a split", value=wrong, remedy=remedy)
        split[ids] = code
    return split


def per_class_splits(labels: np.ndarray, val: int, test: int, seeds: Iterable[int]) -> np.ndarray:
    """Draw splits with a fixed number of validation and test nodes per class.

    Args:
        labels: class of each node [N].
        val: validation nodes per class.
        test: test nodes per class. All other nodes are for training.
        seeds: one split is drawn per seed.

    Returns:
        Codes [S, N], as from `masks_to_split`.

    Raises:
        DatasetError: a class has too few nodes.
    """
    splits = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        split = np.ones(len(labels), np.uint8)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            if len(members) <= val + test:
                problem = f"has {len(members)} nodes: too few for {val} validation and {test} test nodes"
                raise DatasetError(problem, place=f"class {label}", value=len(members))
            chosen = rng.permutation(members)[: val + test]
            split[chosen[:val]], split[chosen[val:]] = 2, 3
        splits.append(split)
    return np.stack(splits)
