"""Checks of single records; test_archive.py has those that a shipped file shows."""

import copy
import json

import pytest

from gt_bench.records.run import RunRecord
from gt_bench.store.record_checks import record_problems, selected_epoch
from gt_bench.store.shipped_files import read
from tests.conftest import ROOT

RUN, MEASURED = "deterministic", "measured"


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


def test_shipped_records_are_read_and_written_without_a_change():
    paths = sorted((ROOT / "suites").glob("*/records/*/*.json.gz"))
    records = [record for path in paths for record in (*read(path).records, *read(path).trials)]
    assert len(records) > 500
    # text, because 1 == 1.0 and a checksum distinguishes them
    for record in records:
        assert json.dumps(RunRecord.from_disk(record).to_disk(), sort_keys=True) == json.dumps(record, sort_keys=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ((RUN, "status"), "fine"),
        ((RUN, "test"), True),
        ((RUN, "test_metrics"), {"loss": True}),
        ((RUN, "epochs", "val"), [True]),
        ((RUN, "epochs", "val"), None),
        ((RUN, "epochs"), []),
        ((RUN, "digests"), None),
        ((RUN, "digests", "data"), "0x12"),
        ((RUN, "parameters"), "x"),
        ((RUN, "direction"), "up"),
        ((RUN, "more"), 1),
        ((MEASURED, "environment"), None),
        ((MEASURED, "environment", "commit"), "--output=/tmp/x"),
        ((MEASURED, "environment", "commit"), "ABCDEF"),
        ((MEASURED, "peak_memory_mib"), None),
        ((MEASURED, "started"), "yesterday"),
        (("verified",), "yes"),
        (("by",), ""),
        (("by",), "x" * 201),
        (("by",), "two\nlines"),
        (("by",), 7),
        (("predictions",), {"sha256": 7}),
        (("more",), 1),
    ],
)
def test_a_wrong_key_or_value_is_named(trained, key, value):
    (problem,) = record_problems(changed(trained.records()[0], key, value))
    assert ".".join(key) in problem


def test_a_curve_of_wrong_values_is_a_few_lines(trained):
    assert len(record_problems(changed(trained.records()[0], (RUN, "epochs", "val"), ["x"] * 1000))) == 6


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ((RUN, "recipe", "optimizer", "lr"), 1.0, "digest of its recipe"),
        ((RUN, "epochs", "train_loss"), [9.0], "curves"),
        ((RUN, "test"), None, "without a test value"),
        ((RUN, "test"), 0.987, "test value is 0.987"),
        ((RUN, "val"), 0.987, "validation value is 0.987"),
        ((RUN, "val"), None, "validation value is None"),
        ((RUN, "best_epoch"), 99, "best epoch is 99"),
        ((RUN, "best_epoch"), None, "best epoch is None"),
        ((RUN, "test_metrics", "accuracy"), 1.5, "between 0 and 1"),
        ((RUN, "metric"), "loss", "its metric is loss (max)"),
        ((RUN, "direction"), "min", "its metric is accuracy (min)"),
        ((RUN, "status"), "oom", "status oom with a test value"),
        (("by",), "Jane", "`by` but not `verified`"),
    ],
)
def test_values_that_contradict_each_other_are_named(trained, key, value, named):
    assert named in "\n".join(record_problems(changed(trained.records()[0], key, value)))


def test_an_old_record_has_no_checksum_and_is_sound(trained):
    record = {k: v for k, v in trained.records()[0].items() if k != "checksum"}
    assert record_problems(record) == []


def changed(record, key, value):
    record = copy.deepcopy(record)
    place = record
    for part in key[:-1]:
        place = place[part]
    place[key[-1]] = value
    return record
