"""How far a run had come that has not ended."""

import json

import pytest
import torch
from safetensors.torch import save_file

from gt_bench.training.checkpoint_curves import curves_reached


def test_the_curves_of_a_checkpoint_without_its_weights(tmp_path):
    header = json.dumps({"curves": {"train_loss": [1.0, 0.5], "val": [0.1, 0.2]}})
    save_file({"weight": torch.zeros(2)}, tmp_path / "checkpoint.safetensors", {"header": header})
    assert curves_reached(tmp_path) == {"train_loss": [1.0, 0.5], "val": [0.1, 0.2]}


@pytest.mark.parametrize("header", [None, {}, {"header": "{"}, {"header": "[]"}, {"header": '{"curves": [1]}'}])
def test_nothing_where_there_is_none_that_can_be_read(tmp_path, header):
    if header is not None:
        save_file({"weight": torch.zeros(2)}, tmp_path / "checkpoint.safetensors", header or None)
    assert curves_reached(tmp_path) == {}


def test_nothing_of_a_file_that_is_cut_off(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\x08")
    assert curves_reached(tmp_path) == {}
