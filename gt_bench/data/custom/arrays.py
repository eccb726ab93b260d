"""The types that arrays of a user's own data take, whatever they were read from; a number that would change by it is an error."""

from pathlib import Path

import numpy as np

from gt_bench.data.packed import compact
from gt_bench.utils.errors import DatasetError

MOST = 2**31  # ids and categories are stored as int32


def table_of(array: np.ndarray, key: str, where: str | Path) -> np.ndarray:
    """Rows and columns. Raises DatasetError where there are none, or the values are not numbers."""
    if array.ndim not in (1, 2) or 0 in array.shape[1:] or array.dtype.kind not in "biuf":
        remedy = "; number classes and categories 0, 1, ..." if array.dtype.kind in "SUO" else ""
        raise DatasetError(
            f"{where}: {key} must be rows of numbers; it is {array.dtype} of shape {list(array.shape)}{remedy}"
        )
    return array[:, None] if array.ndim == 1 else array


def with_reverse_edges(block: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Adds the reverse of every edge that has none, with the same features.

    Args:
        block: arrays of one or more whole graphs, as `Reader.blocks` yields them.

    Returns:
        The block, in which added edges follow those of their graph, and how many were added. A block whose edges do not
        fit its graphs is returned as it is: it is refused when it is packed.
    """
    sizes, counts = block["num_nodes"].astype(np.int64), block["num_edges"].astype(np.int64)
    source, target = block["edge_index"].astype(np.int64)
    graph = np.repeat(np.arange(len(counts)), counts)
    if len(sizes) != len(counts) or len(graph) != len(source) or not len(source):
        return block, 0
    width = int(max(sizes.max(), source.max() + 1, target.max() + 1))
    forward, backward = (graph * width + source) * width + target, (graph * width + target) * width + source
    added = np.flatnonzero(~np.isin(backward, forward))
    order = np.argsort(np.concatenate([graph, graph[added]]), kind="stable")
    edges = np.concatenate([block["edge_index"], block["edge_index"][::-1, added]], axis=1)[:, order]
    more = {"edge_index": edges, "num_edges": counts + np.bincount(graph[added], minlength=len(counts))}
    if "edge_attr" in block:
        more["edge_attr"] = np.concatenate([block["edge_attr"], block["edge_attr"][added]])[order]
    return {**block, **more}, len(added)


def edges_of(array: np.ndarray, where: str | Path) -> np.ndarray:
    """Edges int32 [2, E]. Raises DatasetError for another shape and for ids that int32 does not hold."""
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise DatasetError(f"{where}: edge_index must be of shape [2, E]; it is {list(array.shape)}{hint}")
    return whole_numbers(array, "edge ids", where).astype(np.int32)


def whole_numbers(array: np.ndarray, what: str, where: str | Path, limit: int = MOST) -> np.ndarray:
    """The array. Raises DatasetError where it does not hold whole numbers from 0 to below `limit`."""
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= limit):
        said = (
            f"; it is {array.dtype}" if array.dtype.kind not in "iu" else _entry(array, (array < 0) | (array >= limit))
        )
        raise DatasetError(f"{where}: {what} must be whole numbers from 0 to {limit - 1}{said}")
    return array


def finite(array: np.ndarray, key: str, where: str | Path, missing: bool = False) -> np.ndarray:
    """The array as float32. Raises DatasetError for a number that is not finite there; `missing`: NaN stands for what is not known."""
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    wrong = np.isinf(found) if missing else ~np.isfinite(found)
    if wrong.any():
        raise DatasetError(
            f"{where}: {key} holds a number that is not finite as float32{_entry(array, wrong)}; put another in its place, or take it out"
        )
    return found


def _entry(array: np.ndarray, wrong: np.ndarray) -> str:
    """The first wrong entry, for messages."""
    index = np.argwhere(wrong)[0]
    return f"; row {index[0]}{f', column {index[1]}' if len(index) > 1 else ''} is {array[tuple(index)]:g}"


def typed(arrays: dict[str, np.ndarray], where: str | Path) -> dict[str, np.ndarray]:
    """Types that stay the same from block to block: categories int32, features float32, targets int64 or float32; edges as they are.
    Raises DatasetError where that would change a number."""
    out = {key: np.asarray(value) for key, value in arrays.items()}
    for key in ("x", "edge_attr"):
        if key in out:
            table = table_of(out[key], key, where)
            table = table.astype(np.uint8) if table.dtype == bool else table
            out[key] = (
                finite(table, key, where)
                if table.dtype.kind == "f"
                else whole_numbers(table, f"categories in {key} (quantities are floating-point numbers)", where).astype(
                    np.int32
                )
            )
    for key in ("num_nodes", "num_edges"):
        if whole_numbers(out[key], key, where).ndim != 1:
            raise DatasetError(f"{where}: {key} must be one number per graph; it is of shape {list(out[key].shape)}")
    if (out["num_nodes"] == 0).any():
        raise DatasetError(f"{where}: a graph has no nodes; take it out")
    table_of(out["y"], "y", where)
    out["y"] = finite(out["y"], "y", where, missing=True) if out["y"].dtype.kind == "f" else out["y"].astype(np.int64)
    if "split" in out:
        out["split"] = compact(whole_numbers(out["split"], "split codes", where, 4))
    return out
