"""The page: its content, escaped text, and that it works in a browser without any request."""

import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.suite import Suite, load_suite
from gt_bench.papers.published import everything
from gt_bench.papers.results_file import papers
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.page import write_page
from gt_bench.reports.html import content
from gt_bench.reports.html.build import HERE, page_html, safe_json
from gt_bench.reports.over_datasets import diagrams
from tests.gt_bench.cells import ENVIRONMENT, changed, make_record, make_result, write, write_grid

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">&amp;{{7*7}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two cells that were run, one of them with a recipe of hostile texts, and one that was not run."""
    root = tmp_path_factory.mktemp("page")
    cells = [f"edge-transformer/{name}" for name in ("cornell/gcn", "cornell/gin", "texas/edge-transformer")]
    runs = {cell: [make_record(cell, seed, test=0.56 + 0.01 * seed) for seed in range(3)] for cell in cells[:2]}
    results = [
        make_result(cell, records, "GCN" if cell.endswith("gcn") else "GIN(E)") for cell, records in runs.items()
    ]
    hostile = {"note": HOSTILE, "origin": {"note": HOSTILE, "optimizer": "printed: Table 9"}}
    results[0] = changed(results[0], recipe=results[0].recipe | hostile)
    results[1] = changed(results[1], reason=HOSTILE, status="unfinished")
    elsewhere = {"device": HOSTILE, "environment": ENVIRONMENT | {"platform": HOSTILE, HOSTILE: HOSTILE}}
    runs[cells[1]] = [changed(record, measured=elsewhere) for record in runs[cells[1]]]
    write(root, results, [r for records in runs.values() for r in records])
    write_grid(root, cells)
    return root


@pytest.fixture(scope="module")
def html(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        written = write_page(load_grid(), Path("reports/index.html"))
        assert written.own == ["cornell"]
        return written.path.read_text()
    finally:
        os.chdir(before)


def cells_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="cells">(.*?)</script>', html, re.S)[1])


@pytest.mark.slow
def test_every_published_number_is_on_the_page(html):
    shown = re.findall(r'<span class="theirs">(.*?)(?:<sup>.*?)?</span>', html)
    assert sorted(shown) == sorted(number.printed for number in everything())


def test_text_from_a_record_is_no_markup(html):
    assert "<script>document" not in html
    assert "<img" not in html
    assert html.count("<script>") == 3
    assert "{{7*7}}" in cells_of(html)["own:edge-transformer/cornell/gcn"]["recipe"][-1][1]
    assert safe_json({"a": HOSTILE}).count("<") == 0


def test_each_paper_with_ranks_has_a_diagram_of_its_methods(html):
    section = html[html.index('<section id="methods">') :].partition("</section>")[0]
    drawings = re.findall(r"<svg class=\"ranks\".*?</svg>", section, re.S)
    assert len(drawings) == len(diagrams(papers(), [])) == section.count('">critical difference ')
    assert "Polynormer-r 1.30</text>" in drawings[1]
    assert '<text class="own"' in drawings[1]
    assert "Without ranks" in section


def test_a_cell_has_its_recipe_with_origins_runs_digests_and_command(html):
    cells = cells_of(html)
    cell = cells["own:edge-transformer/cornell/gcn"]
    assert ["optimizer.lr", "0.0005", "printed: Table 9"] in cell["recipe"]
    assert [run[:3] for run in cell["runs"]] == [[seed, seed, "ok"] for seed in range(3)]
    assert cell["command"] == f"git checkout {ENVIRONMENT['commit']} && dvc repro train@edge-transformer-cornell-gcn"
    records = [make_record("edge-transformer/cornell/gcn", seed, test=0.56 + 0.01 * seed) for seed in range(3)]
    assert cell["digests"]["encodings"] == [record.run.digests.encodings for record in records]
    assert cell["curves"]["val"]["epoch"] == [2, 4, 6, 8, 10, 12]
    absent = cells["none:edge-transformer/texas/edge-transformer"]
    problem = "suites/edge-transformer/recipes/texas/edge-transformer.yaml: no such file"
    assert absent["command"] == "dvc repro train@edge-transformer-texas-edge-transformer"
    assert absent["remarks"] == ["not run", problem]
    assert f"<li>{problem}</li>" in html


def test_a_number_that_is_none_does_not_break_the_page():
    assert content.short(float("nan")) is None
    assert content.short(0.123456789) == 0.12346
    with pytest.raises(ValueError, match="JSON"):
        safe_json(float("nan"))


def test_the_scripts_are_those_that_are_named():
    table = (HERE / "vendor" / "README.md").read_text()
    for path in (HERE / "vendor").glob("*.js"):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {path.name} ")]
        assert hashlib.sha256(path.read_bytes()).hexdigest() in row
        assert f"{path.stat().st_size:,}" in row
        assert "</script" not in path.read_text().lower()


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The page of the installed records, written outside a checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        grid = load_grid()
        return page_html(grid, gather(grid))


def test_outside_a_checkout_papers_are_told_from_the_installed_records(shipped):
    assert "suite.yaml: summary" not in shipped
    last = " ".join(load_suite("hot").summary.split()[-4:])
    assert f"{last}</p>" in shipped


# in a browser


def until(page, expression: str) -> None:
    """Wait for the condition; the page's security policy forbids playwright's waiting, which evaluates text."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {expression}")


def press(node) -> None:
    """Click without the mouse: the mouse waits until nothing moves, and a busy machine may draw no frame for long."""
    assert node.is_visible()
    assert node.is_enabled()
    node.dispatch_event("click")


def choose(page, name: str, value: str) -> None:
    page.locator("#filters label", has_text=name).locator("select").select_option(value)


def through(page) -> None:
    """Scroll to the end, so that everything is drawn."""
    for id in ("differences", "cost", "curves", "scaling", "claims"):
        page.evaluate(f"document.getElementById('{id}').scrollIntoView()")
        page.wait_for_timeout(80)
    until(page, "document.querySelectorAll('#forest .plot-container, #forest p').length > 0")


def column(page, number: int) -> list[str]:
    return page.locator(f"#board tbody tr td:nth-child({number})").all_text_contents()


def test_the_page_draws_sorts_and_filters(look, shipped):
    page = look(shipped, viewport={"width": 1600, "height": 900})
    through(page)
    for points, least in (("#forest .point", 20), ("#cost-memory .point", 3), ("#curves-val .lines", 3)):
        assert page.locator(points).count() > least
    choose(page, "suite", "hot")
    assert set(column(page, 1)) == {"hot"}
    choose(page, "state", "not run")
    assert set(column(page, 10)) == {"not run"}
    press(page.get_by_role("button", name="clear filters"))
    assert set(column(page, 10)) - {"not run"}, "the first page of all"
    page.locator("#results input[type=search]").fill("wisconsin gin")
    assert set(column(page, 2)) == {"wisconsin"}
    page.locator("#results input[type=search]").fill("")
    choose(page, "dataset", "cornell")
    press(page.locator("#board th", has_text="ours").locator(".dt-column-order"))
    page.locator("#board th[aria-sort=ascending]", has_text="ours").wait_for()
    means = [float(text.split()[0]) for text in column(page, 5) if text != "–"]
    assert means == sorted(means)
    assert len(means) > 2


def test_the_page_opens_with_the_papers_and_one_plot(look, shipped):
    page = look(shipped, unfold=False, viewport={"width": 1400, "height": 900})
    until(page, "document.querySelectorAll('#overview-plot .point').length > 20")
    lines = page.locator("#overview tbody tr")
    assert lines.count() == 5
    for i in range(5):
        numbers = int(lines.nth(i).locator("td").first.text_content())
        counts = [int(re.search(r"\d+", text)[0]) for text in lines.nth(i).locator(".ours").all_text_contents()]
        assert sum(counts) == numbers
    for section in ("#papers .scroll", "#results .scroll", "#ppgt-table-1 .scroll"):
        node = page.locator(section).first
        node.evaluate("node => { const fold = node.closest('details'); while (fold && !fold.open) fold.open = true; }")
        clipped = node.evaluate("node => node.scrollWidth - node.clientWidth")
        assert clipped <= 0, f"{section} is {clipped} pixels too wide"
    heads = page.locator("nav a.sub").all_text_contents()
    assert heads == sorted(heads, key=str.casefold)
    assert {"Edge Transformer", "HOT", "Polynormer", "PPGT", "TokenGT"} <= set(heads)


def test_a_cell_opens_and_closes_by_keyboard_alone(look, shipped):
    page = look(shipped, viewport={"width": 1280, "height": 900})
    page.locator("#results input[type=search]").focus()
    page.keyboard.type("cornell gin")
    # the heads come first, then the rows
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.cell") is not None:
            break
    assert page.evaluate("document.activeElement.dataset.cell") == "shipped:edge-transformer/cornell/gin"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading", level=2).text_content() == "edge-transformer/cornell/gin"
    for text in ("dvc repro train@edge-transformer-cornell-gin", "digest of recipe", "Learning curves"):
        assert dialog.get_by_text(text).first.is_visible()
    assert "#cell=shipped%3Aedge-transformer%2Fcornell%2Fgin" in page.url
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.dataset.cell") == "shipped:edge-transformer/cornell/gin"


def test_hostile_texts_are_shown_as_they_are(look, html):
    page = look(html, viewport={"width": 1280, "height": 900})
    through(page)
    for name in ("gcn", "gin"):
        press(page.locator(f'#board [data-cell="own:edge-transformer/cornell/{name}"]'))
        assert page.get_by_role("dialog").get_by_text("</script><script>").count() > 0
        page.keyboard.press("Escape")
    assert page.title() == "Graph transformer benchmark"
    assert page.locator("img, main script").count() == 0


def test_a_phone_opens_with_the_answer_and_a_link_unfolds_its_section(look, shipped):
    page = look(shipped, unfold=False, viewport={"width": 375, "height": 800})
    assert page.evaluate("document.documentElement.scrollHeight") < 5000
    assert page.locator("#overview tbody tr").first.is_visible()
    assert not page.locator("#board").is_visible()
    press(page.locator("#overview a[href='#paper-hot']"))
    page.locator("#paper-hot table.printed").first.wait_for()
    press(page.locator("#paper-hot > summary"))
    press(page.locator("#overview a[href='#paper-hot']"))
    page.locator("#paper-hot table.printed").first.wait_for()


def test_own_results_are_drawn_and_absent_without_any(look, html, shipped):
    page = look(html, unfold=False, viewport={"width": 1400, "height": 900})
    page.locator("#own").scroll_into_view_if_needed()
    until(page, "document.querySelectorAll('#own-plot .point').length > 0")
    assert page.locator("#own-dataset option").all_text_contents() == ["cornell, accuracy"]
    assert 'id="own"' not in shipped


def test_a_phone_needs_no_sideways_scrolling(look, shipped):
    page = look(shipped, viewport={"width": 375, "height": 800}, is_mobile=True, device_scale_factor=2)
    through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    right = "[...document.querySelectorAll('.plot .main-svg')].map((n) => n.getBoundingClientRect().right)"
    assert page.evaluate(f"Math.max(...{right})") <= 375


def test_dark_mode_has_readable_plots_and_print_has_all_rows(look, shipped):
    page = look(shipped, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    through(page)
    light = page.evaluate("getComputedStyle(document.querySelector('#forest .ytick text')).fill")
    page.emulate_media(color_scheme="light")
    until(page, f"getComputedStyle(document.querySelector('#forest .ytick text')).fill !== '{light}'")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    rows = page.locator("#board tbody tr").count()
    assert rows > 300
    assert page.locator("details:not([open])").count() == 0


@pytest.mark.slow
def test_a_paper_is_told_in_short_from_shipped_records_and_a_broken_one_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    grid = load_grid()
    suite = Suite(title="ET", summary="First. It is {edge-transformer/cornell/gcn}. Last.")
    monkeypatch.setattr("gt_bench.reports.paper_summary.load_suite", lambda name: suite)
    held = gather(grid, root=tmp_path)
    assert "suite.yaml: summary: no number of" in page_html(grid, held)  # the text is not about local runs
    shipped = [dataclasses.replace(row, source="shipped") for row in held.rows]
    shown = page_html(grid, dataclasses.replace(held, others=shipped))
    assert "suite.yaml: summary" not in shown
    assert "First. It is 57.0 ± 0.8. Last.</p>" in shown
