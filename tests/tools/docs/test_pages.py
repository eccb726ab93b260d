"""Generated pages are those of the current code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.docs import cli, datasets, deviations, models, readme, search

DOCS = ROOT / "docs"
PAGES: dict[str, tuple[Path, Callable[[str], str]]] = {
    "cli": (cli.PATH, lambda text: cli.page()),
    "deviations": (DOCS / "deviations.md", lambda text: deviations.page()),
    "models": (DOCS / "models.md", lambda text: models.page(models.read_measured())),
    "readme": (ROOT / "README.md", lambda text: readme.with_results(text, (DOCS / "results.md").read_text())),
    "search": (search.PAGE, search.page),
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", PAGES)
def test_a_generated_page_is_up_to_date(tool):
    path, page = PAGES[tool]
    text = path.read_text()
    assert page(text) == text, f"run: python -m tools.docs.{tool}"


def test_flaws_of_the_catalog_are_on_the_page_of_datasets():
    assert set(datasets.flaws().splitlines()) <= set(datasets.PAGE.read_text().splitlines())
