"""Published tables in the layout of the paper, with our values below, in every format."""

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.papers.table_layout import Column, find, layouts
from gt_bench.reports.html.build import table_html
from gt_bench.reports.html.content import table_content
from gt_bench.reports.paper_table import (
    TEX_NEEDS,
    kind_of,
    our_number,
    paper_table,
    run_part,
    sign_of,
    to_csv,
    to_markdown,
    to_terminal,
    to_tex,
)
from tests.gt_bench.cells import changed, make_record, make_result, without_data

CORNELL, TEXAS = (Column(name, "accuracy", "test") for name in ("cornell", "texas"))


def rows_for(cell: str, values, method="GCN", **changes):
    records = [make_record(cell, seed, test=value) for seed, value in enumerate(values)]
    return with_claims(judged(make_result(cell, records, method, **changes), records))


@pytest.fixture
def table():
    """Table 3 of the Edge Transformer: two recipes of GCN on cornell, no data for one on texas, few seeds of ET."""
    rows = rows_for("edge-transformer/cornell/gcn", [0.55, 0.56, 0.57] * 4)
    rows += rows_for("edge-transformer/cornell/gcn-as-released", [0.80, 0.81, 0.82] * 4)
    rows += rows_for("edge-transformer/cornell/edge-transformer", [0.64, 0.66], "ET", reduced=("2 of 10 seeds",))
    rows += judged(without_data("edge-transformer/texas/gcn"), [])
    return paper_table(find("edge-transformer", "Table 3"), rows)


def test_a_line_for_the_published_value_and_one_for_each_recipe(table):
    lines = [(line.method, line.recipe) for line in table.lines]
    assert lines[:4] == [("GCN", None), ("GCN", "gcn"), ("GCN", "gcn-as-released"), ("GIN(E)", None)]
    assert table.run == 2  # GCN and ET on cornell; texas has no data
    theirs, ours, released = table.lines[:3]
    assert theirs.printed[CORNELL].printed == "56.2 ± 2.6"
    assert our_number(ours.rows[CORNELL], theirs.printed[CORNELL]) == "56.0 ± 0.8"
    assert our_number(ours.rows[TEXAS], theirs.printed[TEXAS]) == "not run: data"
    assert (kind_of(released.rows[CORNELL]).word, sign_of(released.rows[CORNELL])) == ("better", "▲")
    (et,) = [line for line in table.lines if line.recipe == "edge-transformer"]
    assert sign_of(et.rows[CORNELL]).endswith("…")


def test_a_recipe_of_another_suite_is_named():
    rows = rows_for("ppgt/cornell/gcn", [0.5, 0.6])
    assert "gcn (ppgt)" in [line.recipe for line in paper_table(find("edge-transformer", "3"), rows).lines]


def test_a_row_whose_epoch_was_chosen_on_test_is_flagged_in_every_form():
    cell = "edge-transformer/cornell/gcn-as-released"
    runs = [make_record(cell, seed, test=value) for seed, value in enumerate([0.8, 0.9])]
    result = changed(make_result(cell, runs, "GCN"), recipe={"select": "test"})
    rows = rows_for("edge-transformer/cornell/gcn", [0.55, 0.56]) + judged(result, runs)
    table = paper_table(find("edge-transformer", "3"), rows)
    assert [line.recipe for line in table.lines][1:3] == ["gcn", "gcn-as-released (!)"]
    said = "(!) the epoch was chosen on the test split"
    assert to_markdown(table).count(said) == to_markdown(table, signs=False).count(said) == 1
    assert table_content(table)["remarks"][0].startswith(said)


def test_flags_are_reported_once(table):
    text = to_markdown(table)
    assert all(text.count(note) == 1 for note in table.notes)
    assert "56.2 ± 2.6 [a" in text


def test_the_part_that_was_run(table):
    part = run_part(table)
    assert (part.layout.methods, part.layout.columns) == (("GCN", "ET"), (CORNELL,))
    assert run_part(paper_table(table.layout, [])) is None


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_narrow_terminal_gets_whole_words(width):
    from rich.console import Console

    console = Console(width=width, record=True, file=io.StringIO())
    blocks = to_terminal(paper_table(find("hot", "3"), []), width)
    for block in blocks:
        console.print(block)
    shown = console.export_text()
    assert all(len(line) <= width for line in shown.splitlines())
    assert "…" not in shown
    assert shown.count("adjusted-rand-index") == 3
    assert len(blocks) > 1


def test_csv_has_every_published_number_and_every_run(table):
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(lines) == 18 + 1
    assert [line["mean"] for line in lines if line["cell"] == "edge-transformer/cornell/gcn"] == ["0.56"]
    assert {line["printed"] for line in lines} == {number.printed for number in table.layout.printed.values()}


def balanced(tex: str) -> None:
    """Lines of a tabular have all columns, braces and environments close, and characters need no further package."""
    bare = re.sub(r"\\[\\{}%&$#_]", "", tex)
    assert bare.count("{") == bare.count("}")
    assert re.findall(r"\\begin\{(\w+)\}", tex) == re.findall(r"\\end\{(\w+)\}", tex)[::-1]
    columns = len(re.search(r"\\begin\{tabular\}\{(\w+)\}", tex)[1])
    body = tex.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    for line in body.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == columns - 1, line
    assert len(re.findall(r"(?<!\\)\$", tex)) % 2 == 0


@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: layout.name)
def test_latex_is_sound(layout):
    balanced(to_tex(paper_table(layout, [])))


def test_latex_compiles(table, tmp_path):
    compiler = shutil.which("pdflatex")
    if compiler is None:
        pytest.skip("pdflatex is not installed")
    body = "\n".join(to_tex(t) for t in (table, *(paper_table(layout, []) for layout in layouts())))
    packages = r"\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}" + TEX_NEEDS.partition(": ")[2]
    body = body.replace(r"\centering", "")
    document = rf"\documentclass{{article}}{packages}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "t.tex").write_text(f"{document}\n")
    done = subprocess.run(
        [compiler, "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_names_are_escaped_in_every_form():
    layout = find("edge-transformer", "3")
    hostile = r"a|b_{c} & <script>\x $1 % #"
    number = replace(layout.printed["GCN", CORNELL], method=hostile, printed="1 | 2 & 3", flags=("<b>|*_",))
    layout = replace(layout, methods=(hostile,), columns=(CORNELL,), printed={(hostile, CORNELL): number})
    table = paper_table(layout, [])
    balanced(to_tex(table))
    line = next(line for line in to_markdown(table).splitlines() if "script" in line)
    assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert r"\<script\>" in line
    html = table_html(table)
    assert "<script>" not in html
    assert "a|b_{c} &amp; &lt;script&gt;" in html


def test_html_has_ours_in_the_cell_of_the_published_value(table):
    cells = re.findall(r"<td.*?</td>", table_html(table), re.S)
    assert len(cells) == 18
    (cornell,) = [cell for cell in cells if "56.2 ± 2.6" in cell]
    assert [text in cornell for text in ("56.0 ± 0.8 ≈", "81.0 ± 0.8 ▲", "gcn-as-released: better")] == [True] * 3


def test_the_page_gets_each_number_next_to_its_place(table):
    content = table_content(table)
    assert content["count"].startswith(f"{table.run} of {len(table.layout.printed)} numbers")
    assert [line["method"] for line in content["lines"]] == list(table.layout.methods)
    assert all(len(line["cells"]) == len(content["heads"]) == len(table.layout.columns) for line in content["lines"])
    cornell, texas = (table.layout.columns.index(column) for column in (CORNELL, TEXAS))
    gcn = content["lines"][0]["cells"]
    printed = table.layout.printed["GCN", CORNELL]
    assert (gcn[cornell]["printed"], gcn[cornell]["order"]) == (printed.printed, printed.mean)
    names = [one["cell"].rpartition("/")[2] for one in gcn[cornell]["ours"]]
    assert names == ["gcn", "gcn-as-released"]
    assert [one["kind"] for one in gcn[texas]["ours"]] == ["none"]  # without data there is no number
