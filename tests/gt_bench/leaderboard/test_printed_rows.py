"""Tables of the command line fit 80 columns."""

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.utils.column_widths import fitting_table
from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("command", ["claims polynormer", "list hot", "board edge-transformer"])
def test_tables_fit_80_columns(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    table = done.stdout.partition("columns that do not fit")[0].splitlines()
    assert [line for line in table if "─" in line]
    assert all(cell_len(line) <= 80 for line in table)


@pytest.mark.parametrize(("width", "lines"), [(25, 4), (45, 3), (50, 2), (75, 1), (100, 1)])
def test_columns_that_are_always_shown_are_stacked_and_no_name_is_shortened(width, lines):
    row = ("edge-transformer-now", "0.12 ± 0.45", "+0.5 [-0.2, 0.7]", "undecided", "ok", "a long device name")
    names = ("model", "mean", "difference", "verdict", "status", "device")
    shown = fitting_table(names, [row] * 2, width, always=names[1:5]).plain
    table, _, left_out = shown.partition("columns that do not fit")
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert all(table.count(text) == 2 for text in row[:5])
    assert (row[5] in table) == (not left_out) == (width == 100)
    assert len(table.rstrip().splitlines()) == 3 * lines + 1


@pytest.mark.parametrize("width", [45, 60, 200])
def test_wrapped_columns_share_the_space(width):
    rows = [
        ("a", "one two three four five six seven eight", "undecided", "because of this and of that"),
        ("b", "x", "fails", "y"),
    ]
    names = ("name", "claim", "verdict", "why")
    shown = fitting_table(names, rows, width, wrapped=names[1:]).plain
    assert all(cell_len(line) <= width for line in shown.splitlines())
    words = {word for row in (*rows, names) for text in row for word in text.split()}
    assert set(shown.replace("─", "").split()) == words
