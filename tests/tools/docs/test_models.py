"""docs/models.md agrees with the registry, the grid and the measurements."""

import json

import pytest

from tests.conftest import ROOT
from tools.docs.models import draw


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
