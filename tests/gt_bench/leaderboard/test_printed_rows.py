"""Tables of the command line fit 80 columns."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.utils import terminal
from gt_bench.utils.column_widths import fitting_table
from tests.conftest import ROOT
from tests.gt_bench.table_width import fits


@pytest.mark.slow
@pytest.mark.parametrize("command", ["claims polynormer", "list hot"])
def test_it_fits(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(terminal, "console", lambda: Console(width=80))
    done = CliRunner().invoke(app, command.split())
    assert (done.exit_code, "│" in done.output) == (0, True), done.output
    assert fits(done.output)


@pytest.mark.parametrize(("width", "name", "stacked"), [(40, "ET", True), (75, "ET", False), (100, "edge", False)])
def test_required_columns_are_shortened_then_stacked_and_never_left_out(width, name, stacked):
    rows = [("edge-transformer-now", "0.12 ± 0.45", "+0.5 [-0.2, 0.7]", "undecided", "ok", "a long device name")] * 2
    names = ("model", "mean", "difference", "verdict", "status", "device")
    stacks = (("model",), ("mean", "status"), ("difference", "verdict"))
    console = Console(width=width, file=io.StringIO())
    console.print(fitting_table(names, rows, width, stacks=stacks, shorter={"model": ["ET-now"] * 2}))
    shown = console.file.getvalue()
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert all(shown.count(text) == 2 for text in (*rows[0][1:4], " ok ", f" {name}")), shown
    assert ("├" in shown) == stacked


@pytest.mark.parametrize("width", [30, 45, 60, 200])
def test_columns_of_several_lines_share_the_room(width):
    """Columns of very different lengths, which rich makes wider than the terminal."""
    rows = [
        ("a", "one two three four five six seven eight", "undecided", "because of this and of that"),
        ("b", "x", "fails", "y"),
    ]
    console = Console(width=width, file=io.StringIO())
    console.print(fitting_table(("name", "claim", "verdict", "why"), rows, width, wrapped=("claim", "verdict", "why")))
    body = [line for line in console.file.getvalue().splitlines() if line.startswith(("┃", "│"))]
    assert all(cell_len(line) <= width and line.endswith(("┃", "│")) for line in body)
    words = {word for row in rows for text in row for word in text.split()} | {"name", "claim", "verdict", "why"}
    assert {word for line in body for word in line.replace("┃", " ").replace("│", " ").split()} <= words
