"""Initialisation from saved weights: which are copied, and errors."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gt_bench.records.run import WEIGHTS
from gt_bench.training.pretrained_init import load_weights


def kept(folder, **tensors):
    save_file(tensors, folder / WEIGHTS)
    return folder


def test_the_same_model_takes_everything(tmp_path):
    source, model = nn.Linear(3, 2), nn.Linear(3, 2)
    assert load_weights(model, kept(tmp_path, **source.state_dict()), "all") == ["weight", "bias"]
    assert torch.equal(model.weight, source.weight)
    assert torch.equal(model.bias, source.bias)


def test_common_weights_are_loaded_and_others_stay_initial(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))
    drawn = {name: value.clone() for name, value in model.state_dict().items()}
    folder = kept(tmp_path, **{"0.weight": torch.ones(2, 3), "0.bias": torch.ones(5), "other": torch.ones(1)})
    assert load_weights(model, folder, "common") == ["0.weight"]
    assert (model[0].weight == 1).all()
    assert all(torch.equal(value, drawn[name]) for name, value in model.state_dict().items() if name != "0.weight")
    with pytest.raises(ValueError, match=r"differ in 0\.bias, 1\.bias, 1\.weight, other"):
        load_weights(model, folder, "all")


def test_a_buffer_alone_is_nothing_to_start_from(tmp_path):
    with pytest.raises(ValueError, match="no parameter in common"):
        load_weights(nn.BatchNorm1d(3), kept(tmp_path, running_mean=torch.zeros(3)), "common")


@pytest.mark.parametrize("content", [None, b"not weights"])
def test_an_absent_or_damaged_file_is_named(tmp_path, content):
    if content:
        (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{WEIGHTS}: no readable weights"):
        load_weights(nn.Linear(1, 1), tmp_path, "all")
