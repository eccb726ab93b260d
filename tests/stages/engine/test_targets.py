"""Targets standardised with the statistics of the training part, or of all parts where a protocol leaked."""

import pytest
import torch

from stages.datasets.packed import PackedDataset
from stages.engine.targets import StandardisedTargets
from stages.params import RunSettings
from stages.recipe import Recipe
from stages.runs import Experiment
from stages.schema import RecipeError
from stages.store import Store
from tests.stages.conftest import RECIPE, pack_many, pack_web

GRAPHS = {**RECIPE, "batch": {"graphs": 8}}


@pytest.fixture
def packed(tmp_path):
    pack_web(tmp_path)
    pack_many(tmp_path)
    return PackedDataset.open(tmp_path / "packed" / "many")


@pytest.mark.parametrize("statistics", ["train", "all"])
def test_statistics(packed, statistics):
    raw = packed.batch(torch.arange(packed.num_graphs)).y.double()
    of = packed.split("train", 0) if statistics == "train" else torch.arange(packed.num_graphs)
    dataset = StandardisedTargets(packed, statistics, 0)
    y = dataset.batch(torch.arange(packed.num_graphs)).y
    assert y.shape == raw.shape
    torch.testing.assert_close(y.double(), (raw - raw[of].mean(0)) / raw[of].std(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(y[of].double().mean(0), torch.zeros_like(raw[0]), rtol=0, atol=1e-6)
    few = torch.tensor([3, 1])
    torch.testing.assert_close(dataset.batch(few).y, y[few])
    torch.testing.assert_close(dataset.batch(few).x, packed.batch(few).x)
    assert (dataset.header, dataset.num_graphs) == (packed.header, packed.num_graphs)


def test_it_is_part_of_what_decides_a_run(packed, tmp_path):
    def experiment(dataset="many", **changes):
        (tmp_path / "data").mkdir(exist_ok=True)
        if not (tmp_path / "data/packed").exists():
            (tmp_path / "packed").rename(tmp_path / "data/packed")
        recipe = Recipe(**GRAPHS | changes)
        return Experiment(recipe, "r.yaml", dataset, RunSettings(device="cpu"), Store(tmp_path / "store"), tmp_path / "data")

    runs = [experiment(), experiment(targets="train"), experiment(targets="all")]
    assert len({e.digest(0) for e in runs}) == 3
    assert len({e.code for e in runs}) == 2  # the code of standardising counts where it is used
    tests = [e.run(0)[0]["deterministic"]["test"] for e in runs]
    assert len(set(tests)) == 3
    with pytest.raises(RecipeError, match="is node-classification"):
        experiment("web", targets="train", batch={}).run(0)
