"""Random node identifiers."""

import pytest
import torch

from gt_models.encodings import compute
from tests.gt_models.checks import collate, random_graphs


def identifiers(name, batch, graphs=None, **arguments):
    return compute(name, batch, graphs=graphs, dtype=torch.float64, **arguments)["node_identifiers"]


def test_orthogonal_rows_and_columns():
    graphs = random_graphs((5, 8, 12, 8))
    rows = identifiers("orthogonal", collate(graphs), k=8).split([5, 8, 12, 8])
    for part in (rows[0], rows[1], rows[3]):
        torch.testing.assert_close(part @ part.T, torch.eye(len(part), dtype=torch.float64))
    torch.testing.assert_close(rows[2].T @ rows[2], torch.eye(8, dtype=torch.float64))
    assert not rows[0][:, 5:].any()
    assert (rows[1] - rows[3]).abs().max() > 0.1  # graphs of one size differ


def test_near_orthogonal_entries_and_angles():
    rows = identifiers("near-orthogonal", random_graphs((400,), density=0.0)[0], k=64)
    assert set(rows.unique().tolist()) == {-1 / 64, 1 / 64}
    assert abs(float(rows.sign().mean())) < 0.03
    cosine = rows @ rows.T * 64
    torch.testing.assert_close(cosine.diagonal(), torch.ones(400, dtype=torch.float64))
    assert cosine.triu(1).square().sum() / (400 * 399 / 2) == pytest.approx(1 / 64, rel=0.05)


def test_random_numbers_are_normal():
    rows = identifiers("random", random_graphs((500,), density=0.0)[0], k=40)
    assert float(rows.mean()) == pytest.approx(0, abs=0.03)
    assert float(rows.std()) == pytest.approx(1, abs=0.03)
    assert float((rows**4).mean()) == pytest.approx(3, abs=0.2)
    assert float((rows[:, 1:] * rows[:, :-1]).mean()) == pytest.approx(0, abs=0.03)
    assert float((rows[1:] * rows[:-1]).mean()) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("name", ["orthogonal", "near-orthogonal", "random"])
def test_draws_depend_on_seed_and_graph_id_alone(name):
    graphs = random_graphs((6, 4, 6))
    whole = identifiers(name, collate(graphs), k=5)
    torch.testing.assert_close(identifiers(name, graphs[2], torch.tensor([2]), k=5), whole[10:], rtol=0, atol=1e-12)
    assert not torch.allclose(identifiers(name, graphs[2], torch.tensor([0]), k=5), whole[10:])
    assert not torch.allclose(identifiers(name, collate(graphs), k=5, seed=1), whole)
