"""Errors that a user can fix."""

import pickle
from pathlib import Path

import pytest

from gt_bench.data.registry import UnknownDataset
from gt_bench.utils.errors import DatasetError, UserError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "it is 1.5"),
        ({"file": Path("a.csv")}, "a.csv: it is 1.5"),
        ({"place": "--seeds"}, "--seeds: it is 1.5"),
        ({"file": "a.csv", "place": "line 3"}, "a.csv: line 3: it is 1.5"),
        ({"file": "a.csv", "remedy": "write 1"}, "a.csv: it is 1.5; write 1"),
    ],
)
def test_the_message_has_file_place_problem_and_remedy(fields, message):
    assert str(UserError("it is 1.5", **fields)) == message
    assert str(UnknownDataset("it is 1.5", **fields)) == message


def test_an_error_of_another_process_keeps_its_fields():
    sent = DatasetError("it is 1.5", file="a.csv", place="line 3", value=1.5, remedy="write 1")
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is DatasetError
    assert str(received) == str(sent)
    assert vars(received) == vars(sent)
