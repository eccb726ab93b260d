"""Takes the pictures of the results page for README.md and docs/: `python -m tools.docs.pictures`.

Needs Chromium and playwright.
"""

import os
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.page import write_page

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
CELL = "shipped:edge-transformer/cornell/gin"


def take(folder: Path = FOLDER, chromium: str = "/usr/bin/chromium") -> list[Path]:
    """Write page.png, differences.png and cell.png.

    Args:
        folder: Where to.
        chromium: Path of the browser.

    Returns:
        The files.
    """
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as started:
        # own runs of this checkout are left out: the pictures show what is shipped
        empty = Path(temporary) / "none"
        path = write_page(load_grid(), Path(temporary) / "index.html", results=empty, store=empty).path
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.goto(path.as_uri())
        page.locator("#overview-plot .point").first.wait_for()
        page.screenshot(path=folder / "page.png")
        page.evaluate("location.hash = 'differences'")
        page.locator("#forest .point").first.wait_for()
        page.evaluate("document.getElementById('differences').scrollIntoView()")
        page.screenshot(path=folder / "differences.png")
        page.evaluate(f"location.hash = 'cell={CELL}'")
        page.get_by_role("dialog").locator(".plot-container").first.wait_for()
        page.screenshot(path=folder / "cell.png")
        browser.close()
    return [folder / name for name in ("page.png", "differences.png", "cell.png")]


if __name__ == "__main__":
    for picture in take():
        print(f"written: {picture}")
