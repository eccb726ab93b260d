"""GraphSAGE: its equations."""

import pytest
import torch

from tests.gt_models.baselines.message_passing_cases import build, by_equations, graphs
from tests.gt_models.reference import message_passing as reference


@pytest.mark.parametrize(("aggregation", "unit_norm"), [("mean", False), ("sum", True), ("max", False)])
def test_sage_is_its_equations(aggregation, unit_norm):
    graph, model = graphs((6,))[0], build("sage", aggregation=aggregation, unit_norm=unit_norm)
    expected = by_equations(
        model, graph, lambda w, _, x, __, ___: reference.sage(w, x, graph.edge_index, aggregation, unit_norm)
    )
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)
