"""Small HOT models, graphs for them, and stored cases of the authors' code."""

import pytest
import torch

from gt_models import GraphBatch, create_model
from gt_models.hot.support import Support


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def build(level="graph", name="hot", **arguments):
    arguments = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2, "edge_dim": 3} | arguments
    return create_model(name, in_dim=4, out_dim=3, level=level, **arguments)


def supports(graph: GraphBatch, k: int, l: int) -> Support:
    return Support.complete(graph, max(k, l, 2)) if (k, l) == (1, 2) or l == 3 else Support.sparse(graph)


def one_way_graph() -> GraphBatch:
    """Graphs with edges in one direction or with different features in each, a self-loop, and a repeated edge."""
    return graph_of(5, [(0, 1), (1, 2), (2, 1), (3, 0), (2, 2), (0, 1)])


def graph_of(n: int, edges: list[tuple[int, int]]) -> GraphBatch:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return GraphBatch(torch.randn(n, 4), index, torch.tensor([0, n]), torch.randn(len(edges), 3))


ORDERS = [(k, l) for k in range(3) for l in range(3)] + [(1, 3)]


def parity_support(case) -> Support:
    """The authors' padded batch of two graphs as one support; their entries come diagonal first."""
    edges = []
    for b, n in enumerate(case["in.n_nodes"].tolist()):
        edges.append(case["in.indices"][b, n : int(case["in.n_entries"][b])].T + 6 * b)
    n = int(case["in.n_nodes"].sum())
    return Support.sparse(GraphBatch(torch.zeros(n, 1), torch.cat(edges, 1), torch.tensor([0, 6, 12])))


def to_rows(case, name: str) -> torch.Tensor:
    """[B, entries, d] in the order of `parity_support`'s rows."""
    parts = [case[name][b, : int(case["in.n_entries"][b])] for b in range(2)]
    nodes, order = [p[:6] for p in parts], []
    for b in range(2):
        index = case["in.indices"][b, 6 : int(case["in.n_entries"][b])]
        order.append((index[:, 0] * 6 + index[:, 1]).argsort())
    return torch.cat(nodes + [p[6:][o] for p, o in zip(parts, order, strict=True)])
