"""Where studies are stored: in a journal or a database; damaged ones."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.storage import STORAGE, FileWorkers, network_file_system, open_study, storage_url
from tests.gt_bench.search.cases import GRID, trials, tune


def test_who_is_alive_is_told_by_locks(tmp_path):
    one, other = FileWorkers(tmp_path), FileWorkers(tmp_path)
    assert one.alive(other.name)
    assert one.alive(one.name)
    assert not one.alive("nobody")
    other.close()
    assert not one.alive(other.name)
    one.close()
    assert not list(tmp_path.glob("worker-*"))


def test_where_studies_live(project, monkeypatch):
    project.recipe(search=GRID, run={"study_storage": "sqlite:///a.db"})
    assert storage_url(load_grid().run) == "sqlite:///a.db"
    monkeypatch.setenv(STORAGE, "sqlite:///b.db")
    assert storage_url(load_grid().run) == "sqlite:///b.db"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite:////nowhere/at/all.db", "not usable"),
        ("mysql+nodriver://me:secret@host/db", "study storage mysql+nodriver://me:***@host/db"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named_without_its_password(project, url, says):
    project.recipe(search=GRID, run={"study_storage": url})
    with pytest.raises(RecipeError) as error:
        tune()
    assert says in str(error.value)
    assert "secret" not in str(error.value)
    assert not Path("tuned").exists()


@pytest.mark.slow
def test_a_study_file_of_another_cell_and_one_that_is_none(project):
    project.recipe(search={**GRID, "trials": 1})
    tune()
    project.recipe(row="other", search={**GRID, "trials": 1})
    shutil.copytree("studies/small/web/mlp", "studies/small/web/other")
    grid = load_grid()
    with pytest.raises(RecipeError, match="contains the study of small/web/mlp, not of small/web/other"):
        tune_cell(grid.find("small/web/other"), grid)
    journal = Path("studies/small/web/mlp/journal.log")
    whole = journal.read_text()
    for content in ("what\n" * 3, "what\n", "[]\n", whole + "what\n" + whole):
        journal.write_text(content)
        with pytest.raises(
            RecipeError,
            match=r"journal.log: not a journal of studies .*move it away and search again: finished trials are in",
        ):
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
    with pytest.raises(RecipeError, match="nfs4"):
        open_study(RunSettings(study_storage="sqlite:///a.db"), tmp_path, "s/d/m", "name", ["max"])
