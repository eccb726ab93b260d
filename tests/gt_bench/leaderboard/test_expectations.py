"""Theoretical limits of a row: the four kinds, tested with scipy's interval, and the page."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from gt_bench.data.registry import get_spec
from gt_bench.leaderboard import expectations as room
from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.columns import SHOWN, cells, table_lines
from gt_bench.leaderboard.expectations import THEORY, Expectation, agreement, page, theory
from gt_bench.leaderboard.export import tally
from gt_bench.leaderboard.references import references_of
from gt_bench.leaderboard.rows import absent
from gt_bench.leaderboard.words import remarks_of
from tests.conftest import ROOT
from tests.gt_bench.cells import changed, make_record, make_result
from tests.refusals import refused


def rows(values, cell="embedded/chains/gcn", reduced=()):
    runs = [make_record(cell, seed, test=value) for seed, value in enumerate(values)]
    return judged(make_result(cell, runs, None, reduced=reduced), runs)


@pytest.mark.parametrize(
    ("given", "values", "says"),
    [
        ({"at_most": 0.5}, [0.5, 0.5, 0.5], "as expected"),
        ({"at_most": 0.5}, [0.4, 0.5, 0.6], "undecided"),
        ({"at_most": 0.5}, [0.9, 0.91, 0.9], "not as expected"),
        ({"above": 0.5}, [0.9, 0.91, 0.9], "as expected"),
        ({"above": 0.5}, [0.505, 0.505, 0.505], "not as expected"),  # above, but by less than the margin
        ({"at_least": 0.5}, [0.5, 0.5, 0.5], "as expected"),
        ({"at_least": 0.5}, [0.1, 0.11, 0.1], "not as expected"),
        ({"below": 0.5}, [0.1, 0.11, 0.1], "as expected"),
        ({"below": 0.5}, [0.495, 0.495, 0.495], "not as expected"),
        ({"below": 0.5}, [0.3, 0.5, 0.7], "undecided"),
        ({"above": 0.5}, [0.9], "undecided"),  # one run has no interval
    ],
)
def test_the_interval_decides_whether_a_value_is_as_expected(given, values, says):
    assert agreement(Expectation(**given, margin=0.01, because="."), values, Rules()) == says


def test_the_line_is_where_the_95_percent_interval_ends():
    values = [0.61, 0.66, 0.64, 0.63]
    low, _ = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    below, beyond = (Expectation(above=low + step - 0.02, margin=0.02, because=".") for step in (-1e-9, 1e-9))
    assert [agreement(e, values, Rules()) for e in (below, beyond)] == ["as expected", "undecided"]
    assert agreement(beyond, values, Rules(level=0.2, power=0.7)) == "as expected"


def test_runs_of_modified_code_or_cut_in_more_than_seeds_are_not_judged():
    cell = "embedded/chains/gcn"
    for cut, agrees in ("2 of 3 seeds", "as expected"), ("2 of 30 epochs", None):
        assert rows([0.5, 0.5], reduced=[cut])[0].outlook.agreement == agrees
    assert absent(cell, "not run", None, references_of(cell)).outlook.agreement is None
    runs = [make_record(cell, seed, test=0.5) for seed in range(2)]
    runs[0] = changed(runs[0], run={"digests": runs[0].run.digests.to_disk() | {"modified": "d" * 64}})
    assert judged(make_result(cell, runs, None), runs)[0].outlook.agreement is None


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"at_most": 0.5, "above": 0.4, "margin": 0.1}, ""),
        ({"margin": 0.1}, ""),
        ({"at_most": 0.5}, ".margin"),
        ({"atmost": 0.5, "margin": 0.1}, ".atmost"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, monkeypatch, given, place):
    monkeypatch.chdir(tmp_path)
    path = Path("suites/s", THEORY)
    path.parent.mkdir(parents=True)
    dataset = {"tests": ".", "chance": 0.5, "guess": ".", "rows": {"r": given | {"because": "."}}}
    path.write_text(yaml.safe_dump({"datasets": {"d": dataset}}))
    with refused(RecipeError, file=str(path), place=f"datasets.d.rows.r{place}"):
        theory("s")


def test_rows_of_which_theory_states_something_show_it_and_not_what_nobody_printed():
    cells_ = ("embedded/chains/gcn", "embedded/chains/mine", "hot/chains/gcn")
    mine, other, foreign = (rows([0.5, 0.5], cell)[0] for cell in cells_)
    limit = mine.outlook.limit
    assert (limit.words, limit.limit, mine.outlook.agreement) == ("at most", 0.5125, "as expected")
    # a row of a user on this dataset
    assert (other.outlook.chance, other.outlook.limit, other.outlook.agreement) == (0.5, None, None)
    assert foreign.outlook is None
    text = "\n".join(table_lines([mine, other]))
    for part in ("| at most 51.25 | as expected |", "chains / gcn: at most 51.25", f"chains: {mine.outlook.tests}"):
        assert part in text
    assert "published" not in text.splitlines()[0]
    assert tally([mine, other], Rules()) == "1 rows for which theory predicts the result: 1 as expected."
    assert "published" in table_lines([foreign])[0]
    assert "chance" not in table_lines([foreign])[0]
    assert len(cells(foreign)) == len(cells(mine))
    assert not remarks_of(foreign)


def test_a_row_without_a_result_has_its_limits_in_the_unit_of_the_other_rows():
    def shown(cell: str) -> list[str]:
        row = absent(cell, "not run", None, references_of(cell))
        return [cells(row)[SHOWN.index(name)] for name in ("chance", "expected")]

    assert shown("embedded/chains/hot") == ["50.00", "above 51.25"]
    assert shown("embedded/ring-molecules/ppgt") == ["1.1", "below 0.5"]


def test_every_entry_is_a_cell_of_its_suite():
    entries = {f"embedded/{dataset}/{name}" for dataset, found in theory("embedded").items() for name in found.rows}
    assert entries <= {cell.cell for cell in load_grid(ROOT / "params.yaml").suite("embedded")}
    directions = {"above": "max", "at_most": "max", "below": "min", "at_least": "min"}
    for dataset, found in theory("embedded").items():
        best = "min" if get_spec(dataset).metric in ("mae", "squared-error") else "max"
        assert {directions[e.kind] for e in found.rows.values()} == {best}


def test_the_page_is_what_the_file_states():
    assert Path(ROOT, "docs/embedded.md").read_text() == page(), (
        f"run: python -m gt_bench.leaderboard.expectations > docs/embedded.md ({THEORY})"
    )
    assert room.HEAD.strip() in page()
