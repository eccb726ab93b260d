"""Read user-supplied torch_geometric datasets and Data objects. What they carry is used, or refused with the remedy."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from gt_bench.data.custom.arrays import as_declared, as_table, check_edge_index, convert_arrays
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.splits import no_column
from gt_bench.data.custom.tables import FORM
from gt_bench.data.readers import concatenate_graphs, ids_to_split, located
from gt_bench.utils.errors import DatasetError

if TYPE_CHECKING:
    from torch_geometric.data.data import BaseData

# a Data object, a list of them, or a torch_geometric dataset: what a user's function must return
Graphs: TypeAlias = "BaseData | Iterable[BaseData]"
MASKS = ("train_mask", "val_mask", "test_mask")
INDICES = tuple(tuple(f"{part}_{kind}" for part in ("train", "val", "test")) for kind in ("idx", "index", "indices"))
EXPECTED = f"a Data of torch_geometric, a list of them, a dataset of torch_geometric, or {FORM}"
LINK_SPLIT = (
    "a split of edges is made by a transform: give the Data before it (before RandomLinkSplit or "
    "train_test_split_edges) and --task link-prediction, which draws splits and negatives, or masks of edges"
)
BLOCK = 1000  # graphs in memory at a time
SAMPLED = 100  # graphs that are inspected to decide what the targets belong to


def graphs_of(data: Graphs) -> "Iterable[BaseData]":
    """Iterate over the graphs of user-supplied data.

    Args:
        data: a Data object, a list of them, or a torch_geometric dataset.

    Returns:
        The graphs.

    Raises:
        DatasetError: it is something else.
    """
    from torch_geometric.data import Batch
    from torch_geometric.data.data import BaseData

    if isinstance(data, BaseData):
        return data.to_data_list() if isinstance(data, Batch) else [data]
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise DatasetError(f"found a {type(data).__name__}", remedy=f"expected {EXPECTED}")
    return cast("Iterable[BaseData]", data)  # Python iterates over an indexed object too


def level_of(dataset: Graphs) -> str:
    """Decide what targets belong to.

    Returns:
        "node" if all graphs have a target per node, "edge" if they have `edge_label`, else "graph".

    Raises:
        DatasetError: there are no graphs, or the number of targets fits neither.
    """
    sample = list(islice(graphs_of(dataset), SAMPLED))
    if not sample:
        raise DatasetError("found no graphs", remedy=f"expected {EXPECTED}")
    for number, data in enumerate(sample):
        with located(place=f"graph {number}"):
            _check_kind(data)
    if all(getattr(data, "edge_label", None) is not None for data in sample):
        return "edge"
    nodes = [_nodes(data)[0] or 0 for data in sample]
    rows = [next(iter(np.shape(y)), 0) if (y := getattr(data, "y", None)) is not None else 0 for data in sample]
    if rows == nodes and max(nodes) > 1:
        return "node"
    wrong = next((number for number, row in enumerate(rows) if row > 1 and row != nodes[number]), None)
    if wrong is not None and (len(sample) == 1 or len(set(rows)) > 1):
        raise DatasetError(
            f"has {nodes[wrong]} nodes and {rows[wrong]} targets",
            place=f"graph {wrong}",
            remedy="give a target for each node (-1: no class, nan: no number), for edges edge_label, or several "
            "graphs; or num_nodes if nodes are missing",
        )
    return "graph"


def from_graphs(
    dataset: Graphs, level: str, description: Description, by: str | None
) -> Iterator[dict[str, np.ndarray]]:
    """Read Data objects in blocks.

    Args:
        dataset: as in `graphs_of`.
        level: "node", "graph", "edge" (targets are `edge_label`, or y with a row per edge) or "link".
        description: what is declared.
        by: the attribute by which the data are split.

    Yields:
        Arguments of `PackedWriter.graphs`, and "by" if the data are split by an attribute.

    Raises:
        DatasetError: a graph is invalid, differs from the others, has attributes that are not used, or there are none.
    """
    official = _official_split(dataset, level, description)

    def read() -> Iterator[dict[str, np.ndarray]]:
        first: dict[str, str] | None = None
        absent = set(description.drop or ())
        for number, data in enumerate(graphs_of(dataset)):
            with located(place=f"graph {number}"):
                arrays = _arrays(data, level, description, by)
            absent -= keys_of(data).keys()
            if official is not None:
                arrays["split"] = official[:, number : number + 1] if level == "graph" else official
            form = _form(arrays)
            first = first or form
            for key, expected in first.items():
                if form[key] != expected:
                    problem, place = f"is {form[key]} and of graph 0 {expected}", f"graph {number}: {key}"
                    raise DatasetError(problem, place=place, remedy="all graphs need the same")
            yield arrays
        if first is None:
            raise DatasetError("found no graphs", remedy=f"expected {EXPECTED}")
        if absent:
            raise no_column(min(absent), list(keys_of(data)), place="drop")

    graphs = read()
    while block := list(islice(graphs, BLOCK)):
        yield _block(block)


def _official_split(dataset: Any, level: str, description: Description) -> np.ndarray | None:
    """Return the split of `get_idx_split()` of OGB, [1, rows], unless another split is declared."""
    declared = description.split and description.split.kind != "given"
    if declared or level not in ("node", "graph") or not hasattr(dataset, "get_idx_split"):
        return None
    parts = dataset.get_idx_split()
    ids = [parts.get(key, parts.get("val") if key == "valid" else None) for key in ("train", "valid", "test")]
    if any(part is None for part in ids):
        problem = f"has {', '.join(parts)}"
        raise DatasetError(problem, place="get_idx_split()", remedy="expected train, valid and test")
    rows = _nodes(next(iter(graphs_of(dataset))))[0] if level == "node" else len(dataset)
    with located(place="get_idx_split()"):
        parts = [np.asarray(part) for part in ids]
        return ids_to_split(rows or 0, *parts, remedy="correct it, or --split random")[None]


def _check_kind(data: Any) -> None:
    """Raise DatasetError for several graphs or several kinds of nodes in one object."""
    from torch_geometric.data import Batch
    from torch_geometric.data.data import BaseData

    if isinstance(data, Batch):
        remedy = "give the dataset instead of a DataLoader, or batch.to_data_list()"
        raise DatasetError(f"is a Batch of {data.num_graphs} graphs", remedy=remedy)
    if hasattr(data, "node_types"):
        remedy = "convert it to one graph with to_homogeneous(), and put the type into x"
        raise DatasetError(f"is a HeteroData with nodes of {len(data.node_types)} types", remedy=remedy)
    if not isinstance(data, BaseData) and getattr(data, "edge_index", None) is None:
        raise DatasetError(f"found a {type(data).__name__}", remedy=f"expected {EXPECTED}")


def _nodes(data: "BaseData") -> tuple[int | None, bool]:
    """Return the number of nodes, and whether it is only counted by the edges."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = getattr(data, "num_nodes", None)
    return nodes, any("num_nodes" in str(warning.message) for warning in caught)


def _form(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Describe what must be the same in all graphs."""

    def described(key: str) -> str:
        if key not in arrays:
            return "missing"
        return f"{'numbers' if arrays[key].dtype.kind == 'f' else 'categories'}, {arrays[key].shape[1]} wide"

    form = {key: described(key) for key in ("x", "edge_attr")}
    form["y"] = f"{int(np.prod(arrays['y'].shape[1:]))} wide"
    form["train_mask"] = f"of {len(arrays['split'])} splits" if "split" in arrays else "missing"
    return form


def keys_of(data: Any) -> Mapping[str, Any]:
    """Return the attributes of a Data object."""
    return data.to_dict() if hasattr(data, "to_dict") else vars(data)


def _arrays(data: Any, level: str, description: Description, by: str | None) -> dict[str, np.ndarray]:
    """Convert one Data object."""
    _check_kind(data)
    drop = set(description.drop or ()) - {"edge_index"}
    values = {key: value for key, value in keys_of(data).items() if value is not None and key not in drop}
    target = _target(values, level)
    if missing := [key for key in ("edge_index", *([target] if target else [])) if key not in values]:
        sparse = next((key for key in ("adj", "adj_t", "hyperedge_index") if key in values), None)
        hint = f"; it has {sparse}: remove the transform that makes it (ToSparseTensor, ToDense)" if sparse else ""
        problem = f"a {type(data).__name__} without {' and '.join(missing)}"
        remedy = f"a graph needs edge_index and {target or 'no targets'}{hint}"
        raise DatasetError(problem, value=missing, remedy=remedy)
    first = description.first_id or 0
    edge_index = check_edge_index(_array(values, "edge_index") - first)
    nodes, by_edges = _nodes(data)
    nodes = nodes - first if by_edges and nodes else nodes
    if not isinstance(nodes, int) or nodes < 1:
        raise DatasetError("has no nodes")
    edges = edge_index.shape[1]
    if edge_index.size and edge_index.max() >= nodes:
        edge = int(np.flatnonzero((edge_index >= nodes).any(0))[0])
        node = int(edge_index[:, edge].max())
        raise DatasetError(
            f"names node {node} of {nodes} nodes, which are numbered from 0 to {nodes - 1}",
            place=f"edge {edge}",
            value=node,
            remedy="correct edge_index or num_nodes, or if nodes are numbered from 1: --first-id 1",
        )
    if by_edges and not description.isolated and 2 * len(np.unique(edge_index)) < nodes:
        raise DatasetError(
            f"{nodes - len(np.unique(edge_index)):,} of {nodes:,} nodes are in no edge, and nodes are counted by the "
            "edges",
            remedy="number them without gaps: torch.unique(edge_index, return_inverse=True); or if these nodes are "
            "meant: --isolated, or num_nodes",
        )
    arrays = {"num_nodes": np.array([nodes]), "edge_index": edge_index}
    rows = {"node": nodes, "edge": edges, "link": edges}.get(level, 1)
    used = {"num_nodes", "edge_index", "x", "edge_attr", "edge_weight", *([target] if target else [])}
    if level == "link":
        arrays["y"] = np.ones((edges, 1), np.int64)
        used |= {"y"}  # of nodes, as the datasets of torch_geometric have it
    for key, expected in (("x", nodes), ("edge_attr", edges), ("edge_weight", edges), (target or "", rows)):
        if key not in values:
            continue
        array = _array(values, key)
        if key == target and level == "graph":
            arrays["y"] = array.reshape(1, -1)
            continue
        array = as_table(array, key)
        array = as_declared(array, key, description)
        if len(array) != expected:
            hint = "; nodes are counted by the edges: give num_nodes or x" if by_edges else ""
            raise DatasetError(f"has {len(array)} rows", place=key, remedy=f"expected {expected}{hint}")
        if key in ("edge_attr", "edge_weight") and not np.isfinite(array).all():
            problem = "contains a number that is not finite"
            raise DatasetError(problem, place=key, remedy="replace it, or remove the graph")
        if key == "x" and np.isinf(array).any():
            remedy = "replace it (NaN is a missing value)"
            raise DatasetError("contains an infinite number", place="x", remedy=remedy)
        arrays["y" if key == target else key] = array
    if (weight := arrays.pop("edge_weight", None)) is not None:
        arrays["edge_attr"] = _with_weight(arrays.get("edge_attr"), weight)
    split, of_split = _split(values, level, rows)
    if split is not None:
        arrays["split"] = split
    if by is not None:
        arrays["by"] = _by(values, by, rows)
    if level in ("edge", "link") and "train_mask" in values and split is None:
        of_split |= set(MASKS)  # of nodes, of which the task predicts nothing
    if unused := sorted(set(values) - used - of_split - ({by} if by else set())):
        remedy = (
            "put inputs of models into x (nodes) or edge_attr (edges), a split into train_mask, val_mask and test_mask,"
            f" or --drop {','.join(unused)}"
        )
        if any("edge_index" in key or "edge_label" in key for key in unused):
            remedy = LINK_SPLIT
        raise DatasetError("is not used", place=", ".join(unused), remedy=remedy)
    return arrays


def _target(values: Mapping[str, Any], level: str) -> str | None:
    """Return the attribute with the targets. None for link prediction."""
    if level == "edge" and "edge_label" in values:
        return "edge_label"
    return None if level == "link" else "y"


def _with_weight(edge_attr: np.ndarray | None, weight: np.ndarray) -> np.ndarray:
    if edge_attr is None:
        return weight.astype(np.float64)
    if edge_attr.dtype.kind != "f":
        remedy = "choose: --drop edge_weight, or --numbers edge_attr"
        raise DatasetError("has categories and edge_weight numbers", place="edge_attr", remedy=remedy)
    return np.concatenate([edge_attr, weight], axis=1)


def _split(values: Mapping[str, Any], level: str, rows: int) -> tuple[np.ndarray | None, set[str]]:
    """Return the split of the Data, codes [S, rows], and the attributes that it is read from.

    A split is three masks [rows] or [rows, S], or three lists of ids: train_idx, val_idx and test_idx.
    """
    kind = {"node": "node", "edge": "edge", "link": "edge"}.get(level, "graph")
    renamed = {key.replace("valid_", "val_"): key for key in values}
    for names in (MASKS, *INDICES):
        present = [name for name in names if name in renamed]
        if not present or kind == "graph":
            continue
        if names == MASKS and kind == "edge" and len(np.atleast_1d(values[renamed[present[0]]])) != rows:
            continue
        if missing := [name for name in names if name not in present]:
            raise DatasetError(
                f"has {' and '.join(present)} but not {' and '.join(missing)}",
                value=missing,
                remedy=f"add all three, with a row per {kind}, or --drop "
                f"{','.join(renamed[name] for name in present)}: then splits are drawn",
            )
        arrays = [_array(values, renamed[name]) for name in names]
        keys = {renamed[name] for name in names}
        return (_from_masks if names == MASKS else _from_ids)(arrays, names, rows, kind), keys
    return None, set()


def _from_ids(ids: Sequence[np.ndarray], names: Sequence[str], rows: int, kind: str) -> np.ndarray:
    masks = []
    for name, array in zip(names, ids, strict=True):
        if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() >= rows)):
            raise DatasetError(f"must have numbers of {kind}s from 0 to {rows - 1}", place=name)
        masks.append(np.bincount(array.reshape(-1), minlength=rows).astype(bool))
    return _from_masks(masks, names, rows, kind)


def _from_masks(arrays: Sequence[np.ndarray], names: Sequence[str], rows: int, kind: str) -> np.ndarray:
    masks = [as_table(mask, name) for name, mask in zip(names, arrays, strict=True)]  # [N, S] or [N, 1]
    splits = max(mask.shape[1] for mask in masks)  # wikics has one test mask for all splits
    if any(len(mask) != rows or mask.shape[1] not in (1, splits) or mask.dtype != bool for mask in masks):
        raise DatasetError(f"must be bool, with a row for each of the {rows} {kind}s", place=", ".join(names))
    stacked = np.stack([np.broadcast_to(mask, (rows, splits)) for mask in masks])  # [3, N, S]
    if (twice := np.argwhere(stacked.sum(0) > 1)).size:
        row, split = twice[0]
        both = " and ".join(name for name, mask in zip(names, stacked, strict=True) if mask[row, split])
        problem = f"is in {both}" + (f", like {len(twice) - 1} others" if len(twice) > 1 else "")
        remedy = f"correct them, or --drop {','.join(names)}: then splits are drawn"
        raise DatasetError(problem, place=f"{kind} {row}", remedy=remedy)
    return (stacked * np.array([1, 2, 3])[:, None, None]).sum(0).astype(np.uint8).T


def _by(values: Mapping[str, Any], column: str, rows: int) -> np.ndarray:
    """Return the values of an attribute [rows] by which the data are split."""
    if column not in values:
        raise no_column(column, [key for key in values if key not in ("x", "edge_index", "y")], place="split")
    cells = np.atleast_1d(_array(values, column))
    if cells.size != rows:
        problem, remedy = f"has {cells.size} values for {rows} targets", "a split needs one value for each"
        raise DatasetError(problem, place=column, remedy=remedy)
    return cells.reshape(-1)


def _block(graphs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    arrays = concatenate_graphs(graphs)
    arrays.setdefault("x", np.zeros((arrays["num_nodes"].sum(), 1), np.uint8))
    y = arrays["y"]
    arrays["y"] = y[:, 0] if y.shape[1] == 1 else y
    return convert_arrays(arrays)


def _array(values: Mapping[str, Any], key: str) -> np.ndarray:
    value = values[key]
    if hasattr(value, "toarray"):
        remedy = f"give torch.from_numpy({key}.toarray()).float()"
        raise DatasetError(f"is a {type(value).__name__} of scipy", place=key, remedy=remedy)
    try:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = "use a dense tensor of float32 or int64"
        raise DatasetError(f"cannot be read ({error})", place=key, remedy=remedy) from error
