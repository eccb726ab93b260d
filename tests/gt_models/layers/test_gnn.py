"""The common parts of message-passing baselines."""

import pytest
import torch

from gt_models.batch import GraphBatch
from tests.gt_models import checks
from tests.gt_models.baselines.cases import build, graphs


def test_laplacian_signs_are_flipped_in_training_only():
    batch = checks.collate(graphs())
    model = build(laplacian_dim=3)
    assert any(not torch.equal(model(batch), model(batch)) for _ in range(5))
    model.eval()
    assert torch.equal(model(batch), model(batch))
    checks.assert_batch_equals_singles(model, graphs())


@pytest.mark.parametrize("name", ["mlp", "gcn"])
def test_unusual_graphs(name):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64),
            torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T,
            torch.tensor([0, n]),
        )

    # empty, one node, isolated nodes, a self-loop with a directed and a doubled edge
    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(4, [(0, 0), (0, 1), (2, 3), (2, 3)])]
    for level, rows in (("node", 8), ("graph", 4)):
        model = build(name, level)
        assert model(checks.collate(unusual)).shape == (rows, 2)
        assert model(checks.collate(unusual)).isfinite().all()
        checks.assert_batch_equals_singles(model, unusual)
