"""The leaderboard of a suite as files."""

import csv
import io
import json

from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.export import rows_in, tally, to_csv, to_json, to_markdown
from gt_bench.leaderboard.rows import absent, rows_of, summarise
from gt_bench.leaderboard.verdicts import with_claims, with_verdict
from tests.gt_bench.cells import ET, make_result, records, without_data


def test_two_hundred_cells_of_which_most_have_nothing():
    runs = records()
    filled = with_verdict(summarise(make_result(ET, runs), runs), make_result(ET, runs))
    rows = with_claims([filled, *(absent(f"edge-transformer/cornell/m{n}", "not run", None) for n in range(200))])
    assert len(rows) == 201
    assert all(row["q_difference"] is None and row["claim"] is None for row in rows[1:])
    assert tally(rows[1:], Rules()).startswith("0 verdicts on 0 published numbers (none). ")
    assert len(to_markdown("edge-transformer", rows, Rules()).splitlines()) > 200


def test_files_of_rows(tmp_path):
    runs = records(failed=("oom",))
    result = make_result(ET, runs, reduced=("a | b",))
    rows = [with_verdict(summarise(result, runs), result), summarise(without_data(ET.replace("cornell", "texas")), [])]
    rows[1]["verdict"] = "none: no result"
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert content["std"] == "population (ddof 0) over runs"
    assert content["rows"][0]["mean"] == rows[0]["mean"]
    (first, second) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert float(first["mean"]) == rows[0]["mean"]
    assert (second["status"], second["mean"]) == ("not run: data", "")
    text = to_markdown("edge-transformer", rows, Rules())
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert "oom: set by the test" in text
    path = tmp_path / "edge-transformer.json"
    path.write_text(to_json("edge-transformer", rows, Rules()))
    assert rows_in(path)[0]["state"] == rows[0]["state"]
    assert text == to_markdown("edge-transformer", rows_in(path), Rules())


def test_csv_and_json_carry_both_verdicts_and_what_is_behind_them():
    runs = records()
    rows = with_claims(rows_of(make_result(ET, runs), runs))
    carried = {
        "verdict",
        "interval_low",
        "interval_high",
        "margin",
        "power",
        "seeds_needed",
        "claim",
        "claim_low",
        "claim_high",
        "claim_more_seeds",
    }
    (read,) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert carried <= read.keys()
    assert float(read["margin"]) == rows[0]["margin"]
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert carried <= content["rows"][0].keys()
    assert content["verdict"] == {"level": 0.05, "power": 0.8, "unstated_runs": [4, 10]}
    assert "in at most 0.05 of them; 0 have it" in content["tally"]
