"""Arguments of `evaluate` of any type: right values, or an error that names the argument."""

from pathlib import Path

import numpy as np
import pytest
import torch

import gt_bench
from gt_bench.api.arguments import checked
from gt_bench.plugins.data_options import DataOptions
from gt_bench.utils.errors import UserError
from tests.gt_bench.custom_data import ours, write_web  # noqa: F401 (a fixture)

USUAL = {"seeds": 3, "ensemble": False, "name": "own-data", "track": True}


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (2, [0, 1]),
        ([3, 5], [3, 5]),
        (range(2), [0, 1]),
        (np.arange(2), [0, 1]),
        (torch.tensor(2), [0, 1]),
        (torch.tensor([2]), [2]),
    ],
)
def test_seeds(given, seeds):
    assert checked(USUAL | {"seeds": given}).seeds == seeds


def test_names_and_spaces_in_short_form():
    found = checked(USUAL | {"against": "gcn, mlp", "space": {"model.a": (1, 2), "b": {"low": 1, "high": 2}}})
    assert found.against == ["gcn", "mlp"]
    assert found.space == {"model.a": {"choices": [1, 2]}, "b": {"low": 1, "high": 2}}


def test_what_is_stated_about_the_data():
    found = checked(USUAL | {"task": "node-regression", "split": "temporal:year", "undirected": False})
    expected = {"task": "node-regression", "split": {"kind": "temporal", "column": "year"}, "undirected": False}
    assert found.data == DataOptions.parsed(expected)
    assert type(found.data) is DataOptions


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(
            ({"seeds": seeds}, "evaluate: seeds: expected a number of seeds of at least 1, or a list of them")
            for seeds in (2.5, 0, -1, "0-2", [], [0.5], ["0"])
        ),
        ({"seeds": True}, "evaluate: seeds: expected a number"),
        ({"seeds": None}, "evaluate: key 'seeds' is missing"),
        ({"set": ["epochs=2"]}, "evaluate: set: expected a mapping of keys (given: ['epochs=2'])"),
        ({"set": "epochs=2"}, "evaluate: set: expected a mapping of keys"),
        ({"space": ["a"]}, "evaluate: space: expected a mapping of keys"),
        ({"method": ["tpe"]}, "evaluate: method: expected a mapping of keys"),
        ({"method": {"samplr": "gp"}}, "unknown key 'method.samplr' (did you mean 'sampler'?)"),
        ({"search": 0}, "evaluate: search: Input should be greater than 0"),
        ({"against": 3}, "evaluate: against: Input should be a valid list"),
        ({"metric": len}, "evaluate: metric: Input should be a valid string"),
        ({"undirected": "yes"}, "evaluate: undirected: Input should be a valid boolean"),
        ({"name": 5}, "evaluate: name: Input should be a valid string"),
        ({"split": (0.6, 0.2, 0.2)}, "evaluate(split=...): is (0.6, 0.2, 0.2); expected random[:0.6,0.2,0.2]"),
        ({"split": "randm"}, "evaluate(split=...) randm: no kind 'randm' (did you mean 'random'?)"),
    ],
)
def test_a_wrong_type_is_named(given, says):
    with pytest.raises(UserError) as error:
        checked(USUAL | given)
    assert says in str(error.value)


def test_a_path_is_a_dataset(ours):  # noqa: F811
    write_web(ours / "lab/papers")
    found = gt_bench.evaluate("mlp", Path("lab/papers"), 1, set={"epochs": 1, "model.hidden_dim": 4}, track=False)
    assert (found.dataset, found.row["runs"]) == ("papers", 1)


def test_a_task_that_does_not_exist(ours):  # noqa: F811
    write_web(ours / "lab/papers")
    with pytest.raises(UserError, match="no task 'classification'.*expected one of edge-classification"):
        gt_bench.evaluate("mlp", "lab/papers", 1, task="classification")
