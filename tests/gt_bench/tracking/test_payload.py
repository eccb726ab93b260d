"""The content of MLflow for a cell."""

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.tracking.payload import tracked_cell
from tests.gt_bench.cells import ET, make_result, records


def test_mlflow_shows_what_the_leaderboard_shows():
    runs = records()
    result = make_result(ET, runs)
    (row,) = with_claims(judged(result, runs))
    # while it trains
    assert not any(tag.startswith(("gt.verdict", "gt.claim")) for tag in tracked_cell(result, runs).tags)
    tags = tracked_cell(result, runs, row).tags
    assert (tags["gt.verdict"], tags["gt.claim"]) == ("reproduced", "not claimed")
    assert tags["gt.verdict.interval"] == "[{:.6g}, {:.6g}]".format(*row.interval)
    assert [float(tags[f"gt.verdict.{k}"]) for k in ("margin", "power")] == [row.verdict.margin, row.verdict.power]
    ((_, std),) = tracked_cell(result, runs, row).metrics["result/test_std"]
    assert std == pytest.approx(row.summary.std, rel=1e-5)
    assert "result/test_std" not in tracked_cell(result, runs[:1]).metrics  # one run has no deviation
