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
from gt_bench.leaderboard.columns import SHOWN, cells, remarks_of, table_lines, terminal_table
from gt_bench.leaderboard.expectations import THEORY, Expectation, judged, page, theory, with_expectation
from gt_bench.leaderboard.export import tally
from gt_bench.leaderboard.rows import absent
from tests.conftest import ROOT


def row(values, cell="embedded/chains/gcn", reduced=()):
    return absent(cell, "ok", None) | {
        "metric": "accuracy", "direction": "max", "unit": "percent", "values": list(values), "runs": len(values),
        "seeds": len(values),
        "mean": float(np.mean(values)), "std": float(np.std(values)), "reduced": list(reduced),
    }  # fmt: skip


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
def test_which_side_of_the_line(given, values, says):
    assert judged(Expectation(**given, margin=0.01, because="."), row(values), Rules()) == says


def test_the_line_is_where_the_95_percent_interval_ends():
    values = [0.61, 0.66, 0.64, 0.63]
    low, _ = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    below, beyond = (Expectation(above=low + step - 0.02, margin=0.02, because=".") for step in (-1e-9, 1e-9))
    assert [judged(e, row(values), Rules()) for e in (below, beyond)] == ["as expected", "undecided"]
    assert judged(beyond, row(values), Rules(level=0.2, power=0.7)) == "as expected"


def test_a_run_that_was_cut_in_more_than_seeds_is_not_judged():
    above = Expectation(above=0.5, margin=0.01, because=".")
    assert judged(above, row([0.9, 0.9], reduced=["2 of 3 seeds"]), Rules()) == "as expected"
    assert judged(above, row([0.9, 0.9], reduced=["2 of 30 epochs"]), Rules()) is None
    assert judged(above, absent("embedded/chains/gcn", "not run", None), Rules()) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"at_most": 0.5, "above": 0.4, "margin": 0.1},
            "give one of at_most, at_least, above, below; given: at_most, above",
        ),
        ({"margin": 0.1}, "given: none"),
        ({"at_most": 0.5}, "margin"),
        ({"atmost": 0.5, "margin": 0.1}, "unknown key"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, monkeypatch, given, says):
    monkeypatch.chdir(tmp_path)
    path = Path("suites/s", THEORY)
    path.parent.mkdir(parents=True)
    row = given | {"because": "."}
    path.write_text(
        yaml.safe_dump({"datasets": {"d": {"tests": ".", "chance": 0.5, "guess": ".", "rows": {"r": row}}}})
    )
    with pytest.raises(RecipeError, match=says) as error:
        theory("s")
    assert str(path) in str(error.value)


def test_rows_of_which_theory_states_something_show_it_and_not_what_nobody_printed():
    cells_ = ("embedded/chains/gcn", "embedded/chains/mine", "hot/chains/gcn")
    mine, other, foreign = (with_expectation(row([0.5, 0.5], cell)) for cell in cells_)
    assert (mine["expected"], mine["expected_limit"], mine["as_expected"]) == ("at most", 0.5125, "as expected")
    assert (other["chance"], other["expected"], other["as_expected"]) == (
        0.5,
        None,
        None,
    )  # a row of a user on this dataset
    assert foreign == row([0.5, 0.5], "hot/chains/gcn")
    text = "\n".join(table_lines([mine, other]))
    for part in (
        "| at most 51.25 | as expected |",
        "chains / gcn: at most 51.25 expected: 4 layers",
        f"chains: {mine['tests']}",
    ):
        assert part in text
    assert "published" not in text.splitlines()[0]
    assert "as expected?" in [str(column.header) for column in terminal_table("embedded", [mine, other]).columns]
    assert tally([mine, other], Rules()) == "1 rows for which theory predicts the result: 1 as expected."
    assert "published" in table_lines([foreign])[0]
    assert "chance" not in table_lines([foreign])[0]
    assert len(cells(foreign)) == len(cells(mine))
    assert not remarks_of(foreign)


def test_a_row_without_a_result_has_its_limits_in_the_unit_of_the_other_rows():
    def shown(cell: str) -> list[str]:
        row = absent(cell, "not run", None)
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
