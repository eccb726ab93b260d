"""How long the page takes to write and to open, with many records.

    python benchmarks/page.py [--cells 1000] [--runs 10]

Opens it in Chromium (playwright, /usr/bin/chromium) and prints when it was ready: everything loaded, tables sorted,
nothing left to do but the plots that are drawn when they come near. The processor time of the page's main thread holds
on a busy machine too.

Prints: seconds to write, bytes, and seconds until the page was ready, by the clock and of the processor.
Takes: some minutes, of which the records that it makes up are most.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import yaml

from benchmarks.command import parser_of
from gt_bench.config.grid import Grid, load_grid
from gt_bench.leaderboard.collect import OWN, Gathered, Version, judged
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.reports.html.build import page_html
from tests.gt_bench.cells import changed, make_record, make_result


def made(cells: int, runs: int, root: Path) -> tuple[Grid, Gathered]:
    """A grid of `cells` cells below `root`, and records of all of them, each with 100 epochs."""
    names = [f"edge-transformer/set-{n // 50}/row-{n % 50}" for n in range(cells)]
    grid = {
        "datasets": list(dict.fromkeys(name.split("/")[1] for name in names)),
        "suites": ["edge-transformer"],
        "cells": {
            n.replace("/", "-"): {
                "cell": n,
                "dataset": n.split("/")[1],
                "model": n.split("/")[2],
                "settings": "recipes",
            }
            for n in names
        },
    }
    (root / "params.yaml").write_text(yaml.safe_dump(grid))
    rows, versions = [], {}
    for name in names:
        records = [make_record(name, seed, test=0.5 + 0.01 * seed, epochs=100) for seed in range(runs)]
        result = make_result(name, records, "GCN")
        published = (result.published or {}) | {"dataset": "cornell", "metric": "accuracy"}
        result = changed(result, published=published)
        rows += [replace(row, source=OWN) for row in judged(result, records)]
        versions[OWN, name] = Version.of(OWN, result, records)
    return load_grid(root / "params.yaml"), Gathered(with_claims(rows), [], versions, [])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grid, held = made(given.cells, given.runs, root)
        start = time.perf_counter()
        html = page_html(grid, held)
        print(
            f"{given.cells * given.runs:,} records: written in {time.perf_counter() - start:.1f} s, "
            f"{len(html.encode()) / 1e6:.1f} MB"
        )
        (root / "index.html").write_text(html)
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for _ in range(3):
                page = browser.new_page()
                session = page.context.new_cdp_session(page)
                session.send("Performance.enable", {"timeDomain": "threadTicks"})
                page.goto((root / "index.html").as_uri())
                page.wait_for_selector("html[data-ready=yes]", state="attached")
                interactive, loaded = page.evaluate(
                    "(({domInteractive, loadEventEnd}) => [domInteractive, "
                    "loadEventEnd])(performance.getEntriesByType('navigation')[0])"
                )
                first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
                metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
                print(
                    f"first paint {first:.0f} ms, tables and scripts {interactive:.0f} ms, loaded {loaded:.0f} ms; "
                    f"{metrics['TaskDuration']:.2f} s of the processor on its main thread"
                )
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
