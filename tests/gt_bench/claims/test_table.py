"""The table of claims: sentences of the papers, verdicts and what was run."""

import pytest

from gt_bench.claims.evaluate import evaluate_claim, needs_data
from gt_bench.claims.table import table_of
from gt_bench.utils.format import markdown_line
from tests.conftest import ROOT
from tests.gt_bench.claims.cases import ALL, runs_of


@pytest.mark.slow
def test_every_claim_that_needs_no_data_is_judged_and_the_page_is_theirs(shipped):
    page = (ROOT / "docs" / "claims.md").read_text().splitlines()
    verdicts = {}
    for claim in ALL.values():
        if needs_data(claim):
            # the page is generated on a machine with the data
            lines = [line for line in page if markdown_line(["", claim.text])[3:-2] in line]
            assert any("| undecided |" not in line for line in lines), claim.id
            continue
        verdicts[claim.id] = evaluate_claim(claim, shipped)
    without_data = [claim for claim in ALL.values() if claim.id in verdicts]
    lines = table_of(without_data, verdicts)[2:-2]
    assert [line for line in lines if line not in page] == []
    assert len([line for line in page if line.startswith("| ")]) == len(lines) + 2 + len(ALL) - len(without_data)


def test_a_claim_that_only_restates_tables_is_one_line_a_paper():
    claims = [ALL["et-outperforms-all-molecules"], ALL["et-among-best-on-zinc"], ALL["et-outperforms-all-nodes"]]
    verdicts = {claim.id: evaluate_claim(claim) for claim in claims}
    lines = table_of(claims, verdicts)
    assert len(lines) == 2 + 2 + 2
    assert "| Section 6, Table 1; Section 7 | 2 claims that restate the paper's own tables |" in lines[3]
    assert lines[-1].startswith("3 claims: 2 agrees in the paper, 1 fails ")
    # with any relevant run the verdict is a different one
    claim, some = runs_of(ALL["polynormer-relu-improves"], runs=1, std=0.0)
    (line,) = table_of([claim], {claim.id: evaluate_claim(claim, some)})[2:-2]
    assert "provisional, by 1 of 5 runs" in line
