"""Node2Subgraph: a node-level task on one large graph as graph-level tasks on small ones (PPGT, Appendix B.4)."""

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def node_to_subgraphs(graph: GraphBatch, targets: Tensor, num_hops: int, max_nodes: int, seed: int = 0) -> GraphBatch:
    """One induced subgraph around each target: its nodes up to `num_hops` hops, at most `max_nodes` of them.

    Breadth first, edges taken in both directions. The first hop that would pass `max_nodes` is not taken whole: nodes of that frontier
    are drawn at random until the subgraph has `max_nodes`. Edges keep their direction and features. A target's draw depends on `seed` and
    the target alone, not on which targets are asked together.

    Args:
        graph: one graph (a batch counts as one disconnected graph). targets: long [T].
        num_hops: K >= 0. max_nodes: M >= 1.

    Returns: GraphBatch of T graphs, the target first in each. Per-node encodings come along; encodings["target"] [N, 1] marks the targets,
        extras["nodes"] [N] names the original nodes. Per-pair encodings (RRWP) are to be computed on the result. A `y` per node becomes
        the targets' own [T, ...].

    Raises ValueError for a target outside the graph, num_hops < 0 or max_nodes < 1.
    """
    n = graph.num_nodes
    if num_hops < 0 or max_nodes < 1:
        raise ValueError(f"num_hops={num_hops} must be at least 0 and max_nodes={max_nodes} at least 1")
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < n:
        raise ValueError(f"targets name node {int(targets.max())} (min {int(targets.min())}) of a graph with {n} nodes")
    source, target = graph.edge_index.cpu().numpy()
    both = _Neighbours(np.concatenate([source, target]), np.concatenate([target, source]), n)
    outgoing = _Neighbours(source, target, n)
    place = np.full(n, -1, dtype=np.int64)  # local index within the subgraph at hand, -1 outside
    members, sources, ends, edges, ptr = [], [], [], [], [0]
    for centre in targets.tolist():
        nodes = _breadth_first(both, centre, num_hops, max_nodes, place, seed)
        place[nodes] = np.arange(nodes.size)
        end, edge, owner = outgoing.of(nodes)
        inside = place[end] >= 0
        sources.append(owner[inside] + ptr[-1])
        ends.append(place[end[inside]] + ptr[-1])
        edges.append(edge[inside])
        members.append(nodes)
        ptr.append(ptr[-1] + nodes.size)
        place[nodes] = -1
    device = graph.x.device
    chosen, edge_ids = (torch.from_numpy(_join(parts)).to(device) for parts in (members, edges))
    encodings = {k: v[chosen] for k, v in graph.encodings.items() if v.size(0) == n}
    encodings["target"] = torch.zeros(chosen.numel(), 1, device=device).index_fill_(
        0, torch.tensor(ptr[:-1], dtype=torch.long, device=device), 1.0
    )
    y = graph.y
    if y is not None and y.dim() and y.size(0) == n:
        y = y[targets]
    return GraphBatch(
        graph.x[chosen],
        torch.from_numpy(np.stack([_join(sources), _join(ends)])).to(device),
        torch.tensor(ptr, device=device),
        None if graph.edge_attr is None else graph.edge_attr[edge_ids],
        y,
        encodings,
        {"nodes": chosen},
    )


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


def _breadth_first(both: _Neighbours, centre: int, num_hops: int, max_nodes: int, place: np.ndarray, seed: int) -> np.ndarray:
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
