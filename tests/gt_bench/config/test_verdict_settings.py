"""Settings of verdicts in params.yaml."""

import pytest
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.config.params import RunSettings
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from tests.conftest import ROOT


def test_the_shipped_settings_are_the_defaults():
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["run"]["verdict"] == Rules().model_dump(mode="json")
    assert RunSettings().verdict == Rules()


@pytest.mark.parametrize(
    ("run", "key"),
    [
        ({"margin_std": 1.0}, "run.margin_std"),
        ({"verdict": {"alpha": 0.05}}, "run.verdict.alpha"),
        ({"verdict": {"power": 0.97}}, "run.verdict"),
        ({"verdict": {"unstated_runs": [1, 10]}}, "run.verdict.unstated_runs"),
        ({"verdict": {"level": 0}}, "run.verdict.level"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(tmp_path, run, key):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump({"run": run, "datasets": [], "suites": [], "cells": {}}))
    with pytest.raises(RecipeError) as error:
        load_grid(path)
    assert str(error.value).startswith(f"{path}: ")
    assert key in str(error.value)
