"""Node2Subgraph: a node-level task on one large graph as graph-level tasks on small ones (PPGT, Appendix B.4)."""

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch


class Subgraphs:
    """One induced subgraph around any node: its nodes up to `num_hops` hops, at most `max_nodes` of them.

    Breadth first, edges taken in both directions. The first hop that would pass `max_nodes` is not taken whole: nodes
    of that frontier are drawn at random until the subgraph has `max_nodes`. Edges keep their direction and features. A
    target's draw depends on `seed` and the target alone, not on the other targets of the call.

    Args:
        graph: one graph (a batch counts as one disconnected graph).
        num_hops: K >= 0. max_nodes: M >= 1. seed: of the draws.
        keep: cache each requested subgraph (about 12 bytes a node and an edge), for many epochs over the
            same targets.

    Raises:
        ValueError: num_hops < 0 or max_nodes < 1.
    """

    def __init__(self, graph: GraphBatch, num_hops: int, max_nodes: int, seed: int = 0, keep: bool = True):
        if num_hops < 0 or max_nodes < 1:
            raise ValueError(f"num_hops={num_hops} must be at least 0 and max_nodes={max_nodes} at least 1")
        self.graph, self.num_hops, self.max_nodes, self.seed, self.keep = graph, num_hops, max_nodes, seed, keep
        n, (source, target) = graph.num_nodes, graph.edge_index.cpu().numpy()
        self._both = _Neighbours(np.concatenate([source, target]), np.concatenate([target, source]), n)
        self._outgoing = _Neighbours(source, target, n)
        self._place = np.full(n, -1, dtype=np.int64)  # local index within the current subgraph, -1 outside
        self._kept: dict[int, tuple[np.ndarray, ...]] = {}

    def around(self, targets: Tensor) -> GraphBatch:
        """GraphBatch of a graph for each of `targets` (long [T]), the target first in each.

        Per-node encodings come along; encodings["target"] [N, 1] marks the targets, extras["nodes"] [N] names the
        original nodes. Per-pair encodings (RRWP) are to be computed on the result. A `y` per node becomes the targets'
        own [T, ...].

        Raises:
            ValueError: a target outside the graph.
        """
        graph, n = self.graph, self.graph.num_nodes
        if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < n:
            raise ValueError(
                f"targets name node {int(targets.max())} (min {int(targets.min())}) of a graph with {n} nodes"
            )
        pieces = [self._piece(centre) for centre in targets.tolist()]
        ptr = np.concatenate([[0], np.cumsum([piece[0].size for piece in pieces], dtype=np.int64)])
        device = graph.x.device
        chosen, edge_ids = (torch.from_numpy(_join([piece[i] for piece in pieces])).to(device) for i in (0, 3))
        ends = [_join([piece[i] + start for piece, start in zip(pieces, ptr, strict=False)]) for i in (1, 2)]
        encodings = {k: v[chosen] for k, v in graph.encodings.items() if v.size(0) == n}
        encodings["target"] = torch.zeros(chosen.numel(), 1, device=device).index_fill_(
            0, torch.from_numpy(ptr[:-1]).to(device), 1.0
        )
        y = graph.y
        if y is not None and y.dim() and y.size(0) == n:
            y = y[targets.to(y.device)]
        return GraphBatch(
            graph.x[chosen],
            torch.from_numpy(np.stack(ends)).to(device),
            torch.from_numpy(ptr).to(device),
            None if graph.edge_attr is None else graph.edge_attr[edge_ids],
            y,
            encodings,
            {"nodes": chosen},
        )

    def _piece(self, centre: int) -> tuple[np.ndarray, ...]:
        """(nodes, sources and ends within them, ids) of a target's subgraph and its edges."""
        if centre in self._kept:
            return self._kept[centre]
        nodes = _breadth_first(self._both, centre, self.num_hops, self.max_nodes, self._place, self.seed)
        self._place[nodes] = np.arange(nodes.size)
        end, edge, owner = self._outgoing.of(nodes)
        end = self._place[end]
        inside = end >= 0
        self._place[nodes] = -1
        piece = tuple(part.astype(np.int32) for part in (nodes, owner[inside], end[inside], edge[inside]))
        if self.keep:
            self._kept[centre] = piece
        return piece


class _Neighbours:
    """Edges by their first end: neighbours of node v are `ends[start[v]:start[v + 1]]`."""

    def __init__(self, first: np.ndarray, second: np.ndarray, num_nodes: int):
        self.order = np.argsort(first, kind="stable")
        self.ends = second[self.order]
        self.start = np.concatenate([[0], np.bincount(first, minlength=num_nodes).cumsum()])

    def of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(second end, edge, position of the first end in `nodes`) of all edges that begin in `nodes`."""
        counts = self.start[nodes + 1] - self.start[nodes]
        owner = np.repeat(np.arange(nodes.size), counts)
        slots = np.arange(owner.size) + np.repeat(self.start[nodes] - (counts.cumsum() - counts), counts)
        return self.ends[slots], self.order[slots], owner


def _breadth_first(
    both: _Neighbours, centre: int, num_hops: int, max_nodes: int, place: np.ndarray, seed: int
) -> np.ndarray:
    """Nodes of the subgraph, the centre first; leaves `place` as it found it."""
    rings = [np.array([centre])]
    size, place[centre] = 1, 0
    for _ in range(num_hops):
        ring = np.unique(both.of(rings[-1])[0])
        ring = ring[place[ring] < 0]
        if ring.size > max_nodes - size:
            # one hop too many: fill up from its frontier (Appendix B.4)
            ring = np.sort(np.random.default_rng((seed, centre)).choice(ring, max_nodes - size, replace=False))
        rings.append(ring)
        place[ring] = 0
        size += ring.size
        if ring.size == 0 or size == max_nodes:
            break
    nodes = np.concatenate(rings)
    place[nodes] = -1
    return nodes


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
