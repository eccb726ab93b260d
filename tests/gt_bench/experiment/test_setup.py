"""Model, batches and digests follow the recipe, and errors name it."""

from dataclasses import replace

import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.experiment import modified_code, run
from gt_bench.training.loader import Loader
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from tests.gt_bench.cells import changed
from tests.refusals import refused


def test_the_loader_follows_the_recipe(make):
    assert type(make().loader(0)) is Loader
    around = make(subgraphs={"hops": 1, "max_nodes": 4}, batch={"graphs": 8}).loader(0)
    assert type(around) is SubgraphLoader
    scaled = make("many", targets="train", batch={"graphs": 4}).loader(0)
    assert type(scaled.packed) is StandardisedTargets
    assert make(precision="float64").loader(0).dtype == torch.float64


def test_constructor_arguments_are_those_of_the_dataset_and_the_recipe(make):
    given = make().constructor_arguments()
    assert given == {"in_dim": 5, "out_dim": 3, "level": "node", "hidden_dim": 8, "num_layers": 2, "dropout": 0.2}


@pytest.mark.parametrize(
    "path",
    ["suites/small/recipes/web/mlp.yaml", "/installed/suites/small/recipes/web/mlp.yaml", "tuned/small/web/mlp.yaml"],
)
def test_golden_values_are_those_of_the_cell_of_the_recipe(make, monkeypatch, path):
    found = []
    monkeypatch.setattr(modified_code, "reference_cells", lambda *names: found.append(names) or [])
    assert "modified" not in replace(make(), path=path).digests
    assert found == [("small/web/mlp", "mlp", "node-classification", {"model", "task", "trainer"})]


def test_the_digest_states_whether_the_last_batch_is_joined(make):
    """The dataset `many` has 10 training graphs."""
    assert make("many", batch={"graphs": 3}).digests.last_batch == "joined"
    assert make("many", batch={"graphs": 4}).digests.last_batch is None
    assert make("many", batch={"graphs": 3, "last": "alone"}).digests.last_batch is None
    assert make("many", batch={"graphs": 1}).digests.last_batch is None
    assert make("many", batch={"nodes": 20}).digests.last_batch == "joined"


@pytest.mark.parametrize("key", ["data", "files"])
def test_nothing_is_stored_if_something_changed_during_the_run(make, monkeypatch, key):
    experiment = make()
    compute = run.compute

    def compute_from_another(*arguments):
        record = compute(*arguments)
        return changed(record, run={"digests": record.run.digests.to_disk() | {key: "0" * 64}})

    monkeypatch.setattr(run, "compute", compute_from_another)
    with refused(RecipeError, place="seed 0", value=[key]):
        experiment.run(0)
    assert not list(experiment.store.records())
