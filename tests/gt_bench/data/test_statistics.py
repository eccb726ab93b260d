"""Statistics of packed arrays, and invalid arrays."""

from dataclasses import dataclass, field

import pytest
import torch

from gt_bench.data.statistics import CHUNK, compare, inspect
from gt_bench.utils.errors import DatasetError
from tests.refusals import refused


@dataclass
class Header:
    name: str = "toy"
    task: str = "node-classification"
    level: str = "node"
    split_kind: str = "node"
    in_dim: int | list[int] = 1
    edge_dim: int | list[int] | None = None
    out_dim: int = 3
    num_splits: int = 1
    extras: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, dict] = field(default_factory=dict)


def arrays(sizes, edges, **changes):
    """Graphs of these sizes with these edges (source, target); node i of all has class i % 3 and part i % 4."""
    nodes = sum(sizes)
    ends = torch.tensor([end for graph in edges for end in graph]).reshape(-1, 2).T
    found = {
        "node_ptr": torch.tensor([0, *sizes]).cumsum(0),
        "edge_ptr": torch.tensor([0, *map(len, edges)]).cumsum(0),
        "x": torch.ones(nodes, 1),
        "source": ends[0],
        "target": ends[1],
        "y": torch.arange(nodes) % 3,
        "split": torch.arange(nodes)[None] % 4,
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


# a triangle in both directions with a loop, and a path with one edge stored twice and one of a single direction
TWO = arrays([3, 3], [[(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2), (1, 1)], [(0, 1), (0, 1), (1, 0), (1, 2)]])


def test_missing_features_of_user_supplied_data_are_counted():
    x = {"x": torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan], [2.0, 0.0]])}
    own = Header(in_dim=2, provenance={"arguments": {"content": "..."}})
    assert inspect(own, arrays([3], [[(0, 1)]], **x))["missing"] == {"0": 1, "1": 2}
    assert "missing" not in inspect(own, arrays([3], [[(0, 1)]], x=torch.ones(3, 2)))
    with refused(DatasetError, place="array 'x'"):
        inspect(own, arrays([3], [[(0, 1)]], x=torch.tensor([[1.0, torch.nan], [1.0, torch.inf], [1.0, 1.0]])))


def test_counts_of_two_graphs():
    found = inspect(Header(), TWO)
    assert [found[key] for key in ("graphs", "nodes", "edges")] == [2, 6, 11]
    assert [found[key] for key in ("edges_undirected", "self_loops", "symmetric")] == [5, 1, False]
    assert (found["min_nodes"], found["max_nodes"], found["features"]) == (3, 3, 1)
    assert (found["classes"], found["label_counts"], found["unlabelled"]) == (3, [2, 2, 2], 0)
    assert (found["train"], found["val"], found["test"]) == (2, 1, 1)


def test_a_graph_in_both_directions_is_symmetric_with_loops_and_repeated_edges():
    found = inspect(Header(), arrays([3], [[(0, 1), (1, 0), (0, 1), (1, 0), (2, 2), (2, 2)]]))
    assert (found["symmetric"], found["edges_undirected"], found["self_loops"]) == (True, 1, 2)


def test_blocks_of_graphs_are_counted_as_the_whole(monkeypatch):
    assert CHUNK > 11
    whole = inspect(Header(), TWO)
    monkeypatch.setattr("gt_bench.data.statistics.CHUNK", 2)
    assert inspect(Header(), TWO) == whole


def test_an_edge_never_joins_two_graphs():
    """The same numbers of nodes in all, but node 3 is not in the first graph."""
    with refused(DatasetError, place="graphs 0..1"):
        inspect(Header(), arrays([3, 3], [[(0, 3)], [(0, 1)]]))


@pytest.mark.parametrize(
    ("header", "changes", "place", "value"),
    [
        ({}, {"y": torch.tensor([0, 1, 3])}, "array 'y'", None),
        ({}, {"y": torch.tensor([0.0, 1.0, 2.0])}, "array 'y'", torch.float32),
        ({"task": "node-regression"}, {"y": torch.tensor([0.0, 1.0, torch.inf])}, "array 'y'", None),
        ({}, {"y": torch.tensor([0, 1])}, "array 'y'", 2),
        ({}, {"x": torch.tensor([[1.0], [torch.nan], [1.0]])}, "array 'x'", None),
        ({"in_dim": [2]}, {"x": torch.tensor([[0], [1], [2]])}, "array 'x': column 0", 2),
        ({"in_dim": [2]}, {"x": torch.tensor([[0], [-1], [1]])}, "array 'x': column 0", -1),
        ({"in_dim": 2}, {}, "array 'x'", 1),
        ({"edge_dim": 4}, {}, "array 'edge_attr'", None),
        ({}, {"split": torch.tensor([[0, 1, 4]])}, "array 'split'", None),
        ({"num_splits": 2}, {}, "array 'split'", None),
        ({}, {"source": None}, "", "source"),
    ],
)
def test_data_that_contradict_their_header_are_refused(header, changes, place, value):
    with refused(DatasetError, place=place, value=value):
        inspect(Header(**header), arrays([3], [[(0, 1), (1, 0)]], **changes))


def test_unlabelled_nodes_and_missing_targets_are_counted():
    found = inspect(Header(), arrays([3], [[(0, 1)]], y=torch.tensor([-1, 2, -1])))
    assert (found["label_counts"], found["unlabelled"]) == ([0, 0, 1], 2)
    header = Header(task="graph-regression", level="graph", split_kind="graph")
    found = inspect(header, arrays([3], [[(0, 1)]], y=torch.tensor([[torch.nan, 1.0]]), split=torch.tensor([[1]])))
    assert (found["targets"], found["missing_targets"]) == (2, 1)


def test_published_numbers_are_compared_to_their_stated_digits():
    assert compare({"nodes": 5, "mean": 14.9}, {"nodes": 5, "mean": 14.908}) == []
    assert compare({"nodes": 5}, {"nodes": 6}) == ["nodes: measured 6, published 5"]
    assert len(compare({"mean": 14.9, "edges": 3}, {"mean": 15.0})) == 2
