"""Blocks of graphs: each graph is in one block, and padded results are written to its rows."""

import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.encodings.blocks import blocks
from tests.gt_models.checks import collate, random_graphs


def batch() -> GraphBatch:
    empty = GraphBatch(torch.zeros(0, 4), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0]), torch.zeros(0, 3))
    graphs = random_graphs((4, 6, 4, 3), dtype=torch.float32)
    return collate([*graphs[:2], empty, *graphs[2:]])


@pytest.mark.parametrize(
    ("fill", "entries", "expected"),
    [(1.0, 2**24, [[1], [0, 3], [4]]), (0.5, 2**24, [[1, 0, 3, 4]]), (0.6, 2 * 36, [[1, 0], [3, 4]]), (0.5, 1, None)],
)
def test_each_graph_is_in_one_block_of_the_allowed_sizes(fill, entries, expected):
    graphs = batch()
    found = [block.graphs.tolist() for block in blocks(graphs, fill, entries)]
    assert found == (expected or [[1], [0], [3], [4]])
    edges = torch.cat([block.edges for block in blocks(graphs, fill, entries)])
    assert edges.sort().values.tolist() == list(range(graphs.num_edges))


@pytest.mark.parametrize("fill", [1.0, 0.5])
def test_padded_results_are_written_to_nodes_and_pairs(fill):
    graphs = batch()
    dense = torch.zeros(graphs.num_nodes, graphs.num_nodes)
    dense[graphs.edge_index[0], graphs.edge_index[1]] = 1
    nodes, pairs = torch.zeros(graphs.num_nodes, 1), torch.zeros(graphs.num_pairs, 1)
    for block in blocks(graphs, fill):
        adjacency = block.adjacency(torch.float32)
        assert block.mask.sum(1).tolist() == graphs.sizes[block.graphs].tolist()
        block.put_nodes(nodes, adjacency.sum(2, keepdim=True))
        block.put_pairs(pairs, adjacency[..., None])
    assert torch.equal(nodes[:, 0], dense.sum(1))
    ends = graphs.ptr.tolist()
    expected = [dense[start:end, start:end].flatten() for start, end in zip(ends, ends[1:], strict=False)]
    assert torch.equal(pairs[:, 0], torch.cat(expected))
