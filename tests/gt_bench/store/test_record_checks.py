"""Checks of single records; test_archive.py has those that a shipped file shows."""

import gzip
from dataclasses import replace
from importlib import import_module

import pytest

from gt_bench.config.tasks import TASKS, task_module
from gt_bench.records.base import MAX_PARTS
from gt_bench.records.run import RunRecord
from gt_bench.store.record_checks import ERRORS, record_problems, selected_epoch
from gt_bench.store.shipped_files import read, write
from tests.conftest import ROOT
from tests.gt_bench.cells import ET, changed, make_record

RUN, MEASURED = "deterministic", "measured"


@pytest.mark.parametrize(
    ("direction", "select", "expected"),
    [("max", "best", 2), ("min", "best", 1), ("max", "last", 4), ("min", "last", 4)],
)
def test_the_selected_epoch_is_the_first_best_one_or_the_last(direction, select, expected):
    curves = {"epoch": [1, 2, 3, 4, 5], "val": [0.1, 0.7, 0.7, 0.1, None]}
    record = changed(make_record(ET, 0), run={"direction": direction, "recipe": {"select": select}, "epochs": curves})
    assert selected_epoch(record.run) == expected


def test_shipped_records_are_read_and_written_without_a_change(tmp_path):
    paths = sorted((ROOT / "suites").glob("*/records/*/*.json.gz"))
    assert sum(len(read(path).records) for path in paths) > 500
    for path in paths:
        content = gzip.decompress(path.read_bytes())
        write(replace(read(path), path=tmp_path / "again.json.gz"))
        assert gzip.decompress((tmp_path / "again.json.gz").read_bytes()) == content


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
    with pytest.raises(ValueError, match=".") as refused:
        edited(trained.records()[0], key, value)
    assert ".".join(key) in str(refused.value)


def test_a_curve_of_wrong_values_is_a_few_lines(trained):
    with pytest.raises(ValueError, match=".") as refused:
        edited(trained.records()[0], (RUN, "epochs", "val"), ["x"] * 1000)
    assert str(refused.value).count("; ") == MAX_PARTS


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
    assert named in "\n".join(record_problems(edited(trained.records()[0], key, value)))


def test_an_old_record_has_no_checksum_and_is_sound(trained):
    content = trained.records()[0].to_disk()
    del content["checksum"]
    assert record_problems(RunRecord.from_disk(content)) == []


def edited(record, key, value):
    content = record.to_disk()
    place = content
    for part in key[:-1]:
        place = place[part]
    place[key[-1]] = value
    return RunRecord.from_disk(content)


def test_smaller_values_are_better_of_errors_alone():
    directions = {}
    for task in TASKS:
        directions |= getattr(import_module(task_module(task)), TASKS[task].partition(":")[2]).directions
    assert {metric for metric, direction in directions.items() if direction == "min"} == ERRORS
