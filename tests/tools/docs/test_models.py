"""docs/models.md agrees with the registry, the grid and the measurements."""

import json

import pytest

from gt_models import list_models, model_info
from tests.conftest import ROOT
from tools.docs.models import draw, page, read_measured


@pytest.fixture(scope="module")
def text() -> str:
    return page(read_measured())


@pytest.mark.slow
def test_the_page_is_up_to_date(text):
    assert (ROOT / "docs/models.md").read_text() == text, "run: python -m tools.docs.models"


def test_every_model_has_a_line_and_a_paper(text):
    for name in list_models():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert model_info(name).cost in line
        assert model_info(name).expressivity in line
        assert f"- {name}: {model_info(name).paper}" in text


def test_tables_are_those_of_the_recipes(text):
    (line,) = [line for line in text.splitlines() if line.startswith("| `edge-transformer-released` |")]
    assert "edge-transformer 1, 2, 3" in line


@pytest.mark.slow
def test_growth_is_that_of_the_measurements(tmp_path):
    measured = json.loads((ROOT / "docs/models.json").read_text())
    draw(tmp_path / "a.svg", measured)
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.startswith("<?xml")
    # a step of triangular attention grows faster than one of message passing
    slope = {
        name: points[-1][1] / points[0][1] / (points[-1][0] / points[0][0])
        for name, points in measured["growth"].items()
    }
    assert slope["edge-transformer"] > 4 * slope["gcn"]
