"""Texts for people: units, and untrusted text that has no effect in any output."""

import csv
import io
import re
from dataclasses import replace

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.papers.published import lookup
from gt_bench.runtime.exit_status import status_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import csv_cell, duration, file_size, markdown_line, print_text
from tests.gt_bench.cells import ET, changed, make_record, make_result


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.1234, "0.123 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (7200, "2.0 h"),
        (400 * 86400, "400.0 d"),
        (1277 * 86400, "3.5 years"),
    ],
)
def test_seconds_have_the_largest_unit_of_which_there_are_two(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (1000, "1,000 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (3000 << 30, "3,000 GiB")]
)
def test_bytes_have_binary_units(size, said):
    assert file_size(size) == said


def test_a_cell_cannot_end_the_row():
    assert markdown_line(["a|b", "c\nd"]) == r"| a\|b | c d |"


HOSTILE = (
    "=cmd|' /C calc'!A0 \x1b]0;title\x07\x1b[8m \u202eeman\u2066 <img src=x onerror=alert(1)> ![i](http://evil/i.png) "
    "[a](javascript:b) \\$x"
)


def hostile_rows():
    """A cell whose records and result come from an untrusted source, in every text that a report shows."""
    record = changed(make_record(ET, 0), measured={"device": HOSTILE})
    result = changed(make_result(ET, [record], method=None), reason=HOSTILE, reduced=[HOSTILE], pinned=[HOSTILE])
    rows = judged(result, [record])
    printed = replace(lookup("edge-transformer", "Table 3", "ET", "cornell"), printed=HOSTILE, flags=(HOSTILE,))
    hostile = {"metric": HOSTILE, "cell": "/".join([HOSTILE.replace("/", "")] * 3), "contributed": HOSTILE}
    return [replace(rows[0], **hostile, published=printed)], result, record


def check_terminal(text: str) -> None:
    assert not [character for character in text if not character.isprintable() and character != "\n"]


def check_markdown(text: str) -> None:
    check_terminal(text)
    assert "<img" not in text
    assert not re.search(r"(?<!\\)\]\((?:http://evil|javascript)", text)


def check_csv(text: str) -> None:
    for row in csv.reader(io.StringIO(text)):
        assert not [
            cell
            for cell in row
            if cell[:1] in ("=", "+", "@") or (cell[:1] == "-" and not re.fullmatch(r"-[\d.e-]+", cell))
        ]
    check_terminal(text)


@pytest.mark.slow
def test_a_hostile_text_does_nothing_in_any_output(capsys):
    from gt_bench.config.verdict_settings import Rules
    from gt_bench.leaderboard.export import to_csv, to_json, to_markdown
    from gt_bench.leaderboard.printed_rows import print_rows
    from gt_bench.papers.table_layout import layouts
    from gt_bench.pipeline.cell_list import show_listing
    from gt_bench.reports.attempt_history import Attempt, changes, history_lines
    from gt_bench.reports.html.build import table_html
    from gt_bench.reports.paper_table import paper_table
    from gt_bench.reports.show_table import show
    from gt_bench.tracking.payload import describe_cell, describe_run
    from gt_bench.utils.terminal import print_table

    rows, result, record = hostile_rows()
    print_rows(HOSTILE, rows)
    print_table(["a", HOSTILE], [[HOSTILE, "b"]], title=HOSTILE)
    show_listing([{"cell": HOSTILE, "settings": HOSTILE, "seeds": "1/1", "state": HOSTILE}], [HOSTILE])
    one = Attempt(1, result, [record], False)
    two = Attempt(2, changed(result, reduced=[], recipe={"model": {"name": HOSTILE}}), [record], True)
    print_text("\n".join([*history_lines([one, two]), *changes(one, two)]))
    status_of(lambda: (_ for _ in ()).throw(UserError(HOSTILE)))
    said = capsys.readouterr()
    check_terminal(said.out + said.err)
    assert "onerror" in said.out

    layout = next(layout for layout in layouts() if layout.printed)
    table = paper_table(layout, [])
    for form in ("terminal", "md", "tex", "csv", "html"):
        show(layout.paper, layout.title, rows, form)
        check_terminal(capsys.readouterr().out)
    assert "<img src=x" not in table_html(table)

    check_markdown(to_markdown("suite", rows, Rules()))
    check_markdown(describe_cell(result, rows[0], [record]))
    check_markdown(describe_run(result, changed(record, run={"test": None, "error": HOSTILE}), True, None))
    check_csv(to_csv(rows))
    assert to_json("suite", rows, Rules()).isascii()


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1", "'=1"),
        ("+1 [x]", "'+1 [x]"),
        ("-1.5", "-1.5"),
        ("-x", "'-x"),
        ("@a", "'@a"),
        ("\t=1", "'=1"),
        ("a=1", "a=1"),
        (-1.5, -1.5),
        (None, None),
    ],
)
def test_a_cell_of_a_csv_file_is_no_formula(value, cell):
    assert csv_cell(value) == cell
