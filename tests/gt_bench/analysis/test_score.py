"""`gt-bench score` from stored predictions: metrics, groups and ensembles."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

from gt_bench.analysis.ensemble import of_seeds
from gt_bench.analysis.score import by_class, by_graph_size, loaded, scored
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.leaderboard.collect import summarise
from gt_bench.pipeline.train import train_cell
from gt_bench.store.predictions import FILE, PredictionsError
from gt_bench.store.shipped_files import read_result
from gt_bench.utils.errors import UserError
from tests.gt_bench.analysis.cases import drawn, predictions
from tests.gt_bench.shipping import CELL, export, run, train
from tests.refusals import refused


def test_metrics_by_seed_and_their_mean(project):
    from sklearn.metrics import f1_score

    project.recipe()
    train()
    _, found = loaded(CELL, load_grid())
    accuracy, f1 = scored(found, ["accuracy", "f1-macro"])
    assert accuracy.recorded == accuracy.values == {r.run.seed: r.run.test for r in project.records()}
    part = found[0].parts["test"]
    seed = found[0].record.run.seed
    assert f1.values[seed] == pytest.approx(f1_score(part.labels, part.output.argmax(1), average="macro"))
    assert f1.recorded == {}
    assert f1.mean == pytest.approx(sum(f1.values.values()) / 2)
    result = read_result(Path(f"results/{CELL}.json"), CELL)
    assert accuracy.std == pytest.approx(summarise(result, project.records()).summary.std)


def test_the_command_prints_them_and_fails_if_the_record_has_another_number(project):
    project.recipe()
    train()
    done = run("score", CELL, "--metric", "accuracy", "--metric", "f1-macro", "--json")
    assert done.exit_code == 0
    content = json.loads(done.output)
    assert content["metrics"]["accuracy"]["seeds"].keys() == {"0", "1"}
    path = next(Path("store").glob("??/*/record.json"))
    record = json.loads(path.read_text())
    record["deterministic"]["test_metrics"]["accuracy"] = record["deterministic"]["test"] = 0.123
    del record["checksum"]
    path.write_text(json.dumps(record))
    done = run("score", CELL, "--metric", "accuracy")
    assert done.exit_code == 1
    assert "not the value of the record: accuracy of seed" in done.output


def test_a_metric_of_the_user_is_not_computed_on_standardised_targets(project):
    """It would be a number in a wrong unit."""
    project.recipe("many", targets="train")
    train_cell(load_grid().find("small/many/mlp"), load_grid())
    Path("m.py").write_text("def largest(o, t):\n    return t.max()\n\nlargest.direction = 'max'\n")
    done = run("score", "small/many/mlp", "--metric", "m.py:largest")
    with refused(OptionError, place="--metric", value="m.py:largest"):
        raise done.exception
    assert "mae / σ" in run("score", "small/many/mlp", "--metric", "mae").output
    project.recipe("many")
    train_cell(load_grid().find("small/many/mlp"), load_grid())
    assert "/ σ" not in run("score", "small/many/mlp", "--metric", "mae", "--metric", "m.py:largest").output


def test_a_shipped_cell_is_scored_without_its_weights_and_store(trained):

    export()
    before = run("score", CELL, "--metric", "f1-macro", "--json").output
    shutil.rmtree("store")
    shutil.rmtree("results")
    assert run("score", CELL, "--metric", "f1-macro", "--json").output == before
    assert run("score", f"{CELL}@shipped", "--metric", "f1-macro", "--json").output == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["--metric", "aucroc"], {"place": "--metric", "value": "aucroc"}),
        (["--metric", "mae"], {"place": "--metric", "value": "mae"}),
        (["--by", "graph-size"], {"place": "--by", "value": "graph-size"}),
        (["--ensemble"], {"place": "--ensemble"}),
        (["--against", "small/web/other"], {"value": "small/web/other"}),
        (["--against", CELL, "--by", "class"], {"remedy": "remove one"}),
        (["--against", "small/many/mlp"], {"value": ("node-classification", "graph-regression")}),
    ],
)
def test_a_question_that_has_no_answer_is_refused(project, arguments, fields):
    project.recipe()
    project.recipe("many")
    train()
    grid = load_grid()
    train_cell(grid.find("small/many/mlp"), grid)
    done = run("score", CELL, *arguments)
    assert done.exit_code == 1
    with refused(UserError, **fields):
        raise done.exception


def test_a_cell_without_a_run_and_one_without_predictions(project):
    project.recipe(run={"predictions": 0})
    with refused(PredictionsError, place=CELL):
        raise run("score", CELL, "--metric", "accuracy").exception
    train()
    assert "`gt-bench train small/web/mlp --predictions` computes" in str(
        run("score", CELL, "--metric", "accuracy").exception
    )
    project.recipe()
    assert run("train", CELL, "--predictions").exit_code == 0
    assert len(list(Path("store").glob(f"??/*/{FILE}"))) == 2
    assert run("score", CELL, "--metric", "accuracy").exit_code == 0


def test_recall_precision_and_f1_of_each_class():
    from sklearn.metrics import precision_recall_fscore_support

    one, other = drawn(0), drawn(1)
    expected = np.mean(
        [
            precision_recall_fscore_support(o.parts["test"].labels, o.parts["test"].output.argmax(1))[:3]
            for o in (one, other)
        ],
        axis=0,
    )
    groups = by_class([one, other], ["accuracy"])
    for i, key in enumerate(("precision", "recall", "f1")):
        assert [group.values[key] for group in groups] == pytest.approx(expected[i].tolist())
    assert sum(group.examples for group in groups) == 40


def test_each_label_of_a_multilabel_task():
    target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, math.nan], [0.0, 0.0]])
    one = predictions(torch.tensor([[2.0, 0.0], [1.0, 3.0], [3.0, 0.0], [-1.0, 1.0]]), target, task="graph-multilabel")
    groups = by_class([one], ["roc-auc"])
    assert [(g.name, g.examples, g.values["roc-auc"]) for g in groups] == [("0", 2.0, 1.0), ("1", 1.0, 1.0)]


def test_groups_of_graph_sizes_cover_all_examples_and_average_to_the_whole():
    nodes = np.array([3, 3, 4, 5, 5, 6, 9, 12])
    output = torch.arange(8.0)[:, None]
    one = predictions(output, torch.zeros(8), task="graph-regression", ids=np.arange(8), nodes=nodes)
    groups = by_graph_size([one], ["mae"])
    assert [(g.name, g.examples) for g in groups] == [("3 to 4", 3.0), ("5", 2.0), ("6 to 12", 3.0)]
    assert sum(g.examples * g.values["mae"] for g in groups) / 8 == pytest.approx(3.5)


def test_nodes_of_many_graphs_have_the_size_of_their_graph():
    nodes = np.array([2, 3])
    one = predictions(torch.zeros(5, 2), torch.zeros(5, dtype=torch.long), ids=np.array([7, 4]), nodes=nodes)
    assert list(one.parts["test"].graph_sizes) == [2, 2, 3, 3, 3]
    assert list(one.parts["test"].example_ids) == [7, 7, 4, 4, 4]


def test_an_ensemble_averages_probabilities_of_the_same_examples():
    first, second = drawn(0, noise=1.5), drawn(1, noise=1.5)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    part = second.parts["test"]
    shuffled = predictions(part.output[order], part.labels[order], 1, ids=order.numpy())
    mean = (softmax(first.parts["test"].output, 1) + softmax(part.output, 1)) / 2
    assert of_seeds([first, shuffled], ["accuracy"]) == {"accuracy": (mean.argmax(1) == part.labels).mean()}
    other = predictions(part.output, part.labels, ids=np.arange(1, 41))
    assert first.parts["test"].rows_of(other.parts["test"]) is None
