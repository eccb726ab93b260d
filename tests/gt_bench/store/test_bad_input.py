"""Damaged records and results: one line with the file, the field and the remedy, and the other cells continue."""

import json
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from tests.gt_bench.shipping import CELL, export, in_first, resealed, rewrite, run

OTHER = "small/web/other"


@pytest.fixture
def damaged(trained):
    """A function that damages the first record of CELL; another cell has other runs."""
    trained.recipe(row="other", seeds=[2, 3])
    train_cell(load_grid().find(OTHER), load_grid())
    digest = json.loads(Path(f"results/{CELL}.json").read_text())["runs"][0]
    path = Path("store", digest[:2], digest, "record.json")

    def damage(change) -> Path:
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(resealed(record)))
        return path

    return damage


def the_line(output: str, *parts: str) -> str:
    """The only line that has all parts."""
    (line,) = [line for line in output.splitlines() if all(part in line for part in parts)]
    return line


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r["deterministic"].update(colour=1), "unknown key deterministic.colour"),
        (lambda r: r["deterministic"].update(seed="0"), "deterministic.seed is '0'"),
        (lambda r: r["measured"]["environment"].update(commit="--output=x"), "environment.commit is '--output=x'"),
        (lambda r: r["measured"].update(started="2026-13-41"), "measured.started is '2026-13-41'"),
        (lambda r: r["measured"].pop("device"), "measured.device is missing"),
        (lambda r: r["deterministic"]["test_metrics"].update(accuracy=None), "test_metrics.accuracy is None"),
    ],
)
def test_a_damaged_record_is_one_line_and_other_cells_continue(damaged, change, field):
    path = damaged(change)
    for command in (("board", "small"), ("board", CELL), ("list", "small"), ("doctor",)):
        shown = run(*command)
        assert shown.exit_code == 1
        assert "delete the file and run the cell again" in the_line(shown.output, f"{path}: not a record", field)
    rows = {row["cell"]: row for row in json.loads(run("board", "small", "--json").stdout)}
    assert (rows[CELL]["runs"], rows[CELL]["state"]["unreadable"]) == (1, 1)
    assert (rows[OTHER]["runs"], rows[OTHER]["status"]) == (2, "ok")
    assert run("board", OTHER).exit_code == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r["deterministic"].update(colour=1), "its record 0: unknown key deterministic.colour"),
        (lambda r: r["measured"].update(finished="soon"), "its record 0: measured.finished is 'soon'"),
        (lambda r: r["measured"]["environment"].update(commit="main"), "environment.commit is 'main'"),
    ],
)
def test_a_damaged_shipped_record_is_one_line_and_other_cells_continue(damaged, change, field):
    path = export()
    rewrite(path, in_first(change))
    shown = run("store", "verify")
    assert shown.exit_code == 1
    assert "git checkout" in the_line(shown.output, f"{path}: not an export of records", field)
    assert run("board", OTHER).exit_code == 0
    rows = {row["cell"] for row in json.loads(run("board", "small", "--json").stdout)}
    assert {CELL, OTHER} <= rows


def test_two_different_records_of_one_run_are_a_conflict(damaged):
    path = export()
    rewrite(path, in_first(lambda r: r.update(resealed(edited(r)))))
    shown = run("store", "import", "small")
    assert shown.exit_code != 0
    assert "delete the record in the store and import again" in str(shown.exception)
    assert "deterministic" not in shown.output
    assert "train_loss" in str(shown.exception) or "epochs" in str(shown.exception)


def edited(record):
    record["deterministic"]["epochs"]["train_loss"][0] += 1.0
    return record


def test_a_result_that_names_a_missing_record_is_one_line(damaged):
    path = damaged(lambda record: None)
    path.unlink()
    for command in (("board", "small"), ("list", "small"), ("doctor",)):
        shown = run(*command)
        assert shown.exit_code == 1
        assert f"`python -m stages.train {CELL}`" in the_line(shown.output, f"{path}", "is missing")
    assert run("board", OTHER).exit_code == 0


def test_a_damaged_result_is_one_line_and_other_cells_continue(damaged):
    path = Path(f"results/{CELL}.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"colour": 1}))
    for command in (("board", "small"), ("list", "small"), ("doctor",)):
        shown = run(*command)
        assert shown.exit_code == 1
        assert f"delete it and run: python -m stages.train {CELL}" in the_line(shown.output, f"{path}", "colour")
    assert {row["cell"] for row in json.loads(run("board", "small", "--json").stdout)} == {CELL, OTHER}
