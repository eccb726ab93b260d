"""The MLflow user interface: its real server, started as by `make ui`, in a real browser at the printed address."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.store.attempts import remember
from gt_bench.store.run_store import Store
from gt_bench.tracking.saved_views import ATTEMPTS, LEADERBOARD
from gt_bench.tracking.sync import complete
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT
from tests.gt_bench.cells import make_record, make_result, without_data, write
from tests.gt_bench.postgres import free_port
from tests.gt_bench.tracking.conftest import ET, GCN

pytestmark = pytest.mark.slow

PATIENCE = 120_000  # milliseconds, also on a busy machine
OF_MLFLOW = "duration"  # a column that MLflow adds to every view
NO_ACCOUNTS = "/ajax-api/2.0/mlflow/users/current"  # which MLflow requests from a server that has none: 404


@pytest.fixture
def served(browser, store, tmp_path) -> Iterator[str]:
    """The printed address of a suite: two cells with runs, one with an earlier attempt, and one without data."""
    uri, kept, held, results = store("shown"), Store(tmp_path / "store"), {}, []
    for cell, tests, method in ((GCN, (0.52, 0.57), "GCN"), (ET, (0.65,), "ET")):
        for test in tests:
            records = [make_record(cell, seed, test=test + 0.01 * seed) for seed in range(3)]
            result = make_result(cell, records, method)
            write(tmp_path, [result], records)
            remember(result, kept)
            held |= {record.digest: record for record in records}
        results.append(result)
    results.append(without_data("edge-transformer/texas/gcn"))
    rows = [row for result in results for row in judged(result, [held[digest] for digest in result.runs])]
    complete("edge-transformer", results, held, rows=with_claims(rows), store=kept)
    port = free_port()
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "gt_bench.tracking.ui", "--port", str(port)],
        cwd=tmp_path, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=log, env=os.environ | {"MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            assert server.stdout is not None
            said = [server.stdout.readline() for _ in range(2)]
            deadline = time.monotonic() + 300
            while not healthy(port):
                assert server.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)
            yield said[1].split()[-1]
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def healthy(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return answer.status == 200
    return False


def shown(page, columns: Sequence[str], one: str) -> list[str]:
    """Return the texts of column `one` from top to bottom, once the page shows these columns and rows."""
    left_to_right = (
        "(all) => all.map((n) => [n.getBoundingClientRect().left, n.getAttribute('col-id')]).sort((a, b) => a[0] - "
        "b[0])"
    )
    top_to_bottom = (
        "(all) => all.map((n) => [n.getBoundingClientRect().top, n.textContent]).sort((a, b) => a[0] - b[0])"
    )
    for _ in range(PATIENCE // 100):
        found = page.locator(".ag-header-container .ag-header-cell").evaluate_all(left_to_right)
        names = [name.replace("`", "") for _, name in found if name != OF_MLFLOW]
        rows = page.locator(f'.ag-cell[col-id="{one}"]').evaluate_all(top_to_bottom)
        if names == list(columns) and rows:
            return [text for _, text in rows]
        page.wait_for_timeout(100)
    pytest.fail(f"the columns are {names}, and there are {len(rows)} rows")


def test_the_printed_address_shows_the_leaderboard_every_attempt_and_a_run(browser, served):
    # columns outside are not in the page
    place, wrong = browser.new_context(viewport={"width": 2600, "height": 900}), []

    def watch(page):
        page.on(
            "console",
            lambda said: (
                wrong.append(said.text) if said.type == "error" and NO_ACCOUNTS not in said.location["url"] else None
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: (
                wrong.append(request.url) if not re.match(r"http://127\.|data:|blob:", request.url) else None
            ),
        )

    place.on("page", watch)
    place.set_default_timeout(PATIENCE)
    page = place.new_page()
    page.goto(served)
    assert shown(page, LEADERBOARD, "tags.`gt.dataset`") == ["cornell", "cornell", "texas"]
    assert sorted(shown(page, LEADERBOARD, "tags.`gt.model`")) == ["edge-transformer", "gcn", "gcn"]
    assert page.get_by_text("3 matching runs").count() == 1, "a superseded attempt is shown among the current ones"
    assert sorted(shown(page, LEADERBOARD, "tags.`gt.verdict`")) == ["no result", "reproduced", "reproduced"]
    with place.expect_page() as opened:
        page.get_by_role("link", name="all attempts, also superseded ones").click()
    assert shown(opened.value, ATTEMPTS, "tags.`gt.cell`") == [ET, GCN, GCN, "edge-transformer/texas/gcn"], (
        "attempts at a cell are adjacent"
    )
    assert sorted(shown(opened.value, ATTEMPTS, "tags.`gt.current`")) == ["false", "true", "true", "true"]
    page.get_by_role("link", name="cornell gcn").click()
    page.get_by_text("Reproduce:").wait_for()
    body = page.locator("body").text_content()
    for text in (
        "58.00 ± 0.82 accuracy",
        "56.20 ± 2.60",
        f"python -m stages.train {GCN}",
        f"Recipe: {recipe_file(GCN)}",
    ):
        assert text in body
    place.close()
    assert wrong == []


def test_a_server_that_is_down_is_reported_soon(tmp_path):
    uri = f"http://somebody:secret@127.0.0.1:{free_port()}"
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "gt_bench.tracking.ui"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: MLflow at http://127.0.0.1:")
    assert "secret" not in done.stderr
