"""Exit status and last output of commands."""

import errno
import os
import re
import subprocess
import sys

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import DatasetUnavailable
from gt_bench.data.registry import UnknownDataset
from gt_bench.experiment.cell import cell_stage
from gt_bench.pipeline import grid
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.worker_pool import Lost
from gt_bench.scheduling import reproduce
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
def test_what_a_user_can_fix_is_one_line(kind, capsys):
    assert status_of(raising(kind("web.yaml: fix it"))) == 1
    assert capsys.readouterr().err == "error: web.yaml: fix it\n"


def test_a_bug_is_not_swallowed():
    for error in (ValueError("a bug"), KeyError("a bug"), OSError(errno.EIO, "a bug")):
        with pytest.raises(type(error)):
            status_of(raising(error))


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path, capsys):
    for work, says in (
        (lambda: tmp_path.read_text(), f"{tmp_path}: Is a directory"),
        (
            raising(PermissionError(errno.EACCES, "Permission denied", "results/a.json")),
            "results/a.json: Permission denied",
        ),
        (raising(OSError(errno.EROFS, "Read-only file system", "store")), "store: Read-only file system"),
    ):
        assert status_of(work) == 1
        assert capsys.readouterr().err == f"error: {says}; fix this and run the command again\n"


def test_without_an_error_the_status_is_what_the_work_returns():
    assert (status_of(lambda: 3), status_of(lambda: None)) == (3, 0)


def test_a_full_disk_and_a_stop_by_hand_end_in_one_line(project, monkeypatch, capsys):
    project.recipe()
    monkeypatch.setattr(sys, "argv", ["train", "small/web/mlp"])

    full, stopped = raising(OSError(errno.ENOSPC, "No space left on device")), raising(KeyboardInterrupt())
    assert (cell_stage("", full), cell_stage("", stopped)) == (1, 130)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "error: the disk is full; free some space and run the same command again to resume",
        "stopped; run the same command again to resume",
    ]


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


def test_a_grid_where_there_is_no_project(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert grid.main([]) == 1
    assert capsys.readouterr().err.startswith("error: params.yaml: no such file")


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
        "gt_bench.cli show small",
        "gt_bench.cli show small/web/mlp",
        "gt_bench.cli list",
    )
    status, out, error = in_one_process(commands, environment, project.root)
    assert status == 0, error
    assert "Traceback" not in error
    assert "±" in out


@pytest.mark.slow
def test_every_file_is_opened_as_utf_8():
    texts = {
        path: path.read_text(encoding="utf-8")
        for package in ("gt_bench", "gt_models", "stages")
        for path in (ROOT / package).rglob("*.py")
    }
    for path, text in texts.items():
        assert not re.search(r"\.read_text\(\)|text=True|universal_newlines", text), path
    options = ["--preview", "--select", "PLW1514", "--isolated"]
    command = [sys.executable, "-m", "ruff", "check", *options, "gt_bench", "gt_models", "stages"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout


def test_a_package_that_is_missing_is_named_with_its_remedy(capsys):
    assert status_of(raising(ModuleNotFoundError("No module named 'psycopg.sql'", name="psycopg.sql"))) == 1
    assert capsys.readouterr().err == (
        "error: this command needs psycopg, which is not installed; run: python -m pip install 'psycopg[binary]'\n"
    )
    with pytest.raises(ModuleNotFoundError):  # a bug
        status_of(raising(ModuleNotFoundError("No module named 'stages.gone'", name="stages.gone")))
