"""What MLflow is given of a cell."""

from stages.report.judged import with_claims
from stages.report.rows import rows_of
from tests.stages.cells import ET, make_result, records


def test_mlflow_shows_what_the_leaderboard_shows(monkeypatch):
    from stages.mlflow import tracking
    from stages.mlflow.content import tracked_cell

    runs = records()
    result = make_result(ET, runs)
    (row,) = with_claims(rows_of(result, runs))
    assert not any(tag.startswith(("gt.verdict", "gt.claim")) for tag in tracked_cell(result, runs).tags)  # while it trains
    tags = tracked_cell(result, runs, row).tags
    assert (tags["gt.verdict"], tags["gt.claim"]) == ("reproduced", "not claimed")
    assert tags["gt.verdict.interval"] == f"[{row['interval_low']:.6g}, {row['interval_high']:.6g}]"
    assert [float(tags[f"gt.verdict.{k}"]) for k in ("margin", "power")] == [row["margin"], row["power"]]
    put = []

    class Store:
        def __init__(self, *_):
            pass

        def put_cell(self, *arguments):
            put.append(arguments)

        def drop_other_cells(self, _):
            pass

        def put_views(self):
            pass

    monkeypatch.setattr(tracking, "Mirror", Store)
    other = make_result(ET.replace("cornell", "texas"), [])
    tracking.complete(
        "edge-transformer", [result, other], {r["digest"]: r for r in runs}, rows=[row, row | {"verdict": "a further number"}]
    )
    assert [arguments[2] for arguments in put] == [row, None]
