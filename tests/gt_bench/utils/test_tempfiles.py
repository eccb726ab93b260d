"""Temporary files of killed processes are removed, and no other files."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.data.prepare import prepare
from gt_bench.pipeline.train import train_cell
from gt_bench.utils.tempfiles import sweep

OLD = (1.0, 1.0)


def leave(path: Path, old: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if old:
        os.utime(path, OLD)
    return path


@pytest.mark.parametrize(
    ("name", "old", "swept"),
    [
        (".record.json.ab12_xyz", True, True),
        (".record.json.ab12_xyz", False, False),
        ("record.json", True, False),
        (".web.checked.json", True, False),
        ("lock", True, False),
        (".locks", True, False),
        ("mlflow.db.damaged-1", True, False),
    ],
)
def test_old_temporary_files_are_swept(tmp_path, name, old, swept):
    path = leave(tmp_path / name, old)
    assert sweep(tmp_path) == ([path] if swept else [])
    assert path.exists() != swept


def test_a_folder_goes_when_nothing_in_it_changed(tmp_path):
    inside = leave(tmp_path / "packed/.web.abcdefgh/web/data.safetensors", old=False)
    assert sweep(tmp_path, everywhere=True) == []
    for path in (inside, inside.parent, inside.parent.parent):
        os.utime(path, OLD)
    assert sweep(tmp_path) == []
    assert sweep(tmp_path, everywhere=True) == [tmp_path / "packed/.web.abcdefgh"]
    assert list((tmp_path / "packed").iterdir()) == []


@pytest.mark.slow
def test_each_stage_sweeps_where_it_writes(project):
    project.recipe()
    grid = load_grid()
    result = train_cell(grid.find("small/web/mlp"), grid)
    digest = result.runs[0]
    left = [
        leave(Path("results/small/web/.mlp.json.abcdefgh")),
        leave(Path("store", digest[:2], digest, ".record.json.abcdefgh")),
    ]
    left.append(leave(Path("metrics/small/web/.mlp.json.abcdefgh")))
    young = leave(Path("results/small/web/.mlp.json.hgfedcba"), old=False)
    train_cell(grid.find("small/web/mlp"), grid)
    assert not any(path.exists() for path in left)
    assert young.exists()
    # the holder of a dataset's lock knows that no other process writes it
    left = leave(Path("data/packed/.chains.abcdefgh/chains/data.safetensors"), old=False)
    other = leave(Path("data/packed/.chains.two.abcdefgh/chains/data.safetensors"), old=False)
    prepare("chains")
    assert not left.exists()
    assert other.exists()


def test_prune_removes_all_old_temporary_files(project):
    project.recipe()
    left = [
        leave(Path(f"{folder}/a/.b.json.abcdefgh"))
        for folder in ("data", "store", "studies", "metrics", "reports", "state")
    ]
    outside = leave(Path("suites/.b.json.abcdefgh"))
    done = CliRunner().invoke(app, ["store", "prune"])
    assert "6 removed" in done.output
    assert not any(path.exists() for path in left)
    assert outside.exists()
