"""Checkpoints: a damaged one is renamed, and the run starts over with the same results."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import save

from gt_bench.training.checkpoint import Checkpoint
from tests.gt_bench.training.small_run import curves, make


def flip_a_sign(path):
    """Flips one bit of the weights: the sign of the last float of the file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x80
    path.write_bytes(content)


def rewrite(change):
    """Damage that rewrites the file as safetensors: the format is valid, the content is not."""

    def damage(path):
        with safe_open(path, framework="pt") as file:
            metadata, tensors = dict(file.metadata()), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["header"])
        change(metadata, header, tensors)
        metadata = metadata | {"header": json.dumps(header)} if "header" in metadata else metadata
        path.write_bytes(save(tensors, metadata))

    return damage


def written_anew(change):
    """Damage with a valid checksum, as in a checkpoint of another run."""

    def damage(path):
        header, groups = Checkpoint(path).read()
        change(header, groups)
        Checkpoint(path).write(header, groups)

    return damage


def a_folder(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


DAMAGES = {
    "no checkpoint": lambda path: path.write_bytes(b"no checkpoint"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "flipped sign": flip_a_sign,
    "a folder": a_folder,
    "no header": rewrite(lambda metadata, header, tensors: metadata.pop("header")),
    "no checksum": rewrite(lambda metadata, header, tensors: metadata.pop("sha256")),
    "edited curve": rewrite(lambda metadata, header, tensors: header["curves"]["val"].__setitem__(0, 0.99)),
    "no curves, in place": rewrite(lambda metadata, header, tensors: header.pop("curves")),
    "a tensor left out": rewrite(lambda metadata, header, tensors: tensors.pop("optimizer/0.exp_avg")),
    "no curves": written_anew(lambda header, groups: header.pop("curves")),
    "curves of other lengths": written_anew(lambda header, groups: header["curves"]["val"].pop()),
    "more epochs than the recipe": written_anew(
        lambda header, groups: [c.extend([1.0] * 9) for c in header["curves"].values()]
    ),
    "no optimiser state": written_anew(lambda header, groups: groups.pop("optimizer")),
    "no best weights": written_anew(lambda header, groups: groups.pop("best_model")),
    "another shape": written_anew(
        lambda header, groups: groups["model"].update({"out.weight": groups["model"]["out.weight"][:1]})
    ),
    "half of the weights": written_anew(lambda header, groups: groups["model"].pop("out.weight")),
    "no totals": written_anew(lambda header, groups: header.update(totals={})),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_renamed_and_the_run_starts_over(tmp_path, capsys, damage):
    path = tmp_path / "checkpoint.safetensors"
    run = make(tmp_path, checkpoint=Checkpoint(path))
    run.on_epoch = lambda epoch, values: epoch == 2 and run._save()
    whole = run.train()
    capsys.readouterr()
    path.with_suffix(".damaged").mkdir()  # from an earlier damaged checkpoint
    DAMAGES[damage](path)
    outcome = make(tmp_path, checkpoint=Checkpoint(path)).train()
    assert curves(outcome) == curves(whole)
    (said,) = capsys.readouterr().out.splitlines()
    assert f"{path}: unusable checkpoint" in said
    assert path.with_suffix(".damaged").exists()
    assert not path.exists()


def test_a_whole_checkpoint_of_an_optimiser_without_state_is_continued(tmp_path, capsys):
    case = {"optimizer": {"name": "sgd", "lr": 0.01}}
    whole = make(tmp_path, **case).train()
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    run = make(tmp_path, checkpoint=checkpoint, **case)
    run.on_epoch = lambda epoch, values: epoch == 2 and run._save()
    run.train()
    assert curves(make(tmp_path, checkpoint=checkpoint, **case).train()) == curves(whole)
    assert capsys.readouterr().out == ""
