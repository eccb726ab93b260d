"""The leaderboard of a suite as files."""

import csv
import io
import json

from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.export import COLUMNS, tally, to_columns, to_csv, to_json, to_markdown
from gt_bench.leaderboard.references import References
from gt_bench.leaderboard.rows import absent
from gt_bench.leaderboard.verdicts import with_claims
from tests.gt_bench.cells import ET, make_result, records, without_data


def test_two_hundred_cells_of_which_most_have_nothing():
    runs = records()
    filled = judged(make_result(ET, runs), runs)[0]
    rows = with_claims(
        [filled, *(absent(f"edge-transformer/cornell/m{n}", "not run", None, References()) for n in range(200))]
    )
    assert len(rows) == 201
    assert all(row.verdict.q_difference is None and row.claim is None for row in rows[1:])
    assert tally(rows[1:], Rules()).startswith("0 verdicts on 0 published numbers (none). ")
    assert len(to_markdown("edge-transformer", rows, Rules()).splitlines()) > 200


def test_files_of_rows():
    runs = records(failed=("oom",))
    result = make_result(ET, runs, reduced=("a | b",))
    rows = [judged(result, runs)[0], *judged(without_data(ET.replace("cornell", "texas")), [])]
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert content["std"] == "population (ddof 0) over runs"
    assert content["rows"][0]["mean"] == rows[0].summary.mean
    (first, second) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert float(first["mean"]) == rows[0].summary.mean
    assert (second["status"], second["mean"]) == ("not run: data", "")
    text = to_markdown("edge-transformer", rows, Rules())
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert "oom: set by the test" in text


def test_csv_and_json_carry_both_verdicts_and_what_is_behind_them():
    runs = records()
    rows = with_claims(judged(make_result(ET, runs), runs))
    assert [*to_columns(rows[0])] == [*COLUMNS, "state"]
    carried = {"verdict", "interval_low", "interval_high", "margin", "power", "seeds_needed"}
    carried |= {"claim", "claim_low", "claim_high", "claim_more_seeds"}
    (read,) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert carried <= read.keys()
    assert float(read["margin"]) == rows[0].verdict.margin
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert carried <= content["rows"][0].keys()
    assert content["verdict"] == {"level": 0.05, "power": 0.8, "unstated_runs": [4, 10]}
    assert "in at most 0.05 of them; 0 have it" in content["tally"]
