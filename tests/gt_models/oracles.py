"""Colour refinement in plain Python: which pairs of graphs a class of models can distinguish.

Each function accepts graphs as (number of nodes, set of ordered edges) and optional node colours. It refines them
together until nothing changes, and returns one histogram of colours per graph. Equal histograms mean that the test
does not distinguish the graphs.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import networkx as nx
import torch

from gt_models.batch import GraphBatch

Graph = tuple[int, set[tuple[int, int]]]
Histogram = Counter


def one_wl(graphs: Sequence[Graph], colours: Sequence[Sequence[Hashable]] | None = None) -> list[Histogram]:
    """1-WL: the multiset of the colours of neighbours (Weisfeiler and Leman 1968)."""
    neighbours = [[sorted(v for u, v in edges if u == i) for i in range(n)] for n, edges in graphs]

    def step(g: int, colour: list[int], i: int) -> Hashable:
        return tuple(sorted(colour[j] for j in neighbours[g][i]))

    return _refine([_start(graph, colours, g) for g, graph in enumerate(graphs)], step)


def gd_wl(graphs: Sequence[Graph], distance: Callable[[Graph], list[list[Hashable]]], colours=None) -> list[Histogram]:
    """GD-WL (Zhang et al. 2023): the multiset over ALL nodes j of (distance from i to j, colour of j)."""
    tables = [distance(graph) for graph in graphs]

    def step(g: int, colour: list[int], i: int) -> Hashable:
        return tuple(sorted((tables[g][i][j], colour[j]) for j in range(len(colour))))

    return _refine([_start(graph, colours, g) for g, graph in enumerate(graphs)], step)


def two_fwl(graphs: Sequence[Graph], colours: Sequence[Sequence[Hashable]] | None = None) -> list[Histogram]:
    """2-FWL, equivalent to 3-WL: for pairs (i, j), the multiset over l of (colour of (i, l), colour of (l, j))."""
    starts = []
    for g, (n, edges) in enumerate(graphs):
        own = _start((n, edges), colours, g)
        starts.append([(own[i], own[j], i == j, (i, j) in edges, (j, i) in edges) for i in range(n) for j in range(n)])

    def step(g: int, colour: list[int], pair: int) -> Hashable:
        n = graphs[g][0]
        i, j = divmod(pair, n)
        return tuple(sorted((colour[i * n + l], colour[l * n + j]) for l in range(n)))

    return _refine(starts, step)


def shortest_paths(graph: Graph) -> list[list[int]]:
    """Shortest-path distances, n if there is no path: the distance of the GD-WL for shortest-path encodings."""
    n = graph[0]
    lengths = dict(nx.all_pairs_shortest_path_length(to_networkx(graph, directed=True)))
    return [[lengths[i].get(j, n) for j in range(n)] for i in range(n)]


def random_walks(steps: int) -> Callable[[Graph], list[list[tuple[float, ...]]]]:
    """The distance of the GD-WL for RRWP: powers I, M, ..., M^(steps - 1) of M = D^-1 A, rounded to 9 digits."""

    def distance(graph: Graph) -> list[list[tuple[float, ...]]]:
        n, edges = graph
        adjacency = torch.zeros(n, n, dtype=torch.float64)
        for i, j in edges:
            adjacency[i, j] = 1.0
        walk = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1.0)
        powers = [torch.eye(n, dtype=torch.float64)]
        for _ in range(steps - 1):
            powers.append(powers[-1] @ walk)
        table = torch.stack(powers, 2).mul(1e9).round().long().tolist()
        return [[tuple(entry) for entry in row] for row in table]

    return distance


def separates(histograms: Sequence[Histogram]) -> bool:
    """Whether a test with these histograms distinguishes its two graphs."""
    first, second = histograms
    return first != second


# -- graphs


def from_networkx(graph: nx.Graph) -> Graph:
    """A graph with nodes in the order of iteration and both directions of every edge."""
    place = {node: i for i, node in enumerate(graph)}
    edges = {(place[a], place[b]) for a, b in graph.edges}
    return len(place), edges | {(b, a) for a, b in edges}


def to_networkx(graph: Graph, directed: bool = False) -> nx.Graph:
    result = nx.DiGraph() if directed else nx.Graph()
    result.add_nodes_from(range(graph[0]))
    result.add_edges_from(graph[1])
    return result


def to_batch(graph: Graph, dtype: torch.dtype = torch.float64) -> GraphBatch:
    """One GraphBatch with a constant node feature [n, 1] and no edge features."""
    n, edges = graph
    edge_index = torch.tensor(sorted(edges), dtype=torch.long).reshape(-1, 2).T
    return GraphBatch(torch.ones(n, 1, dtype=dtype), edge_index, torch.tensor([0, n]))


def twins() -> tuple[Graph, Graph]:
    """A hexagon and two triangles, which 2-FWL distinguishes and 1-WL does not."""
    return from_networkx(nx.cycle_graph(6)), from_networkx(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))


def skip_cycle(num_nodes: int, skip: int) -> Graph:
    """Circular skip link graph: a cycle plus links of length `skip`; 4-regular, so 1-WL does not distinguish them."""
    return from_networkx(nx.circulant_graph(num_nodes, [1, skip]))


def rook_and_shrikhande() -> tuple[Graph, Graph]:
    """The two strongly regular graphs with parameters (16, 6, 2, 2), which 2-FWL does not distinguish."""
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    steps = [(0, 1), (1, 0), (1, 1)]
    edges = {((a, b), ((a + x) % 4, (b + y) % 4)) for a in range(4) for b in range(4) for x, y in steps}
    shrikhande = nx.Graph(sorted(edges))
    return from_networkx(rook), from_networkx(shrikhande)


# -- refinement


def _start(graph: Graph, colours, g: int) -> list[Hashable]:
    return list(colours[g]) if colours is not None else [0] * graph[0]


def _refine(starts: list[list[Hashable]], step: Callable[[int, list[int], int], Hashable]) -> list[Histogram]:
    """Replace colours (colour, result of `step`) by numbers, with one table, until the number of colours is stable."""
    colours, count = _rename(starts)
    while True:
        seen = [[(own, step(g, colour, i)) for i, own in enumerate(colour)] for g, colour in enumerate(colours)]
        colours, more = _rename(seen)
        if more == count:
            return [Counter(colour) for colour in colours]
        count = more


def _rename(seen: list[list[Hashable]]) -> tuple[list[list[int]], int]:
    names: dict[Hashable, int] = {}
    return [[names.setdefault(colour, len(names)) for colour in graph] for graph in seen], len(names)
