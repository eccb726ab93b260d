"""tools/gpu_session.sh measures, computes and packs within its minutes, without MLflow, DVC and Optuna."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "tools/gpu_session.sh"


@pytest.mark.parametrize("arguments", [(), ("13",), ("0", "embedded"), ("many", "embedded")])
def test_invalid_arguments_are_refused(arguments, tmp_path):
    done = subprocess.run(["/bin/sh", SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "sh tools/gpu_session.sh MINUTES" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_finished_cells_come_home_as_records(tmp_path):
    """Without a GPU the steps are not measured, and the rest of the session takes place."""
    for name in ("benchmarks", "gt_bench", "gt_models", "stages", "suites"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "grid.yaml", tmp_path)
    (tmp_path / "params.yaml").write_text("limits: {embedded: {seeds: 1, epochs: 1}}\n")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('mlflow', 'dvc', 'optuna'):\n    sys.modules[name] = None\n"
    )
    done = subprocess.run(
        ["/bin/sh", SCRIPT, "10", "embedded/chains/mlp"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "gpu-session.tar.gz") as archive:
        names = [Path(name) for name in archive.getnames()]
    assert Path("gpu-session/records/embedded/records/chains/mlp.json.gz") in names
    assert any(name.name == "record.json" for name in names)
