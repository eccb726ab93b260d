"""Where studies are stored: in a journal or a database; damaged ones."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.storage import REMEDY, STORAGE, FileWorkers, network_file_system, open_study, storage_url
from tests.gt_bench.search.cases import GRID, trials, tune
from tests.refusals import refused


def test_a_worker_is_alive_while_it_holds_its_lock(tmp_path):
    one, other = FileWorkers(tmp_path), FileWorkers(tmp_path)
    assert one.alive(other.name)
    assert one.alive(one.name)
    assert not one.alive("nobody")
    other.close()
    assert not one.alive(other.name)
    one.close()
    assert not list(tmp_path.glob("worker-*"))


def test_the_environment_overrides_the_study_storage(project, monkeypatch):
    project.recipe(search=GRID, run={"study_storage": "sqlite:///a.db"})
    assert storage_url(load_grid().run) == "sqlite:///a.db"
    monkeypatch.setenv(STORAGE, "sqlite:///b.db")
    assert storage_url(load_grid().run) == "sqlite:///b.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nonsense", "nonsense"),
        ("sqlite:////nowhere/at/all.db", "sqlite:////nowhere/at/all.db"),
        ("mysql+nodriver://me:secret@host/db", "mysql+nodriver://me:***@host/db"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named_without_its_password(project, url, shown):
    project.recipe(search=GRID, run={"study_storage": url})
    with refused(RecipeError, value=shown) as error:
        tune()
    assert "secret" not in str(error.value)
    assert not Path("tuned").exists()


@pytest.mark.slow
def test_a_study_file_of_another_cell_and_one_that_is_none(project):
    project.recipe(search={**GRID, "trials": 1})
    tune()
    project.recipe(row="other", search={**GRID, "trials": 1})
    shutil.copytree("studies/small/web/mlp", "studies/small/web/other")
    grid = load_grid()
    with refused(RecipeError, file="studies/small/web/other/journal.log") as error:
        tune_cell(grid.find("small/web/other"), grid)
    assert "contains the study of small/web/mlp" in error.value.problem
    journal = Path("studies/small/web/mlp/journal.log")
    whole = journal.read_text()
    for content in ("what\n" * 3, "what\n", "[]\n", whole + "what\n" + whole):
        journal.write_text(content)
        with refused(RecipeError, file=str(journal), remedy=REMEDY):
            tune()
        assert journal.read_text() == content


@pytest.mark.slow
def test_an_entry_that_was_only_begun_when_its_writer_was_killed_costs_nothing_else(project, capsys):
    project.recipe(search={**GRID, "trials": 3})
    tune()
    before, rows = project.records(), trials()
    journal = Path("studies/small/web/mlp/journal.log")
    content = journal.read_bytes()
    journal.write_bytes(content[:-40])
    tune()
    assert "removed an incomplete last entry" in capsys.readouterr().out
    assert sum(row["status"] == "ok" for row in trials()) == len(rows) == 3
    assert project.records() == before, "runs of the store are not repeated"
    journal.write_bytes(b"{")
    tune()
    assert project.records() == before


def test_sqlite_on_a_network_file_system_is_refused(tmp_path, monkeypatch):
    assert network_file_system(tmp_path) is None
    mounted = [("/", "ext4"), (str(tmp_path), "nfs4"), (f"{tmp_path}/local", "ext4")]
    partitions = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in mounted]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: partitions)
    assert network_file_system(tmp_path / "store") == "nfs4"
    assert network_file_system(tmp_path / "local" / "store") is None
    with refused(RecipeError, value="sqlite:///a.db"):
        open_study(RunSettings(study_storage="sqlite:///a.db"), tmp_path, "s/d/m", "name", ["max"])
