"""GraphBatch: its layouts compared with loops, values computed on creation, and moves between devices."""

import pickle

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import ToSparseTensor

from gt_models import create_model
from gt_models.batch import ROWS, BatchError, GraphBatch, MissingEncoding
from gt_models.encodings import ENCODINGS
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


def test_graphs_without_nodes_in_a_batch_vector():
    data = Data(x=torch.ones(3, 1), edge_index=torch.zeros(2, 0).long(), batch=torch.tensor([0, 2, 2]))
    assert GraphBatch.of(data).ptr.tolist() == [0, 1, 1, 3]


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


def long(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.long)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("ptr", long(ptr)) for ptr in ([0, 3], [1, 4], [0, 3, 2, 4], [0, 5], [])),
        *(("ptr", ptr) for ptr in (torch.tensor([0.0, 4.0]), long([[0, 4]]))),
        *(("edge_index", long(edges)) for edges in ([[0, -1], [1, 0]], [[0, 9], [9, 0]], [[7, 7], [8, 8]])),
        *(("edge_index", long(edges)) for edges in ([[0, 1], [1, 2]], [0, 1], [[0, 1]], [[[0, 1], [1, 0]]])),
        *(("edge_index", torch.tensor([[0, 1], [1, 0]]).to(kind)) for kind in (torch.float32, torch.bool)),
        *(("edge_attr", torch.ones(shape)) for shape in ((1, 3), (3, 3), (0, 3), ())),
        ("edge_attr", torch.ones(2, 3, device="meta")),
        ("x", torch.ones(4, 1, device="meta")),
        ("edge_index", torch.zeros(2, 2, device="meta", dtype=torch.long)),
    ],
    ids=str,
)
def test_a_part_that_does_not_fit_the_others_is_refused(part, value):
    """Two graphs of two nodes."""
    parts = {"x": torch.ones(4, 1), "edge_index": long([[0, 2], [1, 3]]), "ptr": long([0, 2, 4])}
    parts["edge_attr"] = torch.ones(2, 3)
    GraphBatch(**parts)
    with pytest.raises(BatchError) as error:
        GraphBatch(**parts | {part: value})
    assert error.value.part == part
    assert pickle.loads(pickle.dumps(error.value)).part == part


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        *(("batch", {"batch": torch.tensor(batch)}) for batch in ([0, 1, 0, 1], [-1, 0, 0, 1], [0, 0, 1])),
        *(("batch", {"batch": batch}) for batch in (torch.tensor([0.0, 0, 1, 1]), torch.tensor([[0, 0, 1, 1]]))),
        ("batch", {"batch": torch.tensor([0, 0, 0, 1]), "ptr": torch.tensor([0, 2, 4])}),
        ("ptr", {"ptr": torch.tensor([0, 2, 3])}),
        ("edge_index", {"batch": torch.tensor([0, 0, 1, 1])}),
        ("edge_attr", {"edge_attr": torch.ones(3)}),
        ("x", {"x": None}),
        ("x", {"num_nodes": 6}),
        ("adj", {"edge_index": None, "adj": torch.ones(4, 4)}),
        ("adj_t", {"edge_index": None, "adj_t": torch.ones(3, 3).to_sparse_csr()}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_torch_geometric_data_that_does_not_fit_is_refused(part, changes):
    data = ring()
    for name, value in changes.items():
        data[name] = value
    with pytest.raises(BatchError) as error:
        GraphBatch.of(data)
    assert error.value.part == part


def test_new_edges_must_join_nodes_of_one_graph():
    edges = torch.tensor([[0, 2], [1, 3]])
    batch = GraphBatch(torch.ones(4, 1), edges, torch.tensor([0, 2, 4]))
    with pytest.raises(BatchError, match="edge 1 joins node 1 of graph 0 and node 2 of graph 1"):
        batch.edge_index = torch.tensor([[0, 1], [1, 2]])
    assert torch.equal(batch.edge_index, edges)


def test_an_encoding_is_cut_to_its_first_channels_and_a_vector_is_one_channel(batch):
    assert torch.equal(batch.encoding("rrwp", 1), batch.encodings["rrwp"][:, :1])
    batch.encodings["second_eigenvector"] = torch.arange(8.0)
    assert batch.encoding("second_eigenvector", 1).tolist() == [[float(i)] for i in range(8)]
    batch.encodings["own"] = torch.ones(3)  # rows of an encoding of the user's own may be anything
    assert batch.encoding("own").shape == (3,)
    for name, width in (("rwse", 1), ("rrwp", 3)):
        with pytest.raises(MissingEncoding, match=name):
            batch.encoding(name, width)


def test_rows_of_every_encoding_are_known():
    assert {array for encoding in ENCODINGS.values() for array in encoding.arrays} | {"target"} == set(ROWS)
