"""Custom plots: what they get, what they may return, and that a failing one loses nothing of the page."""

import json
import re
import sys
from pathlib import Path

import pytest

from gt_bench import load_results
from gt_bench.config.grid import load_grid
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.page import write_page
from gt_bench.reports.html import custom_plots
from gt_bench.reports.html.build import page_html
from tests.conftest import ROOT
from tests.gt_bench.shipping import run
from tests.pages import blocks

BAR = """
def plot_mean(results):
    \"\"\"Means

    All of them, <b>as text</b>.
    \"\"\"
    return {"data": [{"type": "bar", "x": list(results["cell"]), "y": list(results["mean"])}], "layout": {}}
"""


@pytest.fixture
def plots(trained) -> Path:
    folder = Path("plots")
    folder.mkdir()
    return folder


def drawn(html: str) -> list:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])["custom"]


def section(html: str) -> str:
    return html.partition('<section id="custom">')[2].partition("</section>")[0]


@pytest.mark.slow
def test_a_plot_gets_all_results_and_is_on_the_page(plots):
    (plots / "mean.py").write_text(BAR)
    (plots / "_helper.py").write_text("1 / 0")
    assert run("page").exit_code == 0
    html = Path("reports/index.html").read_text()
    (figure,) = drawn(html)
    results = load_results()
    assert figure["data"][0]["x"] == results["cell"].tolist() == ["small/web/mlp"]
    assert figure["data"][0]["y"] == results["mean"].tolist()
    assert "<h3>Means</h3>" in section(html)
    assert "All of them, &lt;b&gt;as text&lt;/b&gt;." in section(html)
    assert "plots/mean.py:plot_mean" in section(html)
    assert '<a href="#custom">' in html


PLOT = "def plot(results):\n"
BOX = f"{PLOT}    return {{'data': [{{'type': 'box', 'y': [1, 2]}}], 'layout': {{'title': {{'text': 'A box'}}}}}}\n"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (f"{PLOT}    x = 1\n    return results['nope']\n", "plots/bad.py:plot, line 3: KeyError: 'nope'"),
        (f"{PLOT}    raise SystemExit(3)\n", "plots/bad.py:plot, line 2: SystemExit: 3"),
        ("import nowhere\n", "plots/bad.py: line 1: expected a file that Python can import"),
        ("def plot(results:\n", "plots/bad.py: line 1: expected a file that Python can import; it raises SyntaxError"),
        ("def draw(results):\n    pass\n", "plots/bad.py: has no function whose name begins with 'plot'"),
        (f"{PLOT}    return 7\n", "plots/bad.py:plot: returns int; expected a figure of plotly"),
        ("def plot():\n    return 7\n", "TypeError: plot() takes 0 positional arguments but 1 was given"),
        (f"{PLOT}    return {{'data': [{{'y': [float('nan')]}}]}}\n", "ValueError: Out of range float values"),
        (f"{PLOT}    return {{'data': [{{'y': ['x' * 5_000_000]}}]}}\n", "the most is 4,000,000"),
    ],
)
def test_faults_of_a_plot_are_reported_with_its_place(plots, code, says):
    (plots / "bad.py").write_text(code)
    (plots / "good.py").write_text(BAR)
    bad, good = custom_plots.load(gather(load_grid()).rows)
    assert says in bad.error
    assert (bad.figure, bad.image, good.error) == (None, None, None)


@pytest.mark.slow
def test_a_plot_that_fails_is_shown_with_its_error_and_the_page_has_the_rest(plots):
    (plots / "bad.py").write_text("def plot(results):\n    return results['<nope>']\n")
    (plots / "good.py").write_text(BAR)
    shown = run("page")
    assert shown.exit_code == 1
    assert shown.stderr == "custom plot plots/bad.py:plot, line 2: KeyError: '<nope>'\n"
    html = Path("reports/index.html").read_text()
    assert [figure is None for figure in drawn(html)] == [True, False]
    assert "This plot failed: plots/bad.py:plot, line 2: KeyError: &#39;&lt;nope&gt;&#39;" in section(html)
    assert "<h3>Means</h3>" in section(html)
    assert '<table id="board">' in html


@pytest.mark.slow
def test_a_plot_cannot_change_the_results_of_the_next(plots):
    (plots / "a.py").write_text("def plot(results):\n    results['mean'] = 0\n    return {'data': [], 'layout': {}}\n")
    (plots / "b.py").write_text(BAR)
    _, figure = drawn(write_page(load_grid()).path.read_text())
    assert figure["data"][0]["y"] == load_results()["mean"].tolist()


@pytest.mark.slow
def test_a_figure_of_matplotlib_is_an_image(plots, monkeypatch):
    code = "    figure, axes = pyplot.subplots()\n    axes.plot([1, 2])\n    return figure\n"
    (plots / "m.py").write_text(f"from matplotlib import pyplot\n{PLOT}{code}")
    first = write_page(load_grid()).path.read_text()
    assert '<img src="data:image/svg+xml;base64,' in section(first)
    assert section(write_page(load_grid()).path.read_text()) == section(first)
    monkeypatch.setattr(custom_plots, "MOST_SVG", 10)
    assert '<img src="data:image/png;base64,' in section(write_page(load_grid()).path.read_text())


@pytest.mark.slow
def test_other_types_of_traces_bring_the_complete_plotly(plots, monkeypatch):
    (plots / "box.py").write_text(BOX)
    html = write_page(load_grid()).path.read_text()
    assert len(html) > 4_000_000
    assert html.count("<script>") == 3
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    shown = run("page")
    assert shown.exit_code == 1
    assert "needs plotly, which is not installed" in shown.stderr
    assert len(Path("reports/index.html").read_text()) < 4_000_000


def test_entry_points_of_packages(trained, tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "acmeplots-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acmeplots.py").write_text(BAR + "\nnumber = 7\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acmeplots\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gt_bench.plots]\nmeans = acmeplots:plot_mean\nmissing = acmeplots:nothing\nnumber = acmeplots:number\n"
    )
    monkeypatch.syspath_prepend(str(site))
    good, missing, number = custom_plots.load(gather(load_grid()).rows)
    assert (good.name, good.title, good.error) == ("means (acmeplots:plot_mean)", "Means", None)
    assert "'acmeplots:nothing' of acmeplots (group gt_bench.plots): does not load" in missing.error
    assert "is a int; expected a function" in number.error


@pytest.mark.slow
def test_the_example_of_the_docs(plots):
    (code, *_) = [block for kind, block in blocks((ROOT / "docs/custom_plots.md").read_text()) if kind == "python"]
    (plots / "cost.py").write_text(code)
    html = write_page(load_grid()).path.read_text()
    (figure,) = drawn(html)
    assert [trace["name"] for trace in figure["data"]] == ["mlp"]
    assert "<h3>Score by number of parameters</h3>" in section(html)


@pytest.mark.slow
def test_plots_are_drawn_in_a_browser_without_any_request(plots, look):
    (plots / "bar.py").write_text(BAR)
    (plots / "box.py").write_text(BOX)
    grid = load_grid()
    custom = custom_plots.load(gather(load_grid()).rows)
    page = look(page_html(grid, gather(grid), custom=custom), viewport={"width": 1200, "height": 900})
    page.evaluate("document.getElementById('custom').scrollIntoView()")
    page.wait_for_selector("#custom-0 .plot-container .bars")
    page.wait_for_selector("#custom-1 .plot-container .boxlayer path")
    assert "A box" in page.locator("#custom-1").text_content()
