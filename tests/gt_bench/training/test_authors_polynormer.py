"""A run of Polynormer's recipe equals a run of the authors' main.py, epoch by epoch.

authors_polynormer.npz holds such a run: cornell-zhang/Polynormer, commit fc8c276c, unmodified, with --hidden_channels 2
--num_heads 2 --local_layers 2 --global_layers 2 --local_epochs 10 --global_epochs 14 --lr 0.01 --weight_decay 5e-4
--dropout 0.3 --global_dropout 0.4 --in_dropout 0.2 --save_model, on a random graph in float64. `mask` replaced each
dropout. The file holds the graph, the first weights under our names, and for each epoch the accuracy on train,
validation and test and the loss on validation.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from gt_bench.data.packed_writer import pack_graph
from gt_models import create_model
from gt_models.layers.dropout import Dropout
from tests.gt_bench.conftest import header_of
from tests.gt_bench.training.small_run import make

LOCAL, GLOBAL = 10, 14


def mask(x: torch.Tensor, rate: float, number: int) -> torch.Tensor:
    """Dropout of call `number` of a run, counted from 1."""
    draws = torch.rand(x.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    return x * (draws >= rate) / (1 - rate)


@pytest.fixture(scope="module")
def authors():
    with np.load(Path(__file__).parent / "authors_polynormer.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def run(authors, tmp_path, monkeypatch):
    """The run of our trainer with the authors' graph, weights and masks."""
    header = header_of("web", "node-classification", in_dim=5, out_dim=3)
    graph = {name: authors[name] for name in ("x", "y", "edge_index", "split")}
    pack_graph(tmp_path / "data" / "packed" / "web", header, **graph)
    weights = {name[2:]: torch.from_numpy(value) for name, value in authors.items() if name.startswith("w.")}
    calls = iter(range(1, 10**6))
    monkeypatch.setattr(Dropout, "drop", lambda self, x: mask(x, self.rate, next(calls)))

    def build():
        model = create_model(
            "polynormer-released", in_dim=5, out_dim=3, hidden_dim=4, num_heads=2, num_local_layers=2,
            num_global_layers=2, relu=True, in_dropout=0.2, dropout=0.3, global_dropout=0.4,
        ).double()  # fmt: skip
        model.load_state_dict(weights)
        return model

    phases = [{"name": "local", "epochs": LOCAL}, {"name": "global", "epochs": GLOBAL, "reload_best": True}]
    optimizer = {"name": "adam", "lr": 0.01, "weight_decay": 5e-4}
    return make(tmp_path, build=build, precision="float64", optimizer=optimizer, epochs=None, phases=phases)


@pytest.mark.slow
def test_curves_and_selected_epoch_equal_the_authors(run, authors):
    log = authors["log"]  # [epochs, (train, validation, test, loss on validation)]
    selected = int(log[:, 1].argmax())
    # reloading the best local weights matters, and the selected epoch is none of the last ones of a phase
    assert log[:LOCAL, 1].argmax() < LOCAL - 1
    assert LOCAL < selected < LOCAL + GLOBAL - 1
    tests = []
    run.on_epoch = lambda *_: tests.append(run._evaluate("test")["accuracy"])
    outcome = run.train()
    assert outcome.status == "ok", outcome.error
    np.testing.assert_allclose(outcome.curves["val_loss"], log[:, 3], rtol=0, atol=1e-8)
    np.testing.assert_allclose(outcome.curves["val"], log[:, 1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(tests, log[:, 2], rtol=0, atol=1e-12)
    assert outcome.best_epoch == selected + 1
    assert outcome.test == pytest.approx(log[selected, 2], abs=1e-12)
