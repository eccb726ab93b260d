"""GraphBatch: several graphs as one disjoint union, the input of every model.

Nodes of graph b are rows ptr[b]:ptr[b+1]. Both directions of an undirected edge are stored. Quantities per ordered pair
of nodes of one graph are flat, [sum n_b^2, C], row-major within a graph; `to_dense` and `pairs_to_dense` give the
padded forms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gt_models.batch_checks import (
    ROWS,
    BatchError,
    check_encoding,
    check_hyperedges,
    check_shapes,
    check_values,
    offsets,
)
from gt_models.layers.cached import cached_property
from gt_models.layers.static_shapes import needs_static_shapes

_GRAPH_KEYS = {"x", "edge_index", "adj_t", "edge_attr", "y", "batch", "ptr", "num_nodes", "hyperedge_index_t"}
_SIZES = ("max_nodes", "max_edges", "num_pairs")


class MissingEncoding(ValueError):
    """The batch does not have an encoding that a model needs, or has too few channels of it."""


@dataclass
class GraphBatch:
    """B graphs with N nodes and E directed edges in all.

    Features, offsets, edges and encodings must fit each other; models rely on it. Sizes, types and devices are compared
    when a batch is made, and when a model reads an encoding, edge features or hyperedges. Values (offsets, ends of
    edges, numbers of nodes) are checked on the CPU: elsewhere that would synchronise the device, so `of` alone does it.

    Attributes:
        x: node features, float [N, F], or long [N, F] when categorical.
        edge_index: long [2, E]; row 0 the source, row 1 the target.
        ptr: long [B + 1], node offsets of the graphs.
        edge_attr: float [E, D], or long [E, D] when categorical; None where edges carry nothing.
        y: targets in the task's own shape, or None.
        encodings: positional and structural encodings by name (`gt_models.encodings`): [N, k] per node, [sum n_b^2, k]
            per pair, [B, k] per graph.
        extras: other tensors that a task or model needs, by name (hyperedge members, masks, ...).
    """

    x: Tensor
    edge_index: Tensor
    ptr: Tensor
    edge_attr: Tensor | None = None
    y: Tensor | None = None
    encodings: dict[str, Tensor] = field(default_factory=dict)
    extras: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self):
        check_shapes(self.x, self.edge_index, self.ptr, self.edge_attr)
        # Computed on the CPU now: a later `int(tensor)` would synchronise the GPU and break torch.compile's graph. `to`
        # copies the values.
        if not needs_static_shapes(self.ptr):
            check_values(self.edge_index, self.ptr, self.x.size(0))
            self.max_nodes, self.max_edges, self.num_pairs  # noqa: B018

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute.

        New edges and new offsets are checked as those of a new batch, and what was computed from the old ones is
        forgotten.
        """
        if name in ("edge_index", "ptr") and "ptr" in self.__dict__:
            given = {"edge_index": self.edge_index, "ptr": self.ptr, name: value}
            if not needs_static_shapes(given["ptr"]):
                check_values(given["edge_index"], given["ptr"], self.x.size(0))
            cached = (key for key, one in vars(type(self)).items() if isinstance(one, cached_property))
            for key in ["max_edges"] if name == "edge_index" else list(cached):
                self.__dict__.pop(key, None)
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, data: Any) -> GraphBatch:
        """`data` itself if it is a GraphBatch, else read from a torch_geometric Data or Batch.

        A one-dimensional `x` or `edge_attr` becomes one column. Edges are those of `edge_index`, else of `adj_t`
        (`torch_geometric.transforms.ToSparseTensor`), whose values other than 1 are the encoding `edge_weight`; without
        both there are none. Hyperedges are `hyperedge_index`, long [H, order]. PyG can batch it only if all graphs have
        H of them. Any numbers of hyperedges can be batched as `hyperedge_index_t`, long [order, H], the transpose,
        which PyG treats as it treats `edge_index`. Every other tensor attribute becomes an encoding of that name.

        Raises:
            BatchError: node features are missing, an edge points outside the graph or joins two graphs, `batch` is not
                sorted, numbers of nodes, edges and rows differ, or edges are a dense `adj`.
        """
        if isinstance(data, cls):
            return data
        if getattr(data, "x", None) is None:
            raise BatchError(
                "the graph has no node features: set data.x (for example torch.ones(data.num_nodes, 1))", "x"
            )
        x, edge_index = _columns(data.x), getattr(data, "edge_index", None)
        if (num_nodes := getattr(data, "num_nodes", None)) not in (None, x.size(0)):
            raise BatchError(f"data.x has {x.size(0)} rows and the graph {num_nodes} nodes: give a row for each", "x")
        others = {k: v for k, v in data.to_dict().items() if k not in _GRAPH_KEYS and isinstance(v, Tensor)}
        if edge_index is None and getattr(data, "adj_t", None) is not None:
            edge_index, weight = _edges_of(data.adj_t, x.size(0))
            if bool((weight != 1).any()):
                others["edge_weight"] = weight
        if edge_index is None and getattr(data, "adj", None) is not None:
            raise BatchError(
                "the graph has data.adj and no edge_index: set data.edge_index (torch_geometric.utils.dense_to_sparse)",
                "adj",
            )
        if edge_index is None:  # a set
            edge_index = torch.empty(2, 0, dtype=torch.long, device=x.device)
        ptr, batch = getattr(data, "ptr", None), getattr(data, "batch", None)
        if batch is not None:
            ptr = offsets(batch, ptr, x.size(0))
        if ptr is None:
            ptr = torch.tensor([0, x.size(0)], device=x.device)
        edge_attr = getattr(data, "edge_attr", None)
        slices = getattr(data, "_slice_dict", None) or {}
        if "hyperedge_index" in slices and "hyperedge_index" in others:  # torch_geometric lays them side by side
            cuts = slices["hyperedge_index"].diff().tolist()
            others["hyperedge_index"] = torch.cat(others["hyperedge_index"].split(cuts, -1))
        if getattr(data, "hyperedge_index_t", None) is not None:
            others["hyperedge_index"] = data.hyperedge_index_t.t()
        found = cls(
            x, edge_index, ptr, None if edge_attr is None else _columns(edge_attr), getattr(data, "y", None), others
        )
        if x.device.type != "cpu":  # elsewhere the constructor does it
            check_values(edge_index, ptr, x.size(0))
        return found

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """N, of all graphs together."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """E, directed, of all graphs together."""
        return self.edge_index.size(1)

    @cached_property
    def sizes(self) -> Tensor:
        """Nodes per graph, long [B]."""
        return self.ptr[1:] - self.ptr[:-1]

    @cached_property
    def batch(self) -> Tensor:
        """Graph of each node, long [N]."""
        return torch.repeat_interleave(
            torch.arange(self.num_graphs, device=self.ptr.device), self.sizes, output_size=self.num_nodes
        )

    @cached_property
    def max_nodes(self) -> int:
        """Nodes of the largest graph (synchronises once, unless the batch was made on the CPU)."""
        if self.num_graphs < 2:
            return self.num_nodes
        return int(self.sizes.max())

    @cached_property
    def max_edges(self) -> int:
        """Edges of the graph with the most edges (synchronises once, unless the batch was made on the CPU)."""
        if self.num_graphs < 2 or not self.num_edges:
            return self.num_edges
        graph = torch.bucketize(self.edge_index[0], self.ptr[1:], right=True)
        return int(torch.bincount(graph).max())

    @cached_property
    def num_pairs(self) -> int:
        """Ordered pairs of nodes of one graph, sum n_b^2 (synchronises once, unless the batch was made on the CPU)."""
        if self.num_graphs < 2:
            return self.num_nodes**2
        return int(self.sizes.square().sum())

    @cached_property
    def local(self) -> Tensor:
        """Index of each node within its graph, long [N]."""
        return torch.arange(self.num_nodes, device=self.ptr.device) - self.ptr[self.batch]

    @cached_property
    def node_mask(self) -> Tensor:
        """True at real nodes of the padded form, bool [B, n_max]."""
        return torch.arange(self.max_nodes, device=self.ptr.device)[None] < self.sizes[:, None]

    @cached_property
    def pair_ptr(self) -> Tensor:
        """Offsets of the graphs in flat pair quantities, long [B + 1]."""
        return torch.cat([self.ptr.new_zeros(1), (self.sizes**2).cumsum(0)])

    @cached_property
    def pair_nodes(self) -> tuple[Tensor, Tensor]:
        """First and second node of every ordered pair, long [sum n_b^2] each."""
        sizes, num_pairs = self.sizes[self.batch], self.num_pairs
        first = torch.repeat_interleave(torch.arange(self.num_nodes, device=sizes.device), sizes, output_size=num_pairs)
        place = torch.arange(num_pairs, device=sizes.device)
        return first, place - self.first_pairs[first] + self.ptr[self.batch[first]]

    @cached_property
    def first_pairs(self) -> Tensor:
        """The first flat pair of each node, long [N]."""
        return self.pair_ptr[self.batch] + self.local * self.sizes[self.batch]

    def pair_of(self, first: Tensor, second: Tensor) -> Tensor:
        """Which flat pair (first, second) is, for nodes of one graph each, long of their shape."""
        return self.first_pairs[first] + self.local[second]

    @cached_property
    def node_slots(self) -> Tensor:
        """Place of every node in the padded form, long [N]."""
        return self.batch * self.max_nodes + self.local

    def out_degree(self, dtype: torch.dtype) -> Tensor:
        """Edges that leave each node, as a random walk counts them (a self-loop once), [N]."""
        ones = torch.ones(self.num_edges, device=self.ptr.device, dtype=dtype)
        return ones.new_zeros(self.num_nodes).index_add(0, self.edge_index[0], ones)

    def to_dense(self, values: Tensor) -> Tensor:
        """Per node [N, C] -> padded [B, n_max, C], zero at padding."""
        if self.num_graphs == 1:
            return values[None]
        out = values.new_zeros(self.num_graphs * self.max_nodes, *values.shape[1:])
        out = out.index_copy(0, self.node_slots, values)
        return out.view(self.num_graphs, self.max_nodes, *values.shape[1:])

    def from_dense(self, values: Tensor) -> Tensor:
        """Padded [B, n_max, C] -> per node [N, C]."""
        if self.num_graphs == 1:
            return values[0]
        return values.flatten(0, 1).index_select(0, self.node_slots)

    @cached_property
    def pair_slots(self) -> Tensor:
        """Place of every flat pair in the padded form, long [sum n_b^2]."""
        first, second = self.pair_nodes
        return self.node_slots[first] * self.max_nodes + self.local[second]

    def pairs_to_dense(self, values: Tensor) -> Tensor:
        """Flat pairs [sum n_b^2, C] -> padded [B, n_max, n_max, C], zero at padding."""
        n = self.max_nodes
        out = values.new_zeros(self.num_graphs * n * n, *values.shape[1:]).index_copy(0, self.pair_slots, values)
        return out.view(self.num_graphs, n, n, *values.shape[1:])

    def pairs_from_dense(self, values: Tensor) -> Tensor:
        """Padded [B, n_max, n_max, C] -> flat pairs [sum n_b^2, C]."""
        return values.flatten(0, 2).index_select(0, self.pair_slots)

    def edge_slots(self) -> tuple[Tensor, Tensor, Tensor]:
        """(graph, local source, local target) of each edge, long [E] each: indices into a padded pair tensor."""
        source, target = self.edge_index
        return self.batch[source], self.local[source], self.local[target]

    def encoding(self, name: str, width: int | None = None) -> Tensor:
        """Encoding `name`, cut to its first `width` channels. One without channels is a single channel.

        Raises:
            MissingEncoding: it is missing or has fewer channels; the message has the remedy.
            BatchError: it has not one row for each node, pair or graph of the batch, or is on another device; on the
                CPU also where its numbers of nodes or edges are not of the graph.
        """
        if name not in self.encodings:
            raise MissingEncoding(
                f"this model needs the encoding {name!r}; the batch has: {', '.join(sorted(self.encodings)) or 'none'}."
                f" Add it under `encodings:` in the recipe, or set data.{name} (see gt_models.encodings)"
            )
        value = self.encodings[name]
        if name in ROWS:
            value = _columns(value)
            check_encoding(self, name, value)
        if width is not None and value.size(-1) < width:
            raise MissingEncoding(
                f"encoding {name!r} has {value.size(-1)} channels and the model was built for {width}: compute it wider"
            )
        return value if width is None else value[..., :width]

    def edge_features(self, hyperedges: bool = False) -> Tensor:
        """`edge_attr`, or `hyperedge_attr` for `hyperedges`: one row for each.

        Raises:
            BatchError: they are missing, or have another number of rows.
        """
        name = "hyperedge_attr" if hyperedges else "edge_attr"
        value = self.extra(name) if hyperedges else self.edge_attr
        if value is None:
            raise BatchError(
                f"the model was built with edge_dim and the batch has no {name}: give it, or build with edge_dim=None",
                name,
            )
        index = self.extra("hyperedge_index") if hyperedges else None
        count = self.num_edges if index is None else index.size(0)
        if value.size(0) != count:
            raise BatchError(f"{name} has {value.size(0)} rows and the batch {count} edges: give a row for each", name)
        return value

    def extra(self, name: str) -> Tensor | None:
        """`extras[name]`, or an attribute of that name of a torch_geometric Data; None where there is neither."""
        return self.extras.get(name, self.encodings.get(name))

    def hyperedges(self, order: int) -> Tensor:
        """`hyperedge_index`, long [H, order]: the nodes of each hyperedge, numbered within the batch.

        Raises:
            BatchError: it is missing or of another order; on the CPU also if it names a node outside the batch, or
                nodes of two graphs.
        """
        return check_hyperedges(self, self.extra("hyperedge_index"), order).long()

    def to(
        self, device: torch.device | str, dtype: torch.dtype | None = None, non_blocking: bool = False
    ) -> GraphBatch:
        """A copy on `device`; floating tensors also in `dtype` where one is given."""

        def move(value):
            if isinstance(value, dict):
                return {k: move(v) for k, v in value.items()}
            if value is None:
                return None
            return value.to(device, dtype if value.is_floating_point() else None, non_blocking=non_blocking)

        moved = replace(self, **{f.name: move(getattr(self, f.name)) for f in fields(self)})
        moved.__dict__.update(_known_sizes(self))
        return moved


def _known_sizes(batch: GraphBatch) -> dict[str, int]:
    return {name: batch.__dict__[name] for name in _SIZES if name in batch.__dict__}


def _flatten(batch: GraphBatch) -> tuple[list[Any], dict[str, int]]:
    return [getattr(batch, field.name) for field in fields(batch)], _known_sizes(batch)


def _flatten_with_keys(batch: GraphBatch) -> tuple[list[tuple[Any, Any]], dict[str, int]]:
    values, sizes = _flatten(batch)
    return [(pytree.GetAttrKey(f.name), value) for f, value in zip(fields(batch), values, strict=True)], sizes


def _unflatten(values: Iterable[Any], sizes: dict[str, int]) -> GraphBatch:
    batch = object.__new__(GraphBatch)  # no check: the values may be anything
    batch.__dict__.update(zip((field.name for field in fields(GraphBatch)), values, strict=True), **sizes)
    return batch


# a batch as an argument of a program that torch.export makes, with its sizes as constants of the program
pytree.register_pytree_node(
    GraphBatch,
    _flatten,
    _unflatten,
    serialized_type_name="gt_models.batch.GraphBatch",
    flatten_with_keys_fn=_flatten_with_keys,
)


def _columns(values: Tensor) -> Tensor:
    return values[:, None] if values.dim() == 1 else values


def _edges_of(adj_t: Any, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Edges, long [2, E], and their values [E] of a transposed adjacency matrix; targets are its rows."""
    from torch_geometric.utils import to_edge_index

    if tuple(adj_t.size(i) for i in (0, 1)) != (num_nodes, num_nodes):
        raise BatchError(
            f"data.adj_t is {adj_t.size(0)} x {adj_t.size(1)} and the graph has {num_nodes} nodes: give a square "
            "matrix of that size",
            "adj_t",
        )
    (target, source), value = to_edge_index(adj_t)
    return torch.stack([source, target]), value
