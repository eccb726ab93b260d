"""The registry of encodings: shortest paths, random identifiers, counts, and its interface."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from gt_models import GraphBatch
from gt_models.encodings import ENCODINGS, EncodingError, compute
from tests.gt_models.checks import collate, random_graphs

MINIMAL = {
    "laplacian": {"k": 3},
    "rrwp": {"steps": 3},
    "position": {"count": 1},
    "hops": {"columns": 3},
    "expander": {"degree": 2},
    "rwse": {"steps": 3},
    "orthogonal": {"k": 3},
    "near-orthogonal": {"k": 3},
    "random": {"k": 3},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_what_an_encoding_states_is_what_it_returns(name):
    batch = collate(random_graphs((4, 2, 6), density=0.5))
    encoding, arguments = ENCODINGS[name], MINIMAL.get(name, {})
    batch.x = torch.randn(12, 3)
    out = compute(name, batch, **arguments)
    rows = {"node": 12, "pair": 16 + 4 + 36, "edge": batch.num_edges, "graph": 3}
    widths = encoding.widths(**encoding.arguments(arguments))
    assert {k: tuple(v.shape) for k, v in out.items()} == {
        k: (rows[level], widths[k]) for k, level in encoding.arrays.items()
    }
    assert encoding.num_bytes(arguments, batch.sizes) == sum(4 * v.numel() for v in out.values())
    assert encoding.__class__.key(encoding, arguments) == encoding.key(encoding.arguments(arguments))


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_torch_geometric_graph_without_edges(name):
    """Data and Batch of torch_geometric are accepted; a set has no `edge_index`."""
    given, arguments = Batch.from_data_list([Data(x=torch.ones(3, 3)), Data(x=torch.ones(2, 3))]), MINIMAL.get(name, {})
    expected = compute(
        name, GraphBatch(torch.ones(5, 3), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 3, 5])), **arguments
    )
    for array, values in compute(name, given, **arguments).items():
        assert torch.equal(values, expected[array])
    for array, values in compute(name, Data(x=torch.ones(5, 3)), **arguments).items():
        assert values.shape[1] == expected[array].shape[1]


def test_key_spells_name_and_sorted_complete_arguments():
    assert ENCODINGS["laplacian"].key({"which": "both", "k": 8}) == "laplacian-k=8-normalization=sym-which=both"
    assert ENCODINGS["order"].key({}) == "order"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("laplace", {}, r"no encoding named 'laplace' \(did you mean 'laplacian'\?\); known: degree, "),
        (
            "laplacian",
            {"k": 3, "normalisation": "sym"},
            r"has no argument 'normalisation' \(did you mean 'normalization'\?\)",
        ),
        ("laplacian", {}, "needs the argument 'k'"),
        ("laplacian", {"k": 3.0}, "k must be int, not 3.0"),
        ("laplacian", {"k": -1}, "k must be at least 1, not -1"),
        ("rrwp", {"steps": 2, "identity": 1}, "identity must be bool, not 1"),
        ("random", {"k": 2, "seed": -1}, "seed must be at least 0, not -1"),
        ("rrwp", {"steps": 2, "dtype": "x"}, "dtype"),
    ],
)
def test_bad_requests(name, arguments, message):
    with pytest.raises((EncodingError, TypeError), match=message):
        compute(name, random_graphs((3,))[0], **arguments) if "dtype" not in arguments else ENCODINGS[name].arguments(
            arguments
        )
