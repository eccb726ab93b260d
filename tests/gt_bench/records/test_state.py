"""States of a cell: statuses of runs and of cells, and counts that fit."""

import pytest

from gt_bench.records.cell import CellResult, Reduction
from gt_bench.records.run import RunStatus
from gt_bench.records.state import CellState, CellStatus
from tests.gt_bench.cells import make_result


def test_statuses_of_runs_and_of_cells_share_no_word():
    assert not {*map(str, RunStatus)} & {*map(str, CellStatus)}


@pytest.mark.parametrize("status", [*RunStatus, *CellStatus])
def test_a_state_has_the_status_of_its_file(status):
    assert CellState.from_disk({"ended": str(status)}).ended is status


def test_an_unknown_status_is_refused_with_all_known_ones():
    with pytest.raises(ValueError, match="ended is 'lost'") as refused:
        CellState.from_disk({"ended": "lost"})
    assert all(f"'{status}'" in str(refused.value) for status in (*RunStatus, *CellStatus))


@pytest.mark.parametrize("counts", [{"done": 2}, {"done": 1, "failed": {"oom": 1}}, {"failed": {"oom": 1, "ok": 1}}])
def test_no_more_runs_ended_than_were_requested(counts):
    with pytest.raises(ValueError, match="of 1"):
        CellState.from_disk({"ended": "ok", "wanted": 1} | counts)


def test_a_reduced_number_is_at_most_the_full_one():
    with pytest.raises(ValueError, match="have is 4"):
        Reduction.from_disk({"unit": "seeds", "have": 4, "full": 3})


@pytest.mark.parametrize(("cut", "named"), [(7, "reduced.0 is 7"), ({"unit": "x", "have": 4, "full": 3}, "have is 4")])
def test_a_wrong_reduction_of_a_result_is_named(cut, named):
    result = make_result("s/d/m", []).to_disk()
    with pytest.raises(ValueError, match=named):
        CellResult.from_disk(result | {"reduced": [cut]})
