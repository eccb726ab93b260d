"""Settings of verdicts in params.yaml."""

import yaml

from gt_bench.config.params import RunSettings
from gt_bench.config.verdict_settings import Rules
from tests.conftest import ROOT


def test_the_shipped_settings_are_the_defaults():
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["run"]["verdict"] == Rules().model_dump(mode="json")
    assert RunSettings().verdict == Rules()
