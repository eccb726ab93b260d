"""Check packed arrays, and compute the statistics that are compared with the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gt_bench.data.readers import distinct
from gt_bench.utils.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 18  # rows processed at a time: bounds the memory, and fits a cache


def inspect(header: Any, arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Check the arrays of a packed dataset and compute its statistics.

    Args:
        header: a `PackedHeader`.
        arrays: arrays by name, as in `gt_bench.data.packed`.

    Returns:
        graphs, nodes, edges (as stored, one per direction), edges_undirected (distinct, without self-loops),
        self_loops, symmetric, min_nodes, max_nodes, features, classes and label_counts or targets, target_edges (of a
        dataset of edges), splits, and train, val and test (rows of the first split); of user-supplied data with missing
        features also missing.

    Raises:
        DatasetError: lengths, ids, labels, categories or split codes are out of range, or a number is not finite.
    """
    for name in ("node_ptr", "edge_ptr", "x", "source", "target"):
        if name not in arrays:
            raise DatasetError(f"no array {name!r}", value=name)
    node_ptr, edge_ptr = arrays["node_ptr"], arrays["edge_ptr"]
    sizes = node_ptr.diff()
    if (
        node_ptr.shape != edge_ptr.shape
        or node_ptr.numel() < 2
        or bool((sizes < 0).any())
        or bool((edge_ptr.diff() < 0).any())
    ):
        raise DatasetError("node_ptr and edge_ptr do not describe the same graphs")
    graphs, nodes, edges = sizes.numel(), int(node_ptr[-1]), int(edge_ptr[-1])
    _check_rows(header, arrays, graphs, nodes, edges)
    own = "content" in header.provenance.get("arguments", {})  # user-supplied: NaN is a missing value
    missing = _missing(arrays["x"]) if own else {}
    _check_features("x", arrays["x"], header.in_dim, missing)
    if "edge_attr" in arrays:
        _check_features("edge_attr", arrays["edge_attr"], header.edge_dim)
    elif header.edge_dim is not None:
        raise DatasetError(f"is missing, the header has edge_dim {header.edge_dim}", place="array 'edge_attr'")
    statistics: dict[str, Any] = {"graphs": graphs, "nodes": nodes, "edges": edges}
    statistics |= _edge_statistics(arrays)
    statistics |= {"min_nodes": int(sizes.min()), "max_nodes": int(sizes.max())}
    statistics["features"] = arrays["x"].size(1) if arrays["x"].dim() > 1 else 1
    if missing:
        statistics["missing"] = missing
    if "y" in arrays:
        statistics |= _target_statistics(header, arrays["y"])
    if "pair_ptr" in arrays:
        statistics["pairs"] = int(arrays["pair_ptr"][-1])
    if "hyperedges" in arrays:
        members = arrays["hyperedges"]
        if members.dim() != 2 or (members.numel() and not 0 <= int(members.min()) <= int(members.max()) < nodes):
            raise DatasetError("a hyperedge names a node that does not exist", place="array 'hyperedges'")
        statistics |= {"hyperedges": members.size(0), "hyperedges_distinct": members.unique(dim=0).size(0)}
    if "target_pair" in arrays:
        pairs = arrays["target_pair"]
        if pairs.dim() != 2 or (pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < nodes):
            raise DatasetError("a target names a node that does not exist", place="array 'target_pair'")
        statistics["target_edges"] = pairs.size(0)
    if header.num_splits:
        if "split" not in arrays or arrays["split"].size(0) != header.num_splits:
            raise DatasetError(f"must have {header.num_splits} rows (num_splits)", place="array 'split'")
        if arrays["split"].numel() and not 0 <= int(arrays["split"].min()) <= int(arrays["split"].max()) <= 3:
            raise DatasetError("codes must be 0 (none), 1 (train), 2 (val) or 3 (test)", place="array 'split'")
        counts = arrays["split"][0].long().bincount(minlength=4).tolist()
        statistics |= {"splits": header.num_splits, "train": counts[1], "val": counts[2], "test": counts[3]}
    return statistics


def compare(expected: Mapping[str, Any], statistics: Mapping[str, Any]) -> list[str]:
    """Compare statistics with the published ones.

    Args:
        expected: published statistics. A float is compared to the digits with which it is published.
        statistics: measured statistics.

    Returns:
        One line per difference.
    """
    lines = []
    for key, want in expected.items():
        have = statistics.get(key, "missing")
        if isinstance(want, float) and isinstance(have, int | float):
            digits = len(repr(want).partition(".")[2])
            same = abs(have - want) <= 0.5 * 10**-digits + 1e-9
        else:
            same = have == want
        if not same:
            lines.append(f"{key}: measured {have}, published {want}")
    return lines


def _check_rows(header: Any, arrays: Mapping[str, Tensor], graphs: int, nodes: int, edges: int) -> None:
    rows = {"x": nodes, "source": edges, "target": edges, "edge_attr": edges}
    targets = arrays["target_pair"].size(0) if "target_pair" in arrays else 0
    of_level = {"node": nodes, "edge": targets}
    rows |= {"node_ptr": graphs + 1, "pair_ptr": graphs + 1, "y": of_level.get(header.level, graphs)}
    counts = {"node": nodes, "edge": edges, "graph": graphs}
    rows |= {name: counts[kind] for name, kind in header.extras.items() if kind != "table"}
    for name, count in rows.items():
        if name in arrays and arrays[name].size(0) != count:
            problem = f"has {arrays[name].size(0)} rows where {count} are expected"
            raise DatasetError(problem, place=f"array {name!r}", value=arrays[name].size(0))
    hyperedges = arrays["hyperedges"].size(0) if "hyperedges" in arrays else 0
    per_split = {"node": nodes, "graph": graphs, "edge": targets, "hyperedge": hyperedges}[header.split_kind]
    if "split" in arrays and arrays["split"].size(1) != per_split:
        problem = f"has {arrays['split'].size(1)} columns for {per_split} {header.split_kind}s"
        raise DatasetError(problem, place="array 'split'", value=arrays["split"].size(1))


def _missing(x: Tensor) -> dict[str, int]:
    """Count missing values: {number of a column, as text for JSON: rows without a value}."""
    if not x.is_floating_point():
        return {}
    counts = sum(part.isnan().sum(0) for part in x.view(len(x), -1).split(CHUNK // max(x[0].numel(), 1) + 1))
    return {str(column): count for column, count in enumerate(counts.tolist()) if count}


def _check_features(
    array: str, values: Tensor, dim: int | list[int] | None, missing: Mapping[str, int] | None = None
) -> None:
    place, width = f"array {array!r}", values.size(1) if values.dim() > 1 else 1
    if isinstance(dim, int):
        if width != dim:
            raise DatasetError(f"has {width} columns where the header has {dim}", place=place, value=width)
        if values.is_floating_point() and not all(
            (not bool(part.isinf().any()) if bool(missing) else bool(part.isfinite().all()))
            for part in values.split(CHUNK // max(width, 1) + 1)
        ):
            raise DatasetError("contains a number that is not finite", place=place)
    elif dim is not None:
        if width != len(dim) or values.is_floating_point():
            problem = f"has {width} columns of {values.dtype} where the header has {len(dim)} categorical"
            raise DatasetError(problem, place=place, value=width)
        if values.numel():
            columns = values if values.dim() > 1 else values[:, None]
            low, high = columns.amin(0).tolist(), columns.amax(0).tolist()
            for column, (lowest, highest, vocabulary) in enumerate(zip(low, high, dim)):
                if lowest < 0 or highest >= vocabulary:
                    wrong = lowest if lowest < 0 else highest
                    problem = f"has category {wrong} of a vocabulary of {vocabulary}"
                    raise DatasetError(problem, place=f"{place}: column {column}", value=wrong)


def _edge_statistics(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Count over blocks of whole graphs of about CHUNK edges, in numpy: its sort is much faster than torch.unique."""
    node_ptr, edge_ptr = arrays["node_ptr"].numpy(), arrays["edge_ptr"].numpy()
    loops = undirected = start = 0
    symmetric = True
    graphs = len(node_ptr) - 1
    while start < graphs:
        stop = int(np.searchsorted(edge_ptr, edge_ptr[start] + CHUNK, side="right")) - 1
        stop = min(max(stop, start + 1), graphs)
        span = slice(int(edge_ptr[start]), int(edge_ptr[stop]))
        source, target = (arrays[key][span].numpy().astype(np.int64) for key in ("source", "target"))
        counts = np.diff(edge_ptr[start : stop + 1])
        size = np.repeat(np.diff(node_ptr[start : stop + 1]), counts)
        offset = np.repeat(node_ptr[start:stop] - node_ptr[start], counts)
        if source.size and (min(source.min(), target.min()) < 0 or (np.maximum(source, target) >= size).any()):
            problem = "an edge names a node that does not exist in its graph"
            raise DatasetError(problem, place=f"graphs {start}..{stop - 1}")
        source, target = source + offset, target + offset
        width = int(node_ptr[stop] - node_ptr[start])
        loop = source == target
        loops += int(loop.sum())
        forward, backward = distinct(source * width + target), distinct(target * width + source)
        same = np.array_equal(forward, backward)
        symmetric = symmetric and same
        if same:
            undirected += (len(forward) - len(distinct(source[loop]))) // 2
        else:
            undirected += len(distinct((np.minimum(source, target) * width + np.maximum(source, target))[~loop]))
        start = stop
    return {"edges_undirected": undirected, "self_loops": loops, "symmetric": symmetric}


def _target_statistics(header: Any, y: Tensor) -> dict[str, Any]:
    if str(y.dtype) not in ("torch.int64", "torch.float32"):
        raise DatasetError(f"must be int64 (classes) or float32, not {y.dtype}", place="array 'y'", value=y.dtype)
    classes = header.task.endswith("-classification")
    if classes:
        if y.is_floating_point():
            raise DatasetError(f"classes must be integers, not {y.dtype}", place="array 'y'", value=y.dtype)
        # checked before counting, which allocates memory for the largest label
        if y.numel() and (int(y.min()) < -1 or int(y.max()) >= header.out_dim):
            problem = f"labels are in {int(y.min())}..{int(y.max())}"
            remedy = f"expected -1 (no label) to {header.out_dim - 1}, since the header has {header.out_dim} classes"
            raise DatasetError(problem, place="array 'y'", remedy=remedy)
        counts = y[y >= 0].flatten().bincount(minlength=header.out_dim)
        return {"classes": header.out_dim, "label_counts": counts.tolist(), "unlabelled": int((y < 0).sum())}
    if y.is_floating_point() and bool(y.isinf().any()):
        raise DatasetError("a target is infinite", place="array 'y'")
    return {
        "targets": y.size(1) if y.dim() > 1 else 1,
        "missing_targets": int(y.isnan().sum()) if y.is_floating_point() else 0,
    }
