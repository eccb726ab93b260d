"""GCNII: its equations."""

import pytest
import torch

from tests.gt_models.baselines.message_passing_cases import build, by_equations, graphs
from tests.gt_models.reference import message_passing as reference


@pytest.mark.parametrize("shared", [True, False])
def test_gcnii_is_its_equations(shared):
    graph, model = graphs((6,))[0], build("gcnii", alpha=0.3, theta=1.0, shared_weights=shared)
    expected = by_equations(
        model, graph, lambda w, i, x, first, _: reference.gcnii(w, x, first, graph.edge_index, i + 1, 0.3, 1.0)
    )
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)
