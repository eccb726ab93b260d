import gzip
import json
import shutil
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.suites.migrate import migrate
from gt_bench.utils.paths import SuiteError
from tests.conftest import ROOT


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """A workspace of the former layout: two recipes, one with a base of another suite, a record, golden values."""
    monkeypatch.chdir(tmp_path)
    for cell in ("mine/chains/mlp", "other/chains/mlp"):
        Path("recipes", cell).parent.mkdir(parents=True)
    shutil.copy(ROOT / "suites/embedded/recipes/chains/mlp.yaml", "recipes/mine/chains/mlp.yaml")
    Path("recipes/other/chains/mlp.yaml").write_text(
        "base: ../../mine/chains/mlp.yaml\nepochs: 3\norigin: {epochs: 'chosen: x'}\n"
    )
    Path("records/mine/chains").mkdir(parents=True)
    Path("records/mine/chains/mlp.json.gz").write_bytes(gzip.compress(b"{}"))
    Path("golden").mkdir()
    Path("golden/mine.json").write_text("{}")
    Path("golden/checked.json").write_text(json.dumps({"mine/chains/mlp": "abc"}))
    Path("store/ab/abc").mkdir(parents=True)
    Path("store/ab/abc/record.json").write_text("{}")
    return tmp_path


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


def test_one_command_moves_everything_and_states_what(old):
    before = load_recipe("recipes/other/chains/mlp.yaml")
    said = migrate()
    assert [line for line in said if line.startswith(("recipes/", "records/", "golden/"))] == [
        "recipes/ -> suites/mine/: 1 file",
        "recipes/ -> suites/other/: 1 file",
        "records/ -> suites/mine/: 1 file",
        "golden/ -> suites/mine/: 1 file",
        "golden/checked.json -> suites/SUITE/golden_checked.json",
    ]
    assert not any(Path(name).exists() for name in ("recipes", "records", "golden"))
    assert Path("store/ab/abc/record.json").exists()
    assert json.loads(Path("suites/mine/golden_checked.json").read_text()) == {"mine/chains/mlp": "abc"}
    cells = [cell.cell for cell in load_grid().cells.values() if cell.suite in ("mine", "other")]
    assert cells == ["mine/chains/mlp", "other/chains/mlp"]
    assert load_recipe("suites/other/recipes/chains/mlp.yaml") == before
    assert migrate() == []


def test_what_nothing_reads_is_named_and_stays(old):
    Path("published").mkdir()
    Path("published/mine.txt").write_text("notes")
    assert "published/: 1 file that no command reads; delete or keep them" in migrate()
    assert Path("published/mine.txt").exists()


def test_nothing_is_overwritten(old):
    there = Path("suites/mine/recipes/chains/mlp.yaml")
    there.parent.mkdir(parents=True)
    there.write_text("other\n")
    before = contents()
    with pytest.raises(
        SuiteError, match=r"recipes/mine/chains/mlp.yaml and suites/mine/recipes/chains/mlp.yaml differ"
    ):
        migrate()
    assert contents() == before


def test_an_old_workspace_is_an_error_that_names_the_command(old):
    with pytest.raises(RecipeError, match="recipes/: the layout of an earlier version; `gt-bench suite migrate`"):
        load_grid()
