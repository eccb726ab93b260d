"""`gt-bench rank`: compared numbers, missing numbers, filters, and the output at 80 columns."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gt_bench.analysis.ablate import arms, effects, nothing_to_compare
from gt_bench.analysis.dataset_numbers import Block, DatasetNumber, chosen, entries
from gt_bench.analysis.datasets import Filter
from gt_bench.analysis.rank import PAIRS, WORST, _same_runs_once, one_block_each, rank
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.train import train_cell
from gt_bench.utils.errors import UserError
from tests.conftest import ROOT
from tests.gt_bench.shipping import run
from tests.refusals import refused

NOTHING = "no dataset has results of two models under these filters"

ranked = partial(rank, draws=50)


def table(values: dict[str, list[float | None]], direction: str = "max", **more) -> list[DatasetNumber]:
    """Entries of models with a value per dataset."""
    return [
        DatasetNumber(
            model, Block("s", f"d{i}", "accuracy"), value, direction, more.get("source", "own"), more.get("parameters")
        )
        for model, column in values.items()
        for i, value in enumerate(column)
        if value is not None
    ]


def test_the_order_follows_the_direction_of_the_metric():
    values = {"good": [0.9, 0.8, 0.7], "bad": [0.1, 0.2, 0.3], "middle": [0.5, 0.5, 0.5]}
    assert [one.model for one in ranked(table(values)).models] == ["good", "middle", "bad"]
    found = ranked(table(values, "min"))
    assert [one.model for one in found.models] == ["bad", "middle", "good"]
    assert [one.rank for one in found.models] == [1, 2, 3]
    assert [one.win_rate for one in found.models] == [1, 0.5, 0]


def test_missing_results_are_left_out_by_pairs_or_count_as_worst():
    values = {"a": [0.9, None, None], "b": [0.8, 0.8, 0.8], "c": [0.1, 0.1, 0.1]}
    pairs, worst = ranked(table(values), PAIRS), ranked(table(values), WORST)
    assert pairs.missing == worst.missing == 2
    assert pairs.models[0].model == "a"
    assert pairs.ranked_datasets == 1
    assert worst.models[0].model == "b"
    assert worst.ranked_datasets == 3
    assert {one.model: one.rank for one in worst.models} == {"b": 4 / 3, "c": 7 / 3, "a": 7 / 3}
    assert pairs.agreement < 1
    assert pairs.other_first == "b"


def test_tests_need_five_datasets():
    rng = np.random.default_rng(0)
    values = {name: (rng.random(9) + shift).tolist() for name, shift in (("a", 2), ("b", 1), ("c", 0))}
    found = ranked(table(values))
    assert found.p_value < 0.01
    assert found.critical == pytest.approx(2.343 * np.sqrt(12 / 54), rel=1e-3)
    assert found.tested == 3
    assert ("a", "c") in [pair[:2] for pair in found.different]
    few = ranked(table({name: column[:4] for name, column in values.items()}))
    assert (few.p_value, few.critical, few.tested) == (None, None, 0)


def of_metrics(
    model: str, value: float, datasets: list[str], metrics: list[str], suite: str = "s"
) -> list[DatasetNumber]:
    return [
        DatasetNumber(model, Block(suite, dataset, metric), value, "max", "own")
        for dataset in datasets
        for metric in metrics
    ]


def test_metrics_and_parts_of_one_dataset_are_one_dataset():
    parts, metrics = ["brec-basic", "brec-total", "chains", "jets-b", "jets-c"], ["f1", "recall"]
    entries = [*of_metrics("a", 0.9, parts, metrics), *of_metrics("b", 0.8, parts, metrics)]
    found = ranked(entries)
    assert [block.dataset for block in found.blocks] == ["brec-total", "chains", "jets-b"]
    assert {block.metric for block in found.blocks} == {"f1"}
    assert (found.datasets, found.ranked_datasets, found.tested, found.critical) == (3, 3, 0, None)
    assert [(one.datasets, one.interval) for one in found.models] == [(3, None), (3, None)]
    assert {block.metric for block in ranked(entries, metric="recall").blocks} == {"recall"}
    # the metric of most models
    assert {e.block.metric for e in one_block_each([*entries, *of_metrics("c", 0.5, parts, ["recall"])])} == {"recall"}
    with refused(OptionError, place="--metric", value="recal"):
        ranked(entries, metric="recal")


def test_a_dataset_of_two_suites_is_one_observation():
    datasets = [f"d{i}" for i in range(6)]
    both = [e for suite in "st" for m, v in (("a", 0.9), ("b", 0.8)) for e in of_metrics(m, v, datasets, ["f1"], suite)]
    found, once = ranked(both), ranked([entry for entry in both if entry.block.suite == "s"])
    assert (len(found.blocks), found.datasets, found.models[0].datasets) == (12, 6, 6)
    assert (found.different, found.models) == (once.different, once.models)


def test_models_that_cannot_be_compared_are_named_with_the_reason():
    values = {"a": [1, 2, None, None], "b": [2, 1, None, None], "x": [None, None, 1, None], "y": [None, None, 2, None]}
    found = ranked(table(values))
    assert {one.model for one in found.models} == {"a", "b"}
    assert found.left_out == {"no chain of comparisons links them to the others": ["x", "y"]}
    found = ranked(table({"a": [1, 2], "b": [2, 1], "c": [3, None]}), at_least=2)
    assert found.left_out == {"on fewer than 2 datasets with another model": ["c"]}
    with refused(RecipeError, problem=NOTHING):
        ranked(table({"a": [1, None], "b": [None, 1]}))


def test_the_same_runs_in_two_suites_count_once():
    def of(suite: str, runs: dict[str, str], dataset: str = "d0") -> list[DatasetNumber]:
        return [
            DatasetNumber(model, Block(suite, dataset, "accuracy"), ord(model), "max", "own", runs=frozenset({digest}))
            for model, digest in runs.items()
        ]

    first, second = of("s", {"a": "1", "b": "2", "x": "3"}), of("t", {"b": "2", "a": "1", "y": "4"})
    found = ranked([*first, *second])
    assert {one.model: one.datasets for one in found.models} == {"a": 1, "b": 1, "x": 1, "y": 1}
    assert [block.suite for block in found.blocks] == ["s"]
    assert found.missing == 0
    assert ranked(first).models[0].elo == ranked([*first, *of("t", {"a": "1", "b": "2"})]).models[0].elo
    # other runs, another dataset, and models without a common one are results of their own
    for other in (of("t", {"a": "1", "b": "5"}), of("t", {"a": "1", "b": "2"}, "d1"), of("t", {"y": "4", "z": "6"})):
        assert len({entry.block for entry in _same_runs_once([*first, *other])}) == 2
    published = table({"a": [0.9], "b": [0.8]}, source="published")
    again = [replace(entry, block=entry.block._replace(suite="t")) for entry in published]
    assert len(ranked([*published, *again]).blocks) == 2


def test_the_number_of_parameters_filters_results():
    small = table({"a": [1.0, 2.0]}, parameters=10)
    big = table({"b": [1.0, 2.0]}, parameters=1000)
    unknown = table({"c": [1.0, 2.0]})
    kept, remarks = chosen([*small, *big, *unknown], (), 100)
    assert kept == small
    assert remarks == ["4 results left out: more than 100 parameters, or unknown", "unknown number of parameters: c"]
    with refused(OptionError, place="--models", value="gcm"):
        chosen([*small, *big, *unknown], ["gcm"], None)


def test_runs_and_published_numbers_are_not_mixed_unless_requested(monkeypatch):
    monkeypatch.chdir(ROOT)
    grid = load_grid()
    cells = grid.suite("edge-transformer")
    by_source = {s: entries(grid, cells, Filter(), s)[0] for s in ("shipped", "published", "all")}
    assert {e.source for e in by_source["shipped"]} == {"shipped"}
    assert {e.source for e in by_source["published"]} == {"published"}
    assert {e.source for e in by_source["all"]} == {"shipped", "published"}
    places = {(e.model, e.block) for e in by_source["shipped"]}
    published = {(e.model, e.block): e for e in by_source["published"]}
    assert len(by_source["all"]) == len(places | published.keys())
    assert published.keys() & places  # a published method and its row have the same name
    cornell = published["gcn", Block("edge-transformer", "cornell", "accuracy")]
    assert 0.3 < cornell.value < 1


def test_a_row_whose_epoch_was_chosen_on_test_is_not_ranked(project):
    project.recipe()
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid)
    path = Path("results/small/web/mlp.json")
    assert len(entries(grid, grid.suite("small"), Filter(), "own")[0]) == 1
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"recipe": {**result["recipe"], "select": "test"}}))
    assert entries(grid, grid.suite("small"), Filter(), "own")[0] == []


def test_numbers_in_different_units_are_not_ranked(project):
    """Standardised targets have another unit: a smaller number is no better model."""
    project.recipe("many", "raw")
    project.recipe("many", "scaled", targets="train")
    grid = load_grid()
    for cell in grid.cells.values():
        train_cell(cell, grid)
    found, problems = entries(grid, grid.suite("small"), Filter(), "own")
    assert {(e.model, e.block.metric) for e in found} == {("raw", "mae"), ("scaled", "mae (targets: train)")}
    assert problems == []
    with refused(RecipeError, problem=NOTHING):
        ranked(found)
    with refused(RecipeError, value="targets"):
        raise nothing_to_compare(arms(grid, grid.suite("small"))[0], ["targets"])
    assert effects(arms(grid, grid.suite("small"))[0], ["targets"], grid.run.verdict) == []


def test_the_command_on_own_runs_at_80_columns(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    project.recipe()
    project.recipe(row="gcn", model={"name": "gcn", "hidden_dim": 8, "num_layers": 2})
    grid = load_grid()
    for cell in grid.cells.values():
        train_cell(cell, grid)
    done = run("rank", "small")
    assert done.exit_code == 0
    assert "2 models on 1 dataset, source: runs" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    content = json.loads(run("rank", "--json", "--datasets", "web").output)
    assert {one["model"] for one in content["models"]} == {"mlp", "gcn"}
    assert content["blocks"] == [{"suite": "small", "dataset": "web", "metric": "accuracy"}]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["--dataset", "wep"], {"place": "--dataset", "value": "wep"}),
        (["--task", "graphs"], {"place": "--task", "value": "graphs"}),
        (["--source", "published", "--parameters-max", "5"], {"place": "--parameters-max", "value": 5}),
        (["smal"], {"value": "smal"}),
        ([], {"problem": NOTHING}),
    ],
)
def test_a_ranking_that_cannot_be_made_is_refused(project, arguments, fields):
    project.recipe()
    with refused(UserError, **fields):
        raise run("rank", *arguments).exception
