"""Sampled neighbourhoods: which edges may be drawn, how many, and how often."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.training.loader import induced
from gt_bench.training.neighbor_sampling import NeighborSampler
from gt_models.batch import GraphBatch
from tests.gt_bench.training.small_run import Net, make


def random_graph(nodes: int, edges: int, seed: int = 0) -> GraphBatch:
    """x is the number of a node, edge_attr the number of an edge."""
    rng = torch.Generator().manual_seed(seed)
    return GraphBatch(
        torch.arange(nodes)[:, None].float(),
        torch.randint(0, nodes, (2, edges), generator=rng),
        torch.tensor([0, nodes]),
        torch.arange(edges)[:, None].float(),
        torch.arange(nodes),
        {"pe": torch.arange(nodes)[:, None].float() * 2},
    )


def neighborhood(graph: GraphBatch, targets: list[int], hops: int) -> tuple[set[int], set[int]]:
    """Nodes, and edges into nodes of fewer than `hops` hops: by loops over all edges."""
    nodes, inner, edges = set(targets), set(targets), set()
    for _ in range(hops):
        found = {e for e, target in enumerate(graph.edge_index[1].tolist()) if target in inner}
        edges |= found
        inner = {graph.edge_index[0, e].item() for e in found} - nodes
        nodes |= inner
    return nodes, edges


@settings(max_examples=60)
@given(
    st.integers(2, 25), st.integers(0, 80), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 9),
)  # fmt: skip
def test_a_sample_is_a_part_of_the_graph(nodes, edges, neighbors, seed):
    graph = random_graph(nodes, edges, seed)
    targets = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))[: 1 + nodes // 4]
    part, rows = NeighborSampler(graph).around(targets, neighbors, np.random.default_rng(seed))
    assert rows.tolist() == list(range(len(targets)))
    ids, drawn = part.x[:, 0].long(), part.edge_attr[:, 0].long()
    assert ids[: len(targets)].tolist() == targets.tolist()
    assert len(set(ids.tolist())) == len(ids)
    assert torch.equal(part.y, ids)
    assert torch.equal(part.encodings["pe"], 2 * part.x)
    assert torch.equal(ids[part.edge_index], graph.edge_index[:, drawn]), "an edge joins the nodes that it joins there"
    assert len(set(drawn.tolist())) == len(drawn), "without replacement"
    possible, incoming = neighborhood(graph, targets.tolist(), len(neighbors))
    assert set(ids.tolist()) <= possible
    assert set(drawn.tolist()) <= incoming
    degrees = graph.edge_index[1].bincount(minlength=nodes)
    drawn_of = graph.edge_index[1, drawn].bincount(minlength=nodes)
    assert torch.equal(drawn_of[targets], degrees[targets].clamp(max=neighbors[0]))
    assert (drawn_of <= max(neighbors)).all()


def test_enough_neighbors_are_the_whole_neighborhood():
    graph = random_graph(30, 90)
    part, _ = NeighborSampler(graph).around(torch.tensor([4, 9]), [90, 90], np.random.default_rng(0))
    nodes, edges = neighborhood(graph, [4, 9], 2)
    assert set(part.x[:, 0].int().tolist()) == nodes
    assert part.edge_attr[:, 0].int().tolist() == sorted(edges)


def three_graphs() -> GraphBatch:
    """Cycles of 6, 4 and 5 nodes; x is the number of a node."""
    ptr = torch.tensor([0, 6, 10, 15])
    source = torch.arange(15)
    target = torch.cat([a + (torch.arange(b - a) + 1) % (b - a) for a, b in itertools.pairwise(ptr.tolist())])
    return GraphBatch(source[:, None].float(), torch.stack([source, target]), ptr)


@pytest.mark.parametrize("nodes", [[14, 0, 12, 7], [14, 3, 13, 0]])
def test_a_part_of_several_graphs_is_a_batch_of_several_graphs(nodes):
    """A model that attends to all nodes of a graph would otherwise see several graphs as one."""
    graph, targets = three_graphs(), torch.tensor(nodes)
    sample, rows = NeighborSampler(graph).around(targets, [1, 1], np.random.default_rng(0))
    assert sample.x[rows, 0].tolist() == nodes
    for part in (sample, induced(graph, targets)):
        ids = part.x[:, 0].long()
        assert torch.equal(graph.batch[ids].unique_consecutive(return_counts=True)[1], part.sizes)
        assert set(nodes) <= set(ids.tolist())
        ends = ids[part.edge_index].T.tolist()
        assert all(pair in graph.edge_index.T.tolist() for pair in ends)
    assert len(ends) == (nodes == [14, 3, 13, 0]), "13 -> 14"
    assert sample.num_nodes > len(nodes)


def test_edges_are_drawn_uniformly():
    graph = GraphBatch(
        torch.zeros(6, 1), torch.tensor([[1, 2, 3, 4, 5], [0] * 5]), torch.tensor([0, 6]), torch.arange(5)[:, None]
    )
    sampler, rng, counts = NeighborSampler(graph), np.random.default_rng(0), torch.zeros(5)
    for _ in range(2000):
        part, _ = sampler.around(torch.tensor([0]), [2], rng)
        counts += part.edge_attr[:, 0].bincount(minlength=5)
    assert (counts - 800).abs().max() < 110, "each of five with 2/5: 5 standard deviations"


@pytest.mark.parametrize(("targets", "steps"), [(7, [7, 7, 6]), (19, [20])])
def test_an_epoch_visits_each_training_node_once(tmp_path, targets, steps):
    """A last step of one node joins the step before it."""
    loader = make(tmp_path, batch={"targets": targets, "neighbors": [3, 2]}).loader
    batches = list(loader.training(0))
    assert [len(rows) for _, rows in batches] == steps
    assert loader.steps_per_epoch == len(steps)
    seen, train = torch.cat([batch.x[rows] for batch, rows in batches]), loader.whole.x[loader.ids["train"]]
    assert sorted(seen[:, 0].tolist()) == sorted(train[:, 0].tolist())
    first, again, other = ([batch.x.tolist() for batch, _ in loader.training(epoch)] for epoch in (0, 0, 1))
    assert first == again != other
    ((whole, rows),) = loader.evaluation("val")
    assert whole.num_nodes == 60, "evaluation uses the whole graph"
    assert torch.equal(rows, loader.ids["val"])


def test_sampled_training_learns(tmp_path):
    outcome = make(tmp_path, batch={"targets": 8, "neighbors": [4]}, epochs=20, build=lambda: Net(5, 3)).train()
    assert outcome.status == "ok"
    assert outcome.curves["train_loss"][-1] < 0.8 * outcome.curves["train_loss"][0]
