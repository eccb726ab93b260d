"""The whole pipeline under DVC on a small grid: which stages run, which run again, and missing datasets."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT, SHARED

pytest.importorskip("dvc")

pytestmark = pytest.mark.slow
MIRROR = Path(os.environ.get("GT_DATA_MIRROR", SHARED / "data")).absolute()
CELLS = ("embedded/chains/mlp", "embedded/chains/gcn", "edge-transformer/cornell/gcn")
LIMITS = "limits: {embedded: {seeds: 1, epochs: 1}, edge-transformer: {seeds: 1, trials: 2, epochs: 2}}"


class Project:
    """A copy of the repository in an empty folder, with a grid of three cells."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("gt_bench", "gt_models", "stages", ".dvc"):
            shutil.copytree(
                ROOT / name,
                folder / name,
                ignore=shutil.ignore_patterns("__pycache__", "tmp", "cache", "config.local", "dvc.lock"),
            )
        for name in ("dvc.yaml", ".dvcignore"):
            shutil.copy(ROOT / name, folder)
        (folder / "params.yaml").write_text(
            re.sub(r"^limits: .*", LIMITS, (ROOT / "params.yaml").read_text(), flags=re.M)
        )
        for suite in {cell.partition("/")[0] for cell in CELLS}:
            shutil.copytree(
                ROOT / "suites" / suite,
                folder / "suites" / suite,
                ignore=shutil.ignore_patterns("recipes", "records", "__pycache__"),
            )
        self.add(*CELLS)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        (folder / "nothing").mkdir()
        self.mirror = folder / "nothing"
        self.ran: list[str] = []

    def add(self, *cells: str) -> None:
        """Puts cells of the repository into the grid."""
        for cell in cells:
            recipe = recipe_file(cell, self.folder / "suites")
            recipe.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(recipe_file(cell, ROOT / "suites"), recipe)
        subprocess.run(
            [sys.executable, "-m", "gt_bench.pipeline.grid"], cwd=self.folder, check=True, capture_output=True
        )

    def repro(self, *arguments: str) -> list[str]:
        """Runs `dvc repro` and returns the names of the stages that it ran, without the one that always runs."""
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GT_DATA_MIRROR": str(self.mirror),
            "PYTHONPATH": str(self.folder),
        }
        environment.pop("MLFLOW_TRACKING_URI", None)
        done = subprocess.run(
            [sys.executable, "-m", "dvc", "repro", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            name
            for name in re.findall(r"^Running stage '([^']+)'", done.stdout, flags=re.M)
            if name != "stages/dvc.yaml:state"
        ]

    def rows(self, suite: str) -> dict[str, dict]:
        return {row["cell"]: row for row in json.loads((self.folder / "reports" / f"{suite}.json").read_text())["rows"]}

    def records(self) -> set[str]:
        return {path.parent.name for path in (self.folder / "store").glob("??/*/record.json")}

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{file} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Project:
    """A project in which the embedded suite was run."""
    project = Project(tmp_path_factory.mktemp("pipeline"))
    project.ran = project.repro("leaderboard@embedded")
    return project


@pytest.fixture
def project(finished, tmp_path) -> Project:
    """A copy of the project, for one test."""
    found = copy.copy(finished)
    found.folder = Path(shutil.copytree(finished.folder, tmp_path / "project", symlinks=True))
    found.mirror = found.folder / "nothing"
    return found


def test_one_suite_runs_exactly_its_cells_and_only_once(project):
    assert set(project.ran) == {
        "download@chains",
        "encode@chains",
        "train@embedded-chains-mlp",
        "train@embedded-chains-gcn",
        "leaderboard@embedded",
    }
    assert {row["status"] for row in project.rows("embedded").values()} == {"ok"}
    metrics = subprocess.run(
        [sys.executable, "-m", "dvc", "metrics", "show", "--json"], cwd=project.folder, capture_output=True, check=True
    )
    shown = {path: found["data"] for path, found in json.loads(metrics.stdout)[""]["data"].items() if "data" in found}
    assert shown["reports/metrics/embedded/chains/gcn.json"]["mean"] == pytest.approx(
        100 * project.rows("embedded")["embedded/chains/gcn"]["mean"], abs=1e-3
    )
    # a deleted tracking store is filled again from the records
    shutil.rmtree(project.folder / "mlruns")
    assert project.repro("leaderboard@embedded") == ["leaderboard@embedded"]
    assert (project.folder / "mlruns" / "mlflow.db").exists()


def test_an_edit_runs_a_cell_only_where_it_changes_numbers(project):
    mlp = "gt_models/baselines/mlp.py"
    project.edit(mlp, "def reset_parameters", "# a comment\n    unused = 1\n\n    def reset_parameters")
    project.edit("gt_bench/training/trainer.py", "def _train_epoch", "# another\n    def _train_epoch")
    assert project.repro("leaderboard@embedded") == []
    project.edit(mlp, "return self.head(features)", "return 1.5 * self.head(features)")
    before = project.records()
    assert project.repro("train@embedded-chains-mlp") == ["train@embedded-chains-mlp"]
    (digest,) = project.records() - before
    record = json.loads((project.folder / "store" / digest[:2] / digest / "record.json").read_text())
    assert "modified" in record["deterministic"]["digests"]
    project.edit(mlp, '@register_model("mlp"', 'VERSION = 2\n\n\n@register_model("mlp"')
    assert project.repro("leaderboard@embedded") == ["train@embedded-chains-mlp", "leaderboard@embedded"]
    assert project.rows("embedded")["embedded/chains/mlp"]["status"] == "ok"


def test_a_new_cell_and_an_encoding_of_another_run_only_these(project):
    recipe = "suites/embedded/recipes/chains/gcn.yaml"
    project.edit(recipe, "num_layers: 4", "num_layers: 4, laplacian_dim: 2")
    project.edit(recipe, "batch:", "encodings: {laplacian: {k: 2}}\nbatch:")
    project.add("embedded/chains/hot")
    before = project.records()
    ran = project.repro("leaderboard@embedded")
    assert (ran[0], ran[-1]) == ("encode@chains", "leaderboard@embedded")
    assert set(ran[1:-1]) == {"train@embedded-chains-gcn", "train@embedded-chains-hot"}
    assert before < project.records()
    assert len(project.records() - before) == 2


def test_a_cell_whose_records_are_missing_trains(project):
    before = project.records()
    shutil.rmtree(project.folder / "store")
    for folder in ("results", "metrics"):
        (project.folder / folder / "embedded/chains/gcn.json").unlink()
    assert project.repro("train@embedded-chains-gcn") == ["train@embedded-chains-gcn"]
    assert len(project.records()) == 1
    assert project.repro("leaderboard@embedded") == ["train@embedded-chains-mlp"]
    assert project.records() == before
    assert {row["status"] for row in project.rows("embedded").values()} == {"ok"}


def test_missing_data_is_a_row_and_is_picked_up_later(project):
    cell = "edge-transformer/cornell/gcn"
    project.repro()
    row = project.rows("edge-transformer")[cell]
    assert row["status"] == "not run: data"
    if not MIRROR.is_dir():
        pytest.skip(f"no real data at {MIRROR}; set GT_DATA_MIRROR")
    project.mirror = MIRROR
    ran = project.repro()
    assert ran == [
        "download@cornell", "encode@cornell", "tune@edge-transformer-cornell-gcn", "train@edge-transformer-cornell-gcn",
        "leaderboard@edge-transformer",
    ]  # fmt: skip
    assert project.rows("edge-transformer")[cell]["status"].startswith("ok")
    project.mirror = project.folder / "nothing"
    assert project.repro() == []
