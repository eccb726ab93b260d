"""Arguments of `evaluate` of any type: right values, or an error that names the argument."""

from pathlib import Path

import numpy as np
import pytest
import torch

import gt_bench
from gt_bench.api.arguments import checked
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.description import Description
from gt_bench.utils.errors import UserError
from tests.gt_bench.custom_data import ours, write_web  # noqa: F401 (a fixture)
from tests.refusals import refused

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
    found = checked(USUAL | {"against": "gcn, mlp", "space": {"model.a": [1, 2], "b": {"low": 1, "high": 2}}})
    assert found.against == ["gcn", "mlp"]
    assert found.space == {"model.a": {"choices": [1, 2]}, "b": {"low": 1, "high": 2}}


def test_declarations_of_data_are_parsed():
    found = checked(USUAL | {"task": "node-regression", "split": "temporal:year", "undirected": False})
    expected = {"task": "node-regression", "split": {"kind": "temporal", "column": "year"}, "undirected": False}
    assert found.data == Description.parsed(expected, "test")
    assert type(found.data) is Description


@pytest.mark.parametrize(
    ("given", "key"),
    [
        *(({"seeds": seeds}, "seeds") for seeds in (2.5, 0, -1, "0-2", [], [0.5], ["0"], True, None)),
        *(({"set": wrong}, "set") for wrong in (["epochs=2"], "epochs=2")),
        *(({"search": wrong}, "search") for wrong in (0, "2", 2.0)),
        *(({"space": wrong}, "space") for wrong in (["a"], {"model.a": (1, 2)})),
        ({"epochs": 2}, "epochs"),
        ({"method": ["tpe"]}, "method"),
        ({"method": {"samplr": "gp"}}, "method.samplr"),
        ({"against": 3}, "against"),
        ({"metric": len}, "metric"),
        ({"undirected": "yes"}, "undirected"),
        ({"name": 5}, "name"),
        *(({"split": wrong}, "split") for wrong in ((0.6, 0.2, 0.3), "randm")),
        ({"catgories": ["a"]}, "catgories"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(given, key):
    with refused(RecipeError, place=key):
        checked(USUAL | given)


def test_a_path_is_a_dataset(ours):  # noqa: F811
    write_web(ours / "lab/papers")
    found = gt_bench.evaluate("mlp", Path("lab/papers"), 1, set={"epochs": 1, "model.hidden_dim": 4}, track=False)
    assert (found.dataset, found.row["runs"]) == ("papers", 1)


def test_a_task_that_does_not_exist(ours):  # noqa: F811
    write_web(ours / "lab/papers")
    with refused(UserError, value="classification"):
        gt_bench.evaluate("mlp", "lab/papers", 1, task="classification")


def test_a_remedy_with_an_option_has_a_note_on_arguments(ours):  # noqa: F811
    write_web(ours / "lab/papers")
    with refused(UserError, value="lable") as error:
        gt_bench.evaluate("mlp", "lab/papers", 1, target="lable")
    assert 'is drop="year"' in error.value.__notes__[0]


def test_an_instance_is_refused_with_its_class():
    with refused(UserError, value="Linear", remedy="pass the class: Linear"):
        gt_bench.evaluate(torch.nn.Linear(2, 2), "web")
