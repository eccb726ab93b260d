"""`AddEncodings` for torch_geometric data."""

import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from gt_models import create_model
from gt_models.encodings import EncodingError
from gt_models.transforms import AddEncodings
from tests.gt_models.rings import ring


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "arguments", "request_"),
    [
        ("ppgt", {"hidden_dim": 16, "num_heads": 2, "num_layers": 1, "rrwp_dim": 6}, ("rrwp", "steps", 5)),
        ("tokengt", {"hidden_dim": 16, "num_heads": 2, "num_layers": 1, "node_id_dim": 5}, ("laplacian", "k", 5)),
        ("gcn", {"rrwp_dim": 3}, ("rrwp", "steps", 2)),
        ("gcn", {}, None),
    ],
)
def test_a_transform_gives_what_a_model_reads(model, arguments, request_):
    net = create_model(model, in_dim=3, out_dim=2, level="graph", **arguments)
    net.train()
    transform = AddEncodings.for_model(net)
    graphs = [transform(ring(n)) for n in (4, 6, 5)]
    assert net.training
    if request_ is None:
        assert transform.requests == {}
    else:
        name, key, value = request_
        assert list(transform.requests) == [name]
        assert transform.requests[name][key] == value
    net.eval()
    together = net(next(iter(DataLoader(graphs, batch_size=3))))
    alone = torch.cat([net(graph) for graph in graphs])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_other_arguments_than_the_width():
    net = create_model("ppgt", in_dim=3, out_dim=2, level="graph", hidden_dim=16, num_heads=2, num_layers=1, rrwp_dim=6)
    transform = AddEncodings.for_model(net, {"rrwp": {"identity": False}})
    transform(ring(5))
    assert transform.requests["rrwp"] | {"steps": 6, "identity": False} == transform.requests["rrwp"]
    with pytest.raises(EncodingError, match="did you mean 'rrwp'"):
        AddEncodings.for_model(net, {"rrpw": {}})


def test_random_identifiers_go_with_the_graph():
    transform = AddEncodings({"orthogonal": {"k": 4}})
    one, other = transform(ring(5)), transform(ring(6))
    assert torch.equal(one.node_identifiers, transform(ring(5, seed=1)).node_identifiers)
    assert not torch.equal(one.node_identifiers, other.node_identifiers[:5])


@pytest.mark.parametrize("request_", [{"orthogonal": {"k": 4}}, {"random": {"k": 4}}, {"expander": {"degree": 2}}])
def test_random_encodings_of_a_batch_are_those_of_its_graphs(request_):
    transform, sizes = AddEncodings(request_), (12, 14, 13)
    alone = Batch.from_data_list([transform(ring(n)) for n in sizes])
    together = transform(Batch.from_data_list([ring(n) for n in sizes]))
    (array, *_) = {"node_identifiers", "expander"} & alone.to_dict().keys()
    assert torch.equal(together[array], alone[array])


@pytest.mark.slow
def test_numbers_of_edges_are_not_joined_by_a_loader():
    net = create_model(
        "graphormer", in_dim=3, out_dim=2, level="graph", edge_dim=None, hidden_dim=16, num_heads=2, num_layers=1
    )
    with pytest.raises(EncodingError, match="apply the transform to each batch"):
        AddEncodings.for_model(net)(ring(5))
    batch = Batch.from_data_list([ring(5), ring(4)])
    assert net(AddEncodings.for_model(net)(batch)).shape == (2, 2)
