"""The installed package: a wheel in a separate environment, used from a folder that is not a repository."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gt_bench.custom_data import write_web

pytestmark = pytest.mark.slow

SOURCES = (
    "gt_bench",
    "gt_models",
    "stages",
    "suites",
    "params.yaml",
    "grid.yaml",
    "pyproject.toml",
    "setup.py",
    "README.md",
)

SCRIPT = """
from pathlib import Path

import torch
from torch_geometric.data import Data

import gt_bench
from gt_bench import evaluate
from gt_models import list_models
from gt_bench.config.grid import load_grid


class Mine(torch.nn.Module):
    def __init__(self, in_dim, out_dim, width=8):
        super().__init__()
        layers = torch.nn.Linear(in_dim, width), torch.nn.ReLU(), torch.nn.Linear(width, out_dim)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, data):
        return self.layers(data.x)


assert "site-packages" in gt_bench.__file__, gt_bench.__file__
torch.manual_seed(0)
data = Data(x=torch.randn(40, 5), edge_index=torch.randint(0, 40, (2, 80)), y=torch.arange(40) % 2)
table = evaluate(Mine, data, seeds=1, set={"epochs": 2, "model.width": 4}, name="points", track=False)
assert table.dataset == "points" and table.row["runs"] == 1 and "this run" in table._repr_html_()
again = evaluate(Mine, "points", seeds=1, set={"epochs": 2, "model.width": 4}, track=False)
assert again.row["mean"] == table.row["mean"]
assert not {*again.row["digests"]} & {*table.row["digests"]}  # a class of the running script is computed each time
assert table.row["parameters"] == 5 * 4 + 4 + 4 * 2 + 2
Path("suites/mine/recipes/points").mkdir(parents=True)
Path(table.recipe).rename("suites/mine/recipes/points/mine.yaml")
grid = load_grid()  # a recipe of this folder is a cell in addition to those of the package
assert grid.find("mine/points/mine").recipe_path.is_file() and grid.find("polynormer/er-scaling-1000/polynormer")
known = evaluate("mlp", "er-scaling-1000", seeds=1, set={"epochs": 1}, track=False)
assert any(row["of"] == "polynormer, shipped" for row in known.rows), known
assert "polynormer" in list_models()
assert Path("store").is_dir() and Path("data/packed/points").is_dir()
print(known)
"""


def without_this_checkout() -> dict[str, str]:
    """Environment variables without a path to this checkout, which would count as installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A virtual environment with the wheel; torch and other dependencies come from the current environment."""
    root = tmp_path_factory.mktemp("wheel")
    source = root / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", root, source],
        check=True,
        env=without_this_checkout(),
    )
    (wheel,) = root.glob("*.whl")
    venv.create(root / "venv", with_pip=False)
    subprocess.run(
        [*pip, "--python", root / "venv/bin/python", "install", "--no-deps", "--no-index", wheel],
        check=True,
        env=without_this_checkout(),
    )
    (site,) = (root / "venv/lib").glob("python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages") and (Path(path) / "torch").is_dir()]
    (site / "base.pth").write_text("\n".join(packages) + "\n")
    return root / "venv/bin"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=without_this_checkout())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_model_and_data_of_ones_own_on_the_command_line(installed, elsewhere):
    write_web(elsewhere / "lab/papers")
    model = (ROOT / "docs/add_a_model.md").read_text().split("```python\n")[1].split("```")[0]
    (elsewhere / "lab/my_model.py").write_text(model)
    said = run(
        installed / "gt-bench",
        "try",
        "lab/my_model.py:MyModel",
        "lab/papers",
        "--seeds",
        "0",
        "--set",
        "epochs=2",
        "--save",
        "mine",
    )
    assert "this run is number 1 of 1" in said
    assert Path("suites/mine/recipes/papers/my-model-epochs-2.yaml").is_file()
    assert Path("mlruns/mlflow.db").is_file()
    assert len(list(Path("store").glob("??/*/record.json"))) == 1
    said = run(installed / "gt-bench", "board", "polynormer")
    assert "er-scaling-1000" in said


def test_the_python_interface(installed, elsewhere):
    (elsewhere / "script.py").write_text(SCRIPT)
    assert "polynormer, shipped" in run(installed / "python", "script.py")
