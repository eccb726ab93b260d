"""The figure of docs/verdicts.md equals the output of its script."""

from pathlib import Path

import matplotlib as mpl
import pytest

from docs.verdicts_figure import draw

PICTURE = Path(__file__).parents[3] / "docs" / "verdicts.svg"


def test_the_picture_is_drawn_from_verdicts(tmp_path):
    draw(tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    for word in ("<!-- reproduced -->", "<!-- consistent, 3 of 10 runs -->", "<!-- worse -->"):
        assert word in drawn
        assert word in PICTURE.read_text()
    if f"matplotlib v{mpl.__version__}" not in PICTURE.read_text().lower():
        pytest.skip("drawn by another version of matplotlib")
    assert drawn == PICTURE.read_text(), "run: python -m docs.verdicts_figure"
