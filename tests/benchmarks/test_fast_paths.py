"""Forms that are switched off one at a time: the gain of each, and the forms that no step used."""

import torch
from torch import nn

from benchmarks import fast_paths
from gt_models.kernels import forms_taken, use
from gt_models.kernels.dropout import draw_seed, drop
from gt_models.layers.dropout import Dropout


def test_a_form_is_off_inside_the_block_only():
    layer, x = Dropout(0.5), torch.ones(4, 3)
    assert fast_paths.taken_by(lambda: layer(x)) == ["dropout: numba", "dropout_module: one pass"]
    with fast_paths.without(("dropout: numba",)):
        assert fast_paths.taken_by(lambda: layer(x)) == ["dropout_module: one pass"]
        with forms_taken() as taken:
            drop(x, draw_seed(), 0.5)
        assert taken == {"dropout": {"reference": 1}}
    with fast_paths.without(("dropout", "dropout_module: one pass")):
        assert fast_paths.taken_by(lambda: layer(x)) == []
    assert fast_paths.taken_by(lambda: layer(x)) == ["dropout: numba", "dropout_module: one pass"]


def test_the_next_form_of_an_operation_is_used():
    from gt_models.kernels.multi_linear import multi_linear

    x, layer = torch.randn(2048, 64), nn.Linear(64, 64)

    def step():
        multi_linear(x, layer.weight, layer.bias)

    assert fast_paths.taken_by(step) == ["multi_linear: onednn"]
    with fast_paths.without(("multi_linear: onednn",)):
        assert fast_paths.taken_by(step) == ["multi_linear: summed"]
    with use("reference"):
        assert fast_paths.taken_by(step) == []
