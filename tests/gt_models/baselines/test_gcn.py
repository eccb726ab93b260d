"""The MLP and GCN baselines."""

import pytest
import torch

from gt_models.batch import MissingEncoding
from tests.gt_models import checks
from tests.gt_models.baselines.cases import build, graphs

GCN_VARIANTS = [
    {},
    {"normalisation": "batch", "residual": True, "pooling": "sum", "num_layers": 3},
    {"normalisation": "layer", "activation": "gelu", "pooling": "max"},
    {"rrwp_dim": 3},
    {"rrwp_dim": 2, "normalisation": "layer", "residual": True},
]


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("arguments", GCN_VARIANTS)
def test_gcn_sound(arguments, level):
    # a bias before a batch norm has no gradient, so only the other variants check every parameter
    if arguments.get("normalisation") == "batch":
        checks.assert_gradients_reach(
            build(level=level, **arguments),
            checks.collate(graphs()),
            except_for=tuple(f"convs.{i}.bias" for i in range(3)),
        )
        checks.assert_batch_equals_singles(build(level=level, **arguments), graphs())
        checks.assert_equivariant(build(level=level, **arguments), graphs()[0], level, ("rrwp",))
    else:
        checks.assert_sound(lambda: build(level=level, **arguments), graphs(), level, ("rrwp",))


def test_gcn_is_its_equation():
    """X <- relu(D^-1/2 (A + I) D^-1/2 X W + b), D the degrees of A + I (Kipf and Welling 2017, Eq. 2)."""
    graph, model = graphs((6,))[0], build(num_layers=2, rrwp_dim=2).eval()
    w, n = model.state_dict(), 6
    adjacency = torch.eye(n, dtype=torch.float64)
    adjacency[graph.edge_index[1], graph.edge_index[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    walk = graph.encodings["rrwp"].view(n, n, 3)[range(n), range(n), :2]
    x = (
        torch.cat([graph.x, walk], 1) @ torch.cat([w["encoder.linear.weight"], w["encoding_encoder.weight"]], 1).T
        + w["encoder.linear.bias"]
    )
    for i in range(2):
        x = torch.relu((scale[:, None] * adjacency * scale) @ x @ w[f"convs.{i}.lin.weight"].T + w[f"convs.{i}.bias"])
    torch.testing.assert_close(model(graph), x @ w["head.weight"].T + w["head.bias"], rtol=1e-10, atol=1e-10)


def test_bad_arguments_and_input():
    for name in ("mlp", "gcn"):
        with pytest.raises(ValueError, match="it predicts: node, graph"):
            build(name, "pair")
        with pytest.raises(ValueError, match="known: sum, mean, max"):
            build(name, pooling="median")
        with pytest.raises(ValueError, match="at least one layer"):
            build(name, num_layers=0)
        with pytest.raises(ValueError, match="unknown activation"):
            build(name, activation="rely")
    with pytest.raises(ValueError, match="known: none, batch, layer"):
        build(normalisation="group")
    with pytest.raises(MissingEncoding, match="compute it wider"):
        build(rrwp_dim=4)(graphs()[0])
    with pytest.raises(MissingEncoding, match="needs the encoding 'laplacian_eigenvectors'"):
        build(laplacian_dim=4)(checks.random_graphs((4,))[0])
