"""Types of the arrays of user-supplied data. A conversion that would change a number is an error."""

import numpy as np

from gt_bench.data.custom.description import Description
from gt_bench.data.packed_writer import compact
from gt_bench.utils.errors import DatasetError

MAX_ID = 2**31  # ids and categories are stored as int32
FEW = 10  # values that a column of categories may have in any number of rows
MAX_VALUES = 1000  # of a category, each of which needs weights of its own
FEW_STEPS = 1000  # of float32 between the smallest and the largest number of a column


def as_table(array: np.ndarray, key: str) -> np.ndarray:
    """Convert an array to rows and columns.

    Args:
        array: numbers [N] or [N, F].
        key: its name for error messages.

    Returns:
        The array [N, F].

    Raises:
        DatasetError: the shape is another one, or the values are not numbers.
    """
    if array.ndim not in (1, 2) or 0 in array.shape[1:] or array.dtype.kind not in "biuf":
        hint = "; number classes and categories 0, 1, ..." if array.dtype.kind in "SUO" else ""
        problem = f"is {array.dtype} of shape {list(array.shape)}"
        raise DatasetError(problem, place=key, remedy=f"expected rows of numbers{hint}")
    return array[:, None] if array.ndim == 1 else array


def as_declared(array: np.ndarray, key: str, description: Description) -> np.ndarray:
    """Return features as numbers or categories, where that is declared. Otherwise their type decides."""
    if key in (description.numbers or ()):
        return array.astype(np.float64)
    if key in (description.categories or ()) and (array == np.floor(array)).all():
        return array.astype(np.int64)
    return array


def with_reverse_edges(block: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Adds the reverse of every edge that has none, with the same features.

    Args:
        block: arrays of one or more whole graphs, as `Reader.blocks` yields them.

    Returns:
        The block, in which added edges follow those of their graph. A block whose edges do not fit its graphs is
        returned as it is: it is refused when it is packed.
    """
    sizes, counts = block["num_nodes"].astype(np.int64), block["num_edges"].astype(np.int64)
    source, target = block["edge_index"].astype(np.int64)
    graph = np.repeat(np.arange(len(counts)), counts)
    if len(sizes) != len(counts) or len(graph) != len(source) or not len(source):
        return block
    width = int(max(sizes.max(), source.max() + 1, target.max() + 1))
    forward, backward = (graph * width + source) * width + target, (graph * width + target) * width + source
    added = np.flatnonzero(~np.isin(backward, forward))
    order = np.argsort(np.concatenate([graph, graph[added]]), kind="stable")
    edges = np.concatenate([block["edge_index"], block["edge_index"][::-1, added]], axis=1)[:, order]
    more = {"edge_index": edges, "num_edges": counts + np.bincount(graph[added], minlength=len(counts))}
    if "target" in block:
        more["target"] = np.argsort(order)[block["target"]]  # places of the given edges
    if "edge_attr" in block:
        more["edge_attr"] = np.concatenate([block["edge_attr"], block["edge_attr"][added]])[order]
    return {**block, **more}


def check_edge_index(array: np.ndarray) -> np.ndarray:
    """Check and convert edges.

    Args:
        array: edges [2, E].

    Returns:
        Edges [2, E], int32.

    Raises:
        DatasetError: the shape is another one, or an id is out of range.
    """
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise DatasetError(f"has shape {list(array.shape)}", place="edge_index", remedy=f"expected [2, E]{hint}")
    return check_whole_numbers(array, "edge_index").astype(np.int32)


def check_whole_numbers(array: np.ndarray, key: str, limit: int = MAX_ID, remedy: str = "") -> np.ndarray:
    """Check that an array has whole numbers in a range.

    Args:
        array: of any shape.
        key: its name for error messages.
        limit: exclusive upper bound.
        remedy: what else to do about other numbers.

    Returns:
        The array.

    Raises:
        DatasetError: an entry is not a whole number in 0..limit - 1.
    """
    remedy = f"expected whole numbers from 0 to {limit - 1}{remedy}"
    if array.size and array.dtype.kind not in "iu":
        raise DatasetError(f"is {array.dtype}", place=key, remedy=remedy)
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise _wrong_entry(array, (array < 0) | (array >= limit), key, "", remedy)
    return array


def check_precision(array: np.ndarray, key: str) -> None:
    """Check that numbers such as times in seconds stay different as float32, which has steps of 128 at 1.6e9.

    Args:
        array: numbers [N] or [N, F].
        key: its name for error messages.

    Raises:
        DatasetError: a column has large numbers in so small a range that more than half of the different ones are lost.
    """
    for number, column in enumerate(array.reshape(len(array), -1).T if array.size else ()):
        known = column[np.isfinite(column)].astype(np.float64)
        if not known.size or not 2**24 <= (largest := np.abs(known).max()) <= np.finfo(np.float32).max:
            continue
        if known.max() - known.min() < FEW_STEPS * np.spacing(np.float32(largest)):
            before, after = len(np.unique(known)), len(np.unique(known.astype(np.float32)))
            if 2 * after < before:
                raise DatasetError(
                    f"has {before:,} different numbers up to {largest:.10g}, of which {after:,} remain as float32",
                    place=f"{key}: column {number}",
                    remedy="subtract the smallest",
                )


def _as_float32(array: np.ndarray, key: str, allow_nan: bool = False) -> np.ndarray:
    check_precision(array, key)
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32)
    wrong = np.isinf(converted) if allow_nan else ~np.isfinite(converted)
    if wrong.any():
        raise _wrong_entry(array, wrong, key, ", which is not finite as float32", "replace or remove it")
    return converted


def _wrong_entry(array: np.ndarray, wrong: np.ndarray, key: str, problem: str, remedy: str) -> DatasetError:
    index = np.argwhere(wrong)[0]
    value, column = array[tuple(index)].item(), f", column {index[1]}" if len(index) > 1 else ""
    return DatasetError(f"is {value:g}{problem}", place=f"{key}: row {index[0]}{column}", value=value, remedy=remedy)


def convert_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert arrays to types that do not depend on the block.

    Args:
        arrays: num_nodes, num_edges, x, edge_index, y, and optionally edge_attr and split.

    Returns:
        The arrays: categories int32, continuous features float32 (NaN in x: missing), targets int64 or float32, edges
        unchanged.

    Raises:
        DatasetError: the conversion would change a number.
    """
    out = {key: np.asarray(value) for key, value in arrays.items()}
    for key in ("x", "edge_attr"):
        if key not in out:
            continue
        table = as_table(out[key], key)
        table = table.astype(np.uint8) if table.dtype == bool else table
        if table.dtype.kind == "f":
            out[key] = _as_float32(table, key, allow_nan=key == "x")  # NaN: a missing value
        else:
            remedy = " of categories; quantities are floating-point numbers"
            out[key] = check_whole_numbers(table, key, remedy=remedy).astype(np.int32)
    for key in ("num_nodes", "num_edges"):
        if check_whole_numbers(out[key], key).ndim != 1:
            raise DatasetError(f"has shape {list(out[key].shape)}", place=key, remedy="expected one number per graph")
    if (empty := np.flatnonzero(out["num_nodes"] == 0)).size:
        raise DatasetError("has no nodes", place=f"graph {empty[0]} (counted from 0)", remedy="remove it")
    as_table(out["y"], "y")
    continuous = out["y"].dtype.kind == "f"
    out["y"] = _as_float32(out["y"], "y", allow_nan=True) if continuous else out["y"].astype(np.int64)
    if "split" in out:
        out["split"] = compact(check_whole_numbers(out["split"], "split", 4))
    return out
