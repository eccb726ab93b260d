"""Exit status and last output of commands."""

import errno
import os
import sys

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import DatasetUnavailable
from gt_bench.data.registry import UnknownDataset
from gt_bench.pipeline import grid, reproduce
from gt_bench.pipeline.stage import cell_stage
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.worker_pool import Lost
from gt_bench.store.run_store import StoreError
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import WriteError
from tests.conftest import ROOT
from tests.one_process import in_one_process


def raising(error):
    def work(*_):
        raise error

    return work


@pytest.mark.parametrize(
    "kind", [RecipeError, StoreError, WriteError, DatasetError, DatasetUnavailable, UnknownDataset, Lost]
)
def test_errors_of_users_are_one_line(kind, capsys):
    assert status_of(raising(kind("web.yaml: fix it"))) == 1
    assert capsys.readouterr().err == "error: web.yaml: fix it\n"


def test_a_bug_is_not_swallowed():
    for error in (ValueError("a bug"), KeyError("a bug"), OSError(errno.EIO, "a bug")):
        with pytest.raises(type(error)):
            status_of(raising(error))


def test_without_an_error_the_status_is_what_the_work_returns():
    assert (status_of(lambda: 3), status_of(lambda: None)) == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "status"), [(["--help"], 0), (["-h"], 0), ([], 2), (["--nonsense"], 2), (["a", "b"], 2)]
)
def test_help_that_was_requested_is_no_failure(monkeypatch, capsys, arguments, status):
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    for main in (
        lambda: cell_stage("how it is called", raising(AssertionError())),
        lambda: reproduce.main(arguments),
        lambda: grid.main(arguments or ["a"]),
    ):
        assert main() == status
        assert capsys.readouterr().out


@pytest.mark.slow
def test_a_locale_without_utf_8_changes_nothing(project):
    """In an ASCII locale without UTF-8 mode, files, pipes and the terminal use UTF-8."""
    path = project.recipe(epochs=1, seeds=[0], origin={"all": "chosen: Schrödinger’s ± guess"})
    path.write_text(path.read_text().replace("\\u2019", "’").replace("\\xB1", "±"), encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("LC_", "PYTHONIOENCODING"))
    } | ascii_only
    commands = (
        "stages.train small/web/mlp",
        "stages.leaderboard small",
        "gt_bench.cli board small",
        "gt_bench.cli board small/web/mlp --recipe",
        "gt_bench.cli list",
    )
    status, out, error = in_one_process(commands, environment, project.root)
    assert status == 0, error
    assert "Traceback" not in error
    assert "±" in out


def test_a_package_that_is_missing_is_named_with_its_remedy(capsys):
    assert status_of(raising(ModuleNotFoundError("No module named 'psycopg.sql'", name="psycopg.sql"))) == 1
    assert capsys.readouterr().err == (
        "error: this command needs psycopg, which is not installed; run: python -m pip install 'psycopg[binary]'\n"
    )
    with pytest.raises(ModuleNotFoundError):  # a bug
        status_of(raising(ModuleNotFoundError("No module named 'stages.gone'", name="stages.gone")))
