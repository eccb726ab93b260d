"""`gt-bench score` from stored predictions: metrics, groups and ensembles."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gt_bench.analysis.score import aligned, by_class, by_graph_size, ensemble, loaded, scored
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.rows import summarise
from gt_bench.pipeline.train import train_cell
from gt_bench.store.predictions import FILE
from gt_bench.store.shipped_files import read_result
from tests.gt_bench.analysis.cases import drawn, predictions
from tests.gt_bench.shipping import CELL, export, run, train


def test_metrics_by_seed_and_their_mean(project):
    from sklearn.metrics import f1_score

    project.recipe()
    train()
    _, found = loaded(CELL, load_grid())
    accuracy, f1 = scored(found, ["accuracy", "f1-macro"])
    assert (
        accuracy.recorded
        == accuracy.values
        == {r["deterministic"]["seed"]: r["deterministic"]["test"] for r in project.records()}
    )
    part = found[0].parts["test"]
    seed = found[0].record["deterministic"]["seed"]
    assert f1.values[seed] == pytest.approx(f1_score(part.labels, part.output.argmax(1), average="macro"))
    assert f1.recorded == {}
    assert f1.mean == pytest.approx(sum(f1.values.values()) / 2)
    result = read_result(Path(f"results/{CELL}.json"), CELL)
    assert accuracy.std == pytest.approx(summarise(result, project.records())["std"])


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


def test_runs_that_failed_are_named(project):
    project.recipe()
    train()
    path = next(Path("store").glob("??/*/record.json"))
    record = json.loads(path.read_text())
    record["deterministic"] |= {"status": "diverged", "error": "set by the test"}
    del record["checksum"]
    path.write_text(json.dumps(record))
    assert (
        "left out, as they did not end well: 1 diverged of 2 runs" in run("score", CELL, "--metric", "accuracy").output
    )


def test_a_metric_of_the_user_is_not_computed_on_standardised_targets(project):
    """It would be a number in a wrong unit."""
    project.recipe("many", targets="train")
    train_cell(load_grid().find("small/many/mlp"), load_grid())
    Path("m.py").write_text("def largest(o, t):\n    return t.max()\n\nlargest.direction = 'max'\n")
    done = run("score", "small/many/mlp", "--metric", "m.py:largest")
    assert isinstance(done.exception, RecipeError)
    assert "those of this run are standardised (targets: train in its recipe)" in str(done.exception)
    assert "mae / σ" in run("score", "small/many/mlp", "--metric", "mae").output
    project.recipe("many")
    train_cell(load_grid().find("small/many/mlp"), load_grid())
    assert "/ σ" not in run("score", "small/many/mlp", "--metric", "mae", "--metric", "m.py:largest").output


def test_a_shipped_cell_is_scored_without_its_weights_and_store(trained):
    import shutil

    export()
    before = run("score", CELL, "--metric", "f1-macro", "--json").output
    shutil.rmtree("store")
    shutil.rmtree("results")
    assert run("score", CELL, "--metric", "f1-macro", "--json").output == before
    assert run("score", f"{CELL}@shipped", "--metric", "f1-macro", "--json").output == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--metric", "aucroc"],
            r"--metric aucroc: not a metric of node-classification .*\[N, 3\].*; expected one of accuracy,",
        ),
        (["--metric", "mae"], "--metric mae: not a metric of node-classification"),
        (["--by", "graph-size"], "--by graph-size: examples of web are nodes of one graph"),
        (["--ensemble"], "the seeds of this cell have different test examples"),
        (["--against", "small/web/other"], "no cell 'small/web/other'"),
        (["--against", CELL, "--by", "class"], "cannot be combined with --by; remove one"),
        (
            ["--against", "small/many/mlp"],
            "node-classification and small/many/mlp is graph-regression: they have no common",
        ),
    ],
)
def test_a_question_that_has_no_answer_is_refused(project, arguments, message):
    project.recipe()
    project.recipe("many")
    train()
    grid = load_grid()
    train_cell(grid.find("small/many/mlp"), grid)
    done = run("score", CELL, *arguments)
    assert done.exit_code == 1
    with pytest.raises(Exception, match=message):
        raise done.exception


def test_a_cell_without_a_run_and_one_without_predictions(project):
    project.recipe(run={"predictions": 0})
    assert "no run with status ok, here or shipped" in str(run("score", CELL, "--metric", "accuracy").exception)
    train()
    assert "`gt-bench train small/web/mlp --predictions` computes" in str(
        run("score", CELL, "--metric", "accuracy").exception
    )
    project.recipe()
    assert run("train", CELL, "--predictions").exit_code == 0
    assert len(list(Path("store").glob(f"??/*/{FILE}"))) == 2
    assert run("score", CELL, "--metric", "accuracy").exit_code == 0


def test_a_shipped_cell_without_predictions_says_how_to_get_them(trained):
    trained.recipe(run={"predictions": 0})
    shutil.rmtree("store")
    train()
    export()
    for folder in ("store", "results"):
        shutil.rmtree(folder)
    said = str(run("score", CELL, "--metric", "accuracy").exception)
    assert "seed 0 has no stored predictions: run.predictions is 0; set `run.predictions: 1` in params.yaml" in said
    assert (
        f"`gt-bench store import {CELL}` copies its shipped records to the store, then `gt-bench train {CELL}" in said
    )
    assert "weights are not; `gt-bench score small/web/mlp --metric NAME` uses" in str(run("score", CELL).exception)
    # as the message advises
    trained.recipe()
    assert run("store", "import", CELL).exit_code == 0
    assert run("train", CELL, "--predictions").exit_code == 0
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
    mean = (first.parts["test"].output.double().softmax(1) + part.output.double().softmax(1)) / 2
    expected = (mean.argmax(1) == part.labels).double().mean().item()
    assert ensemble([first, shuffled], ["accuracy"]) == {"accuracy": expected}
    assert (
        aligned(first.parts["test"], predictions(part.output, part.labels, ids=np.arange(1, 41)).parts["test"]) is None
    )
