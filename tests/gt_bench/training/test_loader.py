"""Batches: each graph or node occurs once, within the limits of the recipe."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.training.loader import plan_batches
from tests.gt_bench.training.small_run import make


@settings(max_examples=80)
@given(
    sizes=st.lists(st.integers(1, 40), max_size=60),
    batch_size=st.none() | st.integers(1, 10),
    node_budget=st.none() | st.integers(1, 100),
    bucket=st.booleans(),
    seed=st.none() | st.integers(0, 5),
)
def test_batch_plans_hold_each_graph_once_and_keep_their_bounds(sizes, batch_size, node_budget, bucket, seed):
    if batch_size is None and node_budget is None:
        with pytest.raises(ValueError, match="needs batch_size"):
            plan_batches(torch.tensor(sizes))
        return
    tensor = torch.tensor(sizes, dtype=torch.long)

    def plan():
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return plan_batches(tensor, batch_size=batch_size, node_budget=node_budget, bucket=bucket, generator=generator)

    batches = plan()
    assert sorted(i for b in batches for i in b.tolist()) == list(range(len(sizes)))
    assert [b.tolist() for b in batches] == [b.tolist() for b in plan()]
    for b in batches:
        assert b.numel() >= 1
        assert batch_size is None or b.numel() <= batch_size
        if node_budget is not None and b.numel() > 1:
            cost = int(tensor[b].max()) * b.numel() if bucket else int(tensor[b].sum())
            assert cost <= node_budget
    if bucket and seed is None and len(batches) > 1:
        assert all(tensor[a].max() <= tensor[b].min() for a, b in itertools.pairwise(batches))


def test_parts_cover_the_training_nodes_once_with_induced_edges(tmp_path):
    loader = make(tmp_path, batch={"parts": 4}).loader

    def edges(graph):
        return {tuple(ends) for ends in graph.x[graph.edge_index.t(), 0].tolist()}

    seen = []
    for part, rows in loader.training(0):
        seen.append(part.x[rows])
        assert edges(part) <= edges(loader.whole)
    train = loader.whole.x[loader.ids["train"]]
    assert sorted(torch.cat(seen)[:, 0].tolist()) == sorted(train[:, 0].tolist())


@pytest.mark.parametrize(
    ("dataset", "batch", "word"),
    [
        ("web", {"graphs": 2}, "batch.parts"),
        ("many", {"parts": 2}, "batch.graphs"),
        ("many", {"graphs": 2, "segment": 9}, "batch.segment is for configuration-ranking"),
        ("many", {"targets": 5, "neighbors": [5]}, "batch.targets requires one large graph; 'many' has many"),
    ],
)
def test_a_batch_section_that_does_not_fit_the_data(tmp_path, dataset, batch, word):
    with pytest.raises(ValueError, match=word):
        make(tmp_path, dataset=dataset, batch=batch)


@pytest.mark.parametrize("bounds", [{"batch_size": 3}, {"node_budget": 12}, {"batch_size": 3, "node_budget": 50}])
@pytest.mark.parametrize("bucket", [{}, {"bucket": True}])
def test_a_graph_that_is_left_over_joins_the_batch_before_it(bounds, bucket):
    sizes = torch.full((10,), 4)
    for seed in range(4):
        batches = plan_batches(sizes, **bounds, **bucket, generator=torch.Generator().manual_seed(seed), join_last=True)
        assert sorted(len(b) for b in batches) == [3, 3, 4]
        assert sorted(torch.cat(batches).tolist()) == list(range(10))
        apart = plan_batches(sizes, **bounds, **bucket, generator=torch.Generator().manual_seed(seed))
        assert sorted(len(b) for b in apart) == [1, 3, 3, 3]


def test_single_graphs_by_design_stay_single():
    assert [len(b) for b in plan_batches(torch.ones(5), batch_size=1, join_last=True)] == [1] * 5
    assert [len(b) for b in plan_batches(torch.full((3,), 9), node_budget=5, join_last=True)] == [1] * 3
    assert [len(b) for b in plan_batches(torch.ones(1), batch_size=4, join_last=True)] == [1]


def test_training_joins_and_evaluation_does_not(tmp_path):
    for batch, training in (({"graphs": 3}, [3, 3, 4]), ({"graphs": 3, "last": "alone"}, [1, 3, 3, 3])):
        loader = make(tmp_path, dataset="many", task=("graph-regression", "mae"), batch=batch).loader
        assert sorted(b.num_graphs for b, _ in loader.training(0)) == training
        assert loader.steps_per_epoch == len(training)
        assert [b.num_graphs for b, _ in loader.evaluation("val")] == [3, 3, 3, 1]
        assert loader.num_batches("val") == 4
