"""MLP_pi: the model, its size, and checks of every model. test_equivariant_linear.py tests its layers."""

import torch

from gt_models import create_model
from gt_models.hot.support import Support
from tests.gt_models import checks
from tests.gt_models.reference import hot as reference


def test_model_is_its_layers_one_after_the_other():
    graph = checks.random_graphs(sizes=(5,))[0]
    model = create_model("mlp-pi", in_dim=4, out_dim=2, edge_dim=3, hidden_dim=6, num_layers=2).double().eval()
    support = Support.sparse(graph)
    tuples, values = reference.tuples_of(support), model.input(graph, support, torch.float64)
    for layer in model.layers:
        values = reference.run_linear(layer, values, tuples).relu()
    expected = model.head(reference.run_linear(model.readout, values, tuples))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_size_of_the_authors_model():
    with torch.device("meta"):
        model = create_model(
            "mlp-pi",
            in_dim=[512] * 9,
            edge_dim=[512] * 3,
            out_dim=1,
            hidden_dim=256,
            num_layers=8,
            degree_embeddings=512,
            normalize_sums=True,
        )
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == 10.8
