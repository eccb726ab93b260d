"""Node2Subgraph: content of batches, a training run, and its part in the digest."""

import pytest
import torch

from gt_bench.config.recipe import Recipe
from gt_bench.config.recipe_sections import SubgraphsSection
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.requests import requests
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import seed_of
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_models.encodings import compute
from gt_models.layers.subgraphs import Subgraphs
from tests.gt_bench.conftest import pack_many, pack_web
from tests.gt_bench.runs import experiment
from tests.gt_bench.training.small_run import NODE2SUBGRAPH
from tests.refusals import refused

PPGT = {
    "model": NODE2SUBGRAPH,
    "encodings": {"rrwp": {"steps": 2, "dual": True}},
    "subgraphs": {"hops": 2, "max_nodes": 7},
    "batch": {"graphs": 8},
    "optimizer": {"lr": 0.003},
    "epochs": 2,
    "seeds": [0],
}


def loader(tmp_path, graphs=8, seed=3):
    pack_web(tmp_path)
    packed = PackedDataset.open(tmp_path / "packed" / "web")
    section = Recipe(**PPGT).batch.model_copy(update={"graphs": graphs})
    encodings = {"rrwp": {"steps": 2}}
    data = SplitData(packed, None, 0, section, seed, torch.device("cpu"), torch.float64)
    return SubgraphLoader(data, subgraphs=SubgraphsSection(hops=2, max_nodes=7), encodings=encodings)


def test_batches_are_the_subgraphs_of_the_split(tmp_path):
    loaded = loader(tmp_path)
    whole = PackedDataset.open(tmp_path / "packed" / "web").batch(torch.arange(1))
    seen = []
    for epoch in range(2):
        batches = [batch for batch, rows in loaded.training(epoch) if rows is None]
        assert len(batches) == loaded.steps_per_epoch == loaded.num_batches("train") == 3
        targets = torch.cat([batch.extras["nodes"][batch.ptr[:-1]] for batch in batches])
        assert sorted(targets.tolist()) == sorted(loaded.ids["train"].tolist())
        seen.append(targets.tolist())
        for batch in batches:
            expected = Subgraphs(whole, 2, 7, seed=3).around(batch.extras["nodes"][batch.ptr[:-1]])
            torch.testing.assert_close(batch.edge_index, expected.edge_index)
            torch.testing.assert_close(batch.y, expected.y)
            torch.testing.assert_close(batch.encodings["rrwp"].float(), compute("rrwp", expected, steps=2)["rrwp"])
    assert seen[0] != seen[1]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed_of("batches", 3, 0)))
    assert seen[0] == loaded.ids["train"][order].tolist()
    test = torch.cat([batch.extras["nodes"][batch.ptr[:-1]] for batch, _ in loaded.evaluation("test")])
    assert test.tolist() == loaded.ids["test"].tolist()


def run(tmp_path, dataset="web", **changes):
    (pack_web if dataset == "web" else pack_many)(tmp_path)
    return experiment(tmp_path, dataset, **PPGT | changes)


@pytest.mark.slow
def test_a_run_on_subgraphs_of_a_node_level_dataset(tmp_path):
    one = run(tmp_path)
    assert requests(one.recipe) == []  # no draw is stored
    record, _ = one.run(0)
    assert record.run.status == "ok"
    assert record.run.recipe["subgraphs"] == {"hops": 2, "max_nodes": 7}
    other = run(tmp_path, subgraphs={"hops": 1, "max_nodes": 7})
    assert other.digest(0) != one.digest(0)


def test_tasks_and_batches_without_subgraphs_are_refused(tmp_path):
    with refused(RecipeError, place="subgraphs") as error:
        run(tmp_path, dataset="many")
    assert "'many' has one per graph" in error.value.problem


def test_a_subgraph_that_is_left_over_joins_the_step_before_it(tmp_path):
    loaded = loader(tmp_path, graphs=19)  # of 20 training nodes
    assert [batch.num_graphs for batch, _ in loaded.training(0)] == [20]
    assert loaded.steps_per_epoch == 1
    loaded.section = loaded.section.model_copy(update={"last": "alone"})
    assert sorted(batch.num_graphs for batch, _ in loaded.training(0)) == [1, 19]
    assert loaded.steps_per_epoch == 2
