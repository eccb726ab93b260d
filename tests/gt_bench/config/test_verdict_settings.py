"""Settings of verdicts in params.yaml."""

import pytest
import yaml

from gt_bench.config.grid import RunSettings, load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from tests.conftest import ROOT


def test_the_shipped_settings_are_the_defaults():
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["run"]["verdict"] == Rules().model_dump(mode="json")
    assert RunSettings().verdict == Rules()


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"margin_std": 1.0}, "margin_std is no longer a setting"),
        ({"verdict": {"alpha": 0.05}}, "unknown key 'run.verdict.alpha'"),
        ({"verdict": {"power": 0.97}}, "power 0.97 cannot be reached at level 0.05"),
        ({"verdict": {"unstated_runs": [1, 10]}}, "the smallest and largest number of runs"),
        ({"verdict": {"level": 0}}, "run.verdict.level"),
    ],
)
def test_what_cannot_be_is_one_clear_line(tmp_path, run, said):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump({"run": run, "datasets": [], "suites": [], "cells": {}}))
    with pytest.raises(RecipeError) as error:
        load_grid(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)
