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
        params = re.sub(r"^limits: .*", LIMITS, (ROOT / "params.yaml").read_text(), flags=re.M)
        # the leaderboard fills MLflow; live tracking would import it in a further process of each cell
        assert "tracking: true" in params
        (folder / "params.yaml").write_text(params.replace("tracking: true", "tracking: false"))
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

    def _run_dvc(self, *arguments: str) -> str:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "GT_DATA_MIRROR": str(self.mirror),
            "PYTHONPATH": str(self.folder),
        }
        environment.pop("MLFLOW_TRACKING_URI", None)
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def repro(self, *arguments: str) -> list[str]:
        """Runs `dvc repro` and returns the names of the stages that it ran, without the one that always runs."""
        names = re.findall(r"^Running stage '([^']+)'", self._run_dvc("repro", *arguments), flags=re.M)
        return [name for name in names if name != "stages/dvc.yaml:state"]

    def dvc(self, *arguments: str) -> dict:
        """Returns the output of a command of DVC as JSON."""
        return json.loads(self._run_dvc(*arguments, "--json"))

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


def test_one_suite_runs_exactly_its_cells(project):
    assert set(project.ran) == {
        "download@chains",
        "encode@chains",
        "train@embedded-chains-mlp",
        "train@embedded-chains-gcn",
        "leaderboard@embedded",
    }
    assert {row["status"] for row in project.rows("embedded").values()} == {"ok"}
    assert (project.folder / "mlruns" / "mlflow.db").exists()
    shown = {
        path: found["data"] for path, found in project.dvc("metrics", "show")[""]["data"].items() if "data" in found
    }
    assert shown["reports/metrics/embedded/chains/gcn.json"]["mean"] == pytest.approx(
        100 * project.rows("embedded")["embedded/chains/gcn"]["mean"], abs=1e-3
    )


def test_a_new_cell_and_an_edited_recipe_that_requests_an_encoding_would_run_alone(project):
    recipe = "suites/embedded/recipes/chains/gcn.yaml"
    project.edit(recipe, "num_layers: 4", "num_layers: 4, laplacian_dim: 2")
    project.edit(recipe, "batch:", "encodings: {laplacian: {k: 2}}\nbatch:")
    project.add("embedded/chains/hot")
    assert project.repro("encode@chains") == ["encode@chains"]
    changed = project.dvc("status", *(f"train@embedded-chains-{model}" for model in ("gcn", "hot", "mlp")))
    encoded = "data/encodings/chains/cells/embedded-chains-gcn.json"
    assert changed.pop("train@embedded-chains-gcn") == [{"changed deps": {recipe: "modified", encoded: "modified"}}]
    assert set(changed) == {"train@embedded-chains-hot"}


def test_edited_code_runs_a_cell_only_where_it_changes_numbers(project):
    project.edit("gt_models/baselines/mlp.py", "return self.head(features)", "return 1.5 * self.head(features)")
    project.edit("gt_models/baselines/gcn.py", "def edges", "# a comment\n    unused = 1\n\n    def edges")
    before = project.records()
    cells = ("train@embedded-chains-mlp", "train@embedded-chains-gcn")
    assert project.repro(*cells) == ["train@embedded-chains-mlp"]
    (digest,) = project.records() - before
    record = json.loads((project.folder / "store" / digest[:2] / digest / "record.json").read_text())
    assert "modified" in record["deterministic"]["digests"]


def test_a_cell_whose_records_are_missing_trains(project):
    """DVC's run cache does not restore a deleted result, and a result without its records is removed."""
    before = project.records()
    shutil.rmtree(project.folder / "store")
    for folder in ("results", "metrics"):
        (project.folder / folder / "embedded/chains/gcn.json").unlink()
    assert project.repro("train@embedded-chains-gcn") == ["train@embedded-chains-gcn"]
    assert len(project.records()) == 1
    assert project.records() < before
    assert not (project.folder / "results/embedded/chains/mlp.json").exists()


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
    project.edit("gt_bench/training/trainer.py", "def _train_epoch", "# a comment\n    def _train_epoch")
    assert project.repro() == []
