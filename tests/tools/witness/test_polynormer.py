"""The comparison with the authors' code of Polynormer: its arguments, masks and names."""

import torch

from tools.witness.polynormer import Masks, command_of, renamed

RUN = (
    "python main.py --dataset minesweeper --hidden_channels 64 --local_epochs 100 --global_epochs 2000 --device $GPU\n"
)


def test_only_the_schedule_and_the_width_of_the_authors_command_change(tmp_path):
    (tmp_path / "run.sh").write_text(RUN + RUN.replace("minesweeper", "tolokers").replace("64", "60"))
    words = command_of(tmp_path, "minesweeper", 4, 6, 2, tmp_path / "data")
    expected = "main.py --dataset minesweeper --hidden_channels 2 --local_epochs 4 --global_epochs 6 --device 0 --cpu"
    assert words == [*expected.split(), "--data_dir", f"{tmp_path / 'data'}/"]


def test_masks_depend_on_the_number_of_the_call_alone():
    x, first, second = torch.ones(50, 4, dtype=torch.float64), Masks(), Masks()
    torch.manual_seed(1)
    one = [first(x, 0.5), first(x, 0.5)]
    torch.manual_seed(2)
    assert first(x, 0.5, training=False) is x
    assert torch.equal(one[0], second(x, 0.5))
    assert torch.equal(one[1], second(x, 0.5))
    assert not torch.equal(*one)
    assert set(one[0].unique().tolist()) == {0.0, 2.0}


def test_names_of_parameters():
    theirs = {
        "betas": torch.arange(4.0).view(2, 2),
        "global_attn.k_lins.10.weight": torch.ones(1),
        "local_convs.1.att_src": torch.ones(1, 2, 3),
        "local_convs.1.lin.weight": torch.ones(1),
        "pred_local.bias": torch.ones(1),
    }
    ours = renamed(theirs)
    assert ours["local_layers.1.beta.weight"].tolist() == [2, 3]
    assert ours["local_layers.1.local.att_source"].shape == (2, 3)
    assert {"global_layers.10.attention.key.weight", "local_layers.1.local.linear.weight", "local_head.bias"} < set(
        ours
    )
