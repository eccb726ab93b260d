"""GraphBatch: its layouts compared with loops, values computed on creation, and moves between devices."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import ToSparseTensor

from gt_models import create_model
from gt_models.batch import GraphBatch, MissingEncoding
from gt_models.layers.cached import cached_property
from tests.gt_models.checks import collate, random_graphs


@pytest.fixture
def batch() -> GraphBatch:
    return collate(random_graphs((3, 1, 4), pair_encodings=(("rrwp", 2),)))


def test_layout_of_nodes_and_pairs(batch):
    nodes = [(b, i) for b, n in enumerate((3, 1, 4)) for i in range(n)]
    assert list(zip(batch.batch.tolist(), batch.local.tolist(), strict=True)) == nodes
    start = (0, 3, 4)
    pairs = [(start[b] + i, start[b] + j) for b, n in enumerate((3, 1, 4)) for i in range(n) for j in range(n)]
    assert list(zip(*(side.tolist() for side in batch.pair_nodes), strict=True)) == pairs
    assert batch.pair_ptr.tolist() == [0, 9, 10, 26]
    assert (batch.max_nodes, batch.num_pairs) == (4, 26)


def test_padded_forms(batch):
    values, flat = batch.encodings["rrwp"], 0
    dense = batch.pairs_to_dense(values)
    for b, n in enumerate((3, 1, 4)):
        for i in range(n):
            for j in range(n):
                assert torch.equal(dense[b, i, j], values[flat])
                flat += 1
    assert dense.abs().sum() == values.abs().sum()
    assert torch.equal(batch.pairs_from_dense(dense), values)
    assert torch.equal(batch.to_dense(batch.x)[2, :4], batch.x[4:])
    assert torch.equal(batch.from_dense(batch.to_dense(batch.x)), batch.x)
    assert torch.equal(dense.ne(0).all(-1), batch.node_mask[:, :, None] & batch.node_mask[:, None])


def test_no_graph_and_empty_graphs():
    empty = GraphBatch(torch.ones(0, 2), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0]))
    assert (empty.num_graphs, empty.max_nodes, empty.num_pairs) == (0, 0, 0)
    some = GraphBatch(torch.ones(2, 2), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0, 2, 2]))
    assert some.batch.tolist() == [1, 1]
    assert [side.tolist() for side in some.pair_nodes] == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert some.pairs_to_dense(torch.ones(4, 1)).sum((1, 2, 3)).tolist() == [0, 4, 0]


def test_numbers_are_read_off_once_and_travel(batch):
    assert {"max_nodes", "max_edges", "num_pairs"} <= batch.__dict__.keys()
    meta = batch.to("meta")  # a device whose values cannot be read
    assert (meta.max_nodes, meta.num_pairs) == (4, 26)
    assert meta.max_edges == max(torch.bincount(batch.batch[batch.edge_index[0]]).tolist())
    assert meta.pair_nodes[0].shape == (26,)
    assert batch.to("cpu", torch.float32).x.dtype == torch.float32


def test_cached_property_asks_once():
    class Thing:
        calls = 0

        @cached_property
        def value(self) -> int:
            """A number."""
            self.calls += 1
            return self.calls

    thing = Thing()
    assert (thing.value, thing.value, Thing().value) == (1, 1, 1)
    assert Thing.value.__doc__ == "A number."


def test_reads_torch_geometric():
    one = Data(
        x=torch.arange(3),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        edge_attr=torch.tensor([5, 6]),
        y=torch.ones(1),
        rwse=torch.ones(3, 2),
    )
    for data in (one, Batch.from_data_list([one, one])):
        read, count = GraphBatch.of(data), data.num_nodes // 3
        assert read.x.shape == (3 * count, 1)
        assert read.edge_attr.shape == (2 * count, 1)
        assert read.sizes.tolist() == [3] * count
        assert read.encodings["rwse"].shape == (3 * count, 2)
    bare = Data(x=torch.ones(3, 1), edge_index=one.edge_index[:, 1:], batch=torch.tensor([0, 1, 1]))
    assert GraphBatch.of(bare).sizes.tolist() == [1, 2]
    assert GraphBatch.of(read) is read


def test_a_set_has_no_edges():
    assert GraphBatch.of(Data(x=torch.ones(3, 1))).edge_index.shape == (2, 0)
    read = GraphBatch.of(Batch.from_data_list([Data(x=torch.ones(3, 1)), Data(x=torch.ones(2, 1))]))
    assert read.edge_index.shape == (2, 0)
    assert read.sizes.tolist() == [3, 2]


def test_bad_input(batch):
    with pytest.raises(ValueError, match=r"set data\.x"):
        GraphBatch.of(Data(edge_index=torch.zeros(2, 0, dtype=torch.long)))
    with pytest.raises(ValueError, match="names node 7"):
        GraphBatch.of(Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [7]])))
    with pytest.raises(MissingEncoding, match="the batch has: rrwp"):
        batch.encoding("rwse")
    with pytest.raises(MissingEncoding, match="compute it wider"):
        batch.encoding("rrwp", 3)
    assert batch.encoding("rrwp", 1).shape == (26, 1)


def test_flat_pairs_of_nodes_and_out_degrees():
    edges = torch.tensor([[0, 1, 1, 4, 4], [1, 0, 1, 3, 3]])  # a self-loop, one edge twice
    batch = GraphBatch(torch.zeros(5, 1), edges, torch.tensor([0, 2, 2, 5]))
    first, second = batch.pair_nodes
    pairs = batch.pair_of(*edges)
    assert torch.equal(torch.stack([first[pairs], second[pairs]]), edges)
    assert batch.out_degree(torch.float64).tolist() == [1, 2, 0, 0, 2]


def ring(nodes: int = 4) -> Data:
    return Data(x=torch.randn(nodes, 3), edge_index=torch.tensor([[*range(nodes)], [*range(1, nodes), 0]]))


def edges_of(batch: GraphBatch) -> list[list[int]]:
    return sorted(batch.edge_index.t().tolist())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_edges_of_a_transposed_adjacency_matrix(layout):
    data = ring()
    sparse = ToSparseTensor(layout=layout)(data.clone())
    assert edges_of(GraphBatch.of(sparse)) == edges_of(GraphBatch.of(data))
    assert not GraphBatch.of(sparse).encodings
    weighted = data.clone()
    weighted.edge_weight, weighted.edge_attr = torch.arange(4.0), torch.arange(4.0)
    found = GraphBatch.of(ToSparseTensor(layout=layout)(weighted))
    by_edge = dict(zip(map(tuple, data.edge_index.t().tolist()), range(4), strict=True))
    expected = [float(by_edge[tuple(edge)]) for edge in found.edge_index.t().tolist()]
    assert found.encodings["edge_weight"].tolist() == found.edge_attr.squeeze(1).tolist() == expected
    two = Batch.from_data_list([ToSparseTensor(layout=layout)(ring(n)) for n in (3, 4)])
    assert edges_of(GraphBatch.of(two)) == edges_of(GraphBatch.of(Batch.from_data_list([ring(3), ring(4)])))
    sparse.x = sparse.x[:3]
    with pytest.raises(ValueError, match=r"adj_t is 4 x 4 and the graph has 3 nodes"):
        GraphBatch.of(sparse)


def test_a_dense_adjacency_matrix_is_no_graph_without_edges():
    with pytest.raises(ValueError, match="has data.adj and no edge_index: set data.edge_index"):
        GraphBatch.of(Data(x=torch.ones(2, 1), adj=torch.ones(2, 2)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": torch.tensor([0, 1, 0, 1])}, "data.batch is 0 at node 2, after 1: .*sort the nodes by their graph"),
        ({"batch": torch.tensor([-1, 0, 0, 1])}, "data.batch is -1 at node 0"),
        ({"batch": torch.tensor([0, 0, 1])}, "data.batch has 3 entries and the graph 4 nodes"),
        ({"ptr": torch.tensor([0, 2, 3])}, "must rise from 0 to the 4 nodes"),
        ({"ptr": torch.tensor([0, 5, 4])}, "ptr is .0, 5, 4.: it must rise"),
    ],
)
def test_graphs_that_do_not_lie_one_after_the_other(changes, says):
    data = ring()
    for name, value in changes.items():
        data[name] = value
    with pytest.raises(ValueError, match=says):
        GraphBatch.of(data)


def test_graphs_without_nodes_in_a_batch_vector():
    data = Data(x=torch.ones(3, 1), edge_index=torch.zeros(2, 0).long(), batch=torch.tensor([0, 2, 2]))
    assert GraphBatch.of(data).ptr.tolist() == [0, 1, 1, 3]


def test_an_edge_between_two_graphs_is_refused():
    says = r"edge 1 joins node 1 of graph 0 and node 2 of graph 1: edge_index must join nodes of one graph"
    edges, ptr = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 2, 4])
    with pytest.raises(ValueError, match=says):
        GraphBatch(torch.ones(4, 1), edges, ptr)
    with pytest.raises(ValueError, match=says):
        GraphBatch.of(Data(x=torch.ones(4, 1), edge_index=edges, batch=torch.tensor([0, 0, 1, 1])))
    batch = GraphBatch(torch.ones(4, 1), edges[:, ::2], ptr)
    with pytest.raises(ValueError, match=says):
        batch.edge_index = edges
    assert torch.equal(batch.edge_index, edges[:, ::2])


def test_new_edges_are_counted_again():
    batch = GraphBatch(torch.ones(4, 1), torch.tensor([[0], [1]]), torch.tensor([0, 2, 4]))
    assert batch.max_edges == 1
    batch.edge_index = torch.tensor([[0, 2, 3], [1, 3, 2]])
    assert batch.max_edges == 2
    net = create_model("tokengt-attention", node_id_dim=3, hidden_dim=8, head_dim=2).eval()
    assert net(batch).shape == (2, 15, 4, 5)


def test_new_offsets_change_what_was_computed_from_the_old_ones():
    batch = GraphBatch(torch.ones(4, 1), torch.tensor([[0, 2], [1, 3]]), torch.tensor([0, 2, 4]))
    assert batch.node_mask.shape == (2, 2)
    assert batch.pair_of(*batch.edge_index).tolist() == [1, 5]
    batch.ptr = torch.tensor([0, 4])
    assert batch.node_mask.shape == (1, 4)
    assert batch.pair_of(*batch.edge_index).tolist() == [1, 11]
    assert (batch.max_nodes, batch.max_edges, batch.num_pairs) == (4, 2, 16)
    with pytest.raises(ValueError, match="edge 1 joins node 2 of graph 0 and node 3 of graph 1"):
        batch.ptr = torch.tensor([0, 3, 4])
    assert batch.ptr.tolist() == [0, 4]


@pytest.mark.parametrize("ptr", [[0, 3], [1, 4], [0, 3, 2, 4], [0, 5], []])
def test_offsets_that_are_none_are_refused(ptr):
    with pytest.raises(ValueError, match=r"ptr is .*: it must rise from 0 to the 4 nodes of x"):
        GraphBatch(torch.ones(4, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor(ptr, dtype=torch.long))


@pytest.mark.parametrize("ptr", [[0, 4], [0, 2, 4]])
@pytest.mark.parametrize("edges", [[[0, -1], [1, 0]], [[0, 9], [9, 0]], [[7], [8]]])
def test_edges_of_no_node_are_refused(ptr, edges):
    with pytest.raises(ValueError, match=r"edge_index names node \d \(min -?\d\) of a graph with 4 nodes"):
        GraphBatch(torch.ones(4, 1), torch.tensor(edges), torch.tensor(ptr))


@pytest.mark.slow
def test_any_number_of_hyperedges_in_the_graphs_of_a_torch_geometric_batch():
    graphs = [ring(), ring()]
    for data, index in zip(graphs, ([[0, 1, 2], [1, 2, 3]], [[0, 2, 3]]), strict=True):
        data.hyperedge_index_t = torch.tensor(index).t()
    found = GraphBatch.of(Batch.from_data_list(graphs))
    assert found.encodings["hyperedge_index"].tolist() == [[0, 1, 2], [1, 2, 3], [4, 6, 7]]
    assert set(found.encodings) == {"hyperedge_index"}
    net = create_model(
        "tokengt", in_dim=3, out_dim=2, level="hyperedge", order=3, node_identifiers="orf", hidden_dim=8, num_heads=2
    )
    assert net(Batch.from_data_list(graphs)).shape == (3, 2)


@pytest.mark.parametrize("model", ["hot", "tokengt"])
def test_hyperedges_of_a_torch_geometric_batch(model):
    data = ring()
    data.hyperedge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    found = GraphBatch.of(Batch.from_data_list([data, data]))
    assert found.encodings["hyperedge_index"].tolist() == [[0, 1, 2], [1, 2, 3], [4, 5, 6], [5, 6, 7]]
    order = {"hot": {"hyperedge_order": 3}, "tokengt": {"order": 3, "node_identifiers": "orf"}}[model]
    net = create_model(model, in_dim=3, out_dim=2, level="hyperedge", hidden_dim=8, num_heads=2, **order).eval()
    assert net(Batch.from_data_list([data, data])).shape == (4, 2)
