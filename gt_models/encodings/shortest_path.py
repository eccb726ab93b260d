"""Shortest paths between all pairs (Graphormer, Ying et al. 2021, Sections 3.1.2 and 3.1.3).

Hops, and the edges along one path.

Edges have direction: row (i, j) is about walks from i to j. Of several shortest paths the one is taken whose last edge
has the lowest number in the batch, then the last but one, and so on: arbitrary, as in Graphormer, but fixed.
"""

from itertools import pairwise

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.blocks import Block, blocks
from gt_models.encodings.encoding import Encoding

# above this side scipy's search per source node beats products of whole matrices
_SEARCH_SIZE = 256
# (source node, edge) combinations looked at together
_CHUNK = 2**23


def shortest_path(
    batch: GraphBatch, *, max_distance: int = 20, path_length: int = 5, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """{"shortest_path_distance": long [sum n_b^2, 1], "shortest_path_edges": long [sum n_b^2, path_length]}.

    Args:
        batch: graphs.
        max_distance: longer distances are cut to it.
        path_length: number of edges of a path that are stored, from its start; -1 where the path is shorter.
        dtype: unused, both arrays are integers.

    Distances are 0 on the diagonal and -1 where no path leads.
    """
    distance = torch.full((int(batch.pair_ptr[-1]), 1), -1, device=batch.ptr.device)
    for block in blocks(batch, 0.85):
        found = _searched(block) if block.n > _SEARCH_SIZE else _by_products(block.adjacency(torch.float32))
        block.put_pairs(distance, found[..., None])
    edges = _path_edges(batch, distance[:, 0], path_length)
    return {"shortest_path_distance": distance.clamp(max=max_distance), "shortest_path_edges": edges}


def _by_products(adjacency: Tensor) -> Tensor:
    """[G, n, n] -> distances of the same shape: after d products the reached pairs are those at most d hops apart."""
    distance = torch.full_like(adjacency, -1, dtype=torch.long)
    front = torch.eye(adjacency.size(1), device=adjacency.device, dtype=torch.bool).expand_as(adjacency)
    for hops in range(adjacency.size(1)):
        distance[front] = hops
        front = (torch.bmm(front.to(adjacency.dtype), adjacency) > 0) & (distance < 0)
        if not front.any():
            break
    return distance


def _searched(block: Block) -> Tensor:
    from scipy.sparse.csgraph import shortest_path as search

    found = []
    for adjacency in block.adjacency(torch.float32).cpu().numpy():
        hops = torch.from_numpy(search(adjacency, method="D", unweighted=True))
        found.append(torch.where(hops.isinf(), -1.0, hops).long())
    return torch.stack(found).to(block.graphs.device)


def _path_edges(batch: GraphBatch, distance: Tensor, path_length: int) -> Tensor:
    """The first `path_length` edges of a shortest path of each pair, long [sum n_b^2, path_length]."""
    sizes, start = batch.sizes, batch.pair_ptr
    graph_of_edge = batch.batch[batch.edge_index[0]]
    source, target = batch.local[batch.edge_index]
    # unstated: which of several shortest paths; last[i, j] is the lowest edge (p, j) with distance(i, p) + 1 =
    # distance(i, j)
    none = batch.num_edges
    last = torch.full_like(distance, none)
    for first, end in _edge_chunks(sizes[graph_of_edge]):
        number, graph = torch.arange(first, end, device=distance.device), graph_of_edge[first:end]
        repeats = sizes[graph]
        number, graph = number.repeat_interleave(repeats), graph.repeat_interleave(repeats)
        i = torch.arange(len(number), device=distance.device) - (repeats.cumsum(0) - repeats).repeat_interleave(repeats)
        row = start[graph] + i * sizes[graph]
        before, here = distance[row + source[number]], row + target[number]
        fits = (before >= 0) & (before + 1 == distance[here])
        last.scatter_reduce_(0, here[fits], number[fits], "amin")
    edges = distance.new_full((len(distance), path_length), -1)
    pairs = (distance > 0).nonzero().squeeze(1)
    graph = torch.repeat_interleave(torch.arange(batch.num_graphs, device=distance.device), sizes**2)[pairs]
    row = pairs - (pairs - start[graph]) % sizes[graph]  # pair (i, 0)
    at = pairs
    # walk back from j to i; `place` is the position of the edge before `at`
    place = distance[pairs] - 1
    while pairs.numel():
        edge = last[at]
        kept = place < path_length
        edges[pairs[kept], place[kept]] = edge[kept]
        more = place > 0
        pairs, row, at, place = pairs[more], row[more], (row + source[edge])[more], place[more] - 1
    return edges


def _edge_chunks(repeats: Tensor) -> list[tuple[int, int]]:
    if not repeats.numel():
        return []
    total = repeats.cumsum(0)
    # edges of one chunk have the same multiple of _CHUNK before them
    cuts = ((total // _CHUNK).diff().nonzero().squeeze(1) + 1).tolist()
    return list(pairwise([0, *cuts, len(total)]))


SHORTEST_PATH = Encoding(
    "shortest-path",
    shortest_path,
    ("shortest_path_distance", "shortest_path_edges"),
    lambda max_distance, path_length: {"shortest_path_distance": 1, "shortest_path_edges": path_length},
    on_the_fly=True,
    offsets=("shortest_path_edges",),
)
