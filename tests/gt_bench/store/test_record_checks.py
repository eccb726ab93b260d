"""Checks of single records; test_archive.py has those that a shipped file shows."""

import pytest

from gt_bench.store.record_checks import record_problems, selected_epoch


@pytest.mark.parametrize(
    ("direction", "select", "expected"),
    [("max", "best", 2), ("min", "best", 1), ("max", "last", 4), ("min", "last", 4)],
)
def test_the_selected_epoch_is_the_first_best_one_or_the_last(direction, select, expected):
    run = {
        "direction": direction,
        "recipe": {"select": select},
        "epochs": {"epoch": [1, 2, 3, 4, 5], "val": [0.1, 0.7, 0.7, 0.1, None]},
    }
    assert selected_epoch(run) == expected


@pytest.mark.parametrize(
    ("marks", "says"),
    [
        ({"verified": "yes"}, "its `verified` is 'yes'; expected 'schema only' or 'recomputed'"),
        ({"by": "Jane"}, "it has `by` but not `verified`"),
        ({"by": "", "verified": "schema only"}, "expected a name of at most 200 characters on one line"),
        ({"by": "x" * 201, "verified": "schema only"}, "expected a name of at most 200 characters"),
        ({"by": "two\nlines", "verified": "schema only"}, "on one line"),
        ({"by": 7, "verified": "schema only"}, "its `by` is 7"),
    ],
)
def test_marks_of_contributed_records_are_checked(trained, marks, says):
    assert says in "\n".join(record_problems(trained.records()[0] | marks))


def test_an_old_record_has_no_checksum_and_is_sound(trained):
    record = {k: v for k, v in trained.records()[0].items() if k != "checksum"}
    assert record_problems(record) == []
