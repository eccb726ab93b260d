"""The run of a cell that is kept is the best on validation."""

import pytest

from gt_bench.store.best_run import best_run


def record(val, status="ok", direction="max", test=0.0):
    return {"deterministic": {"status": status, "val": val, "direction": direction, "test": test}}


@pytest.mark.parametrize(("direction", "best"), [("max", 0.9), ("min", 0.1)])
def test_by_the_direction_of_the_metric_and_never_by_the_test(direction, best):
    runs = [record(val, direction=direction, test=1 - val if direction == "max" else val) for val in (0.5, 0.9, 0.1)]
    assert best_run(runs)["deterministic"]["val"] == best


def test_the_first_of_equal_ones():
    runs = [record(0.5), record(0.7), record(0.7)]
    assert best_run(runs) is runs[1]


def test_what_failed_or_is_no_number_is_passed_over():
    runs = [record(0.99, status="diverged"), record(float("nan")), record(float("inf")), record(None), record(0.2)]
    assert best_run(runs) is runs[4]


def test_where_nothing_validates_the_first_that_ended_well():
    runs = [record(None, status="oom"), record(None), record(None)]
    assert best_run(runs) is runs[1]
    assert best_run(runs[:1]) is None
    assert best_run([]) is None
