"""Digests of an experiment: golden values, joined batches, and files that are edited during a run."""

import copy
from dataclasses import replace

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.experiment import modified_code, run


@pytest.mark.parametrize(
    "path",
    ["suites/small/recipes/web/mlp.yaml", "/installed/suites/small/recipes/web/mlp.yaml", "tuned/small/web/mlp.yaml"],
)
def test_golden_values_are_those_of_the_cell_of_the_recipe(make, monkeypatch, path):
    found = []
    monkeypatch.setattr(modified_code, "reference_cell", lambda *names: found.append(names))
    assert "modified" not in replace(make(), path=path).digests
    assert found == [("small/web/mlp", "mlp", "node-classification")]


def test_the_digest_states_whether_the_last_batch_is_joined(make):
    """The dataset `many` has 10 training graphs."""
    assert "last_batch" in make("many", batch={"graphs": 3}).digests
    assert "last_batch" not in make("many", batch={"graphs": 4}).digests
    assert "last_batch" not in make("many", batch={"graphs": 3, "last": "alone"}).digests
    assert "last_batch" not in make("many", batch={"graphs": 1}).digests
    assert "last_batch" in make("many", batch={"nodes": 20}).digests


def test_nothing_is_stored_if_data_were_edited_during_the_run(make, monkeypatch):
    experiment = make()
    compute = run.compute

    def compute_from_other_data(*arguments):
        record = copy.deepcopy(compute(*arguments))
        record["deterministic"]["digests"]["data"] = "0" * 64
        return record

    monkeypatch.setattr(run, "compute", compute_from_other_data)
    with pytest.raises(RecipeError, match=r"mlp.yaml: seed 0: data changed during the run, .* nothing is stored"):
        experiment.run(0)
    assert not list(experiment.store.records())
