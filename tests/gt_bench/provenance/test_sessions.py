"""The archive of a GPU session: its records and checkpoints, collected on one machine and imported on another."""

import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.provenance.sessions import import_session
from gt_bench.scheduling.plan_file import Entry
from gt_bench.store.run_store import Store, StoreError, curves_reached
from gt_bench.training.checkpoint import Checkpoint
from tests.gt_bench.shipping import CELL
from tools.gpu import archive
from tools.gpu.runs import collect

DIGEST = "ab" + "0" * 62


def checkpoint(folder: Path, epochs: int) -> Path:
    path = folder / "checkpoint.safetensors"
    Checkpoint(path).write({"curves": {"epoch": list(range(epochs))}}, {"model": {"w": torch.ones(2)}})
    return path


def tar(path: Path, files: dict[str, Path]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, source in files.items():
            file.add(source, name)
    return path


def test_records_of_an_unfinished_cell_and_a_checkpoint(trained, tmp_path, capsys):
    """Of two seeds one was computed, and another run has a checkpoint."""
    grid, out = load_grid(), tmp_path / "out"
    out.mkdir()
    lost = next(Path("store").rglob("record.json"))
    shutil.rmtree(lost.parent)
    shutil.rmtree("results")
    checkpoint(Store().folder(DIGEST), 3)
    assert collect([Entry((grid.find(CELL),))], grid, out) == []
    path, dropped = archive.pack(out)
    assert not dropped
    kept = {p.name for p in Path("store").glob("??/*") if (p / "record.json").exists()}
    assert len(kept) == 1
    shutil.rmtree("store")
    shutil.rmtree("results")
    import_session(path, [], grid)
    assert "1 records imported" in capsys.readouterr().out
    assert {p.parent.name for p in Path("store").rglob("record.json")} == kept
    assert curves_reached(Store().folder(DIGEST))["epoch"] == [0, 1, 2]
    assert Path("results", f"{CELL}.json").exists()
    import_session(path, [], grid)
    assert "0 records imported, 1 already present" in capsys.readouterr().out


def test_a_checkpoint_replaces_only_an_earlier_one_of_a_run_without_a_record(trained, tmp_path):
    grid, folder = load_grid(), Store().folder(DIGEST)
    name = f"checkpoints/ab/{DIGEST}/checkpoint.safetensors"
    archives = {n: tar(tmp_path / f"{n}.tar.gz", {name: checkpoint(tmp_path / str(n), n)}) for n in (2, 5)}
    for epochs, expected in ((5, 5), (2, 5)):
        import_session(archives[epochs], [], grid)
        assert len(curves_reached(folder)["epoch"]) == expected
    checkpoint(folder, 3)
    import_session(archives[5], [], grid)
    assert len(curves_reached(folder)["epoch"]) == 5
    (folder / "checkpoint.safetensors").unlink()
    (folder / "record.json").write_text("{}")
    import_session(archives[5], [], grid)
    assert not (folder / "checkpoint.safetensors").exists()


def test_bad_archives(trained, tmp_path):
    grid, before = load_grid(), sorted(Path("store").rglob("*"))
    text = tmp_path / "text.tar.gz"
    text.write_text("no archive")
    other = tar(tmp_path / "other.tar.gz", {"params.yaml": Path("params.yaml")})
    cut = tar(tmp_path / "cut.tar.gz", {f"checkpoints/ab/{DIGEST}/checkpoint.safetensors": checkpoint(tmp_path, 3)})
    cut.write_bytes(cut.read_bytes()[:200])
    outside = tar(tmp_path / "outside.tar.gz", {"../../outside": Path("params.yaml")})
    for path, says in (
        (text, "not an archive of a GPU session"),
        (other, "contains neither records nor checkpoints"),
        (cut, "not an archive of a GPU session"),
        (outside, "not an archive of a GPU session"),
    ):
        with pytest.raises(StoreError, match=f"{path}: {says}"):
            import_session(path, [], grid)
    assert sorted(Path("store").rglob("*")) == before
