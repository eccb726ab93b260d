"""`gt-bench try MODEL,MODEL DATASET,DATASET`: every pair, and one table."""

import json
import re

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.option_text import OptionError
from tests.gt_bench.custom_data import write_web
from tests.gt_bench.user_models import forgotten, forked  # noqa: F401 - a fixture

MODEL = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.out = nn.Linear(in_dim, out_dim)

    def forward(self, data):
        return self.out(data.x)
"""


def run(*arguments):
    return CliRunner().invoke(app, ["try", *arguments, "--seeds", "0-1", "--epochs", "1"])


def test_a_failed_pair_leaves_the_others(ours, forked):  # noqa: F811
    write_web(ours / "lab/animals")
    (ours / "lab/mine.py").write_text(MODEL)
    done = run("lab/mine.py:Mine,nowhere,mlp", "web,lab/animals")
    assert done.exit_code == 1
    cells = re.findall(r"^tried/(\w+)/(\w+)-epochs-1 .* 2/2 ", done.stdout, re.MULTILINE)
    assert sorted(cells) == [(dataset, model) for dataset in ("animals", "web") for model in ("mine", "mlp")]
    assert len(re.findall(r"^failed: nowhere on ", done.stdout, re.MULTILINE)) == 2


def test_pairs_as_json(ours):
    done = run("gcn,mlp", "web", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["recipe"] for one in found] == [f"tried/web/{model}-epochs-1.yaml" for model in ("gcn", "mlp")]


@pytest.mark.parametrize("option", [("--against", "mlp"), ("--search", "2", "--ensemble")])
def test_options_of_one_pair_are_refused(ours, option):
    assert isinstance(run("gcn,mlp", "web", *option).exception, OptionError)
