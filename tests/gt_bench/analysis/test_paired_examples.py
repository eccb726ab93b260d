"""Two cells compared by their predictions on the same examples: McNemar's test and the paired bootstrap."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from gt_bench.analysis import paired_examples
from gt_bench.analysis.paired_examples import SeedPair, bootstrap, example_error, mcnemar
from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.store.run_store import Store
from tests.gt_bench.analysis.cases import drawn, predictions
from tests.gt_bench.cells import make_record
from tests.gt_bench.shipping import CELL, run, train


def paired(first, second) -> SeedPair:
    return SeedPair(0, first, second, first.parts["test"].rows_of(second.parts["test"]), "test")


def test_mcnemar_counts_discordant_examples():
    first, second = drawn(0, noise=0.4), drawn(1, noise=2.0)
    found = mcnemar(paired(first, second))
    labels = first.parts["test"].labels
    right = [one.parts["test"].output.argmax(1) == labels for one in (first, second)]
    assert found.only_first == int((right[0] & ~right[1]).sum())
    assert found.only_second == int((right[1] & ~right[0]).sum())
    expected = binomtest(found.only_first, found.only_first + found.only_second).pvalue
    assert found.p_value == pytest.approx(expected)
    assert expected < 0.05
    assert mcnemar(paired(first, first)).p_value == 1.0


def test_the_interval_of_the_paired_bootstrap_covers_the_true_difference():
    """Coverage over 60 data sets whose true difference of accuracies is 0.2."""
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        target = torch.zeros(150, dtype=torch.long)
        right = [rng.random(150) < p for p in (0.8, 0.6)]
        sides = [
            predictions(torch.from_numpy(np.stack([r, ~r], 1).astype(np.float32)), target, ids=np.arange(150))
            for r in right
        ]
        low, high = bootstrap([paired(*sides)], "accuracy", 200).interval
        covered += low <= 0.2 <= high
    assert 52 <= covered <= 60


def both_runs(monkeypatch, first, second):
    """Pairs of records, whose predictions are given."""
    by_record = {id(one.record): one for one in (*first, *second)}
    monkeypatch.setattr(paired_examples, "load", lambda cell, record, *_: by_record[id(record)])
    return [(a.record, b.record) for a, b in zip(first, second, strict=True)]


def test_the_error_by_examples_of_an_accuracy_is_that_of_paired_counts(monkeypatch):
    first, second = ([drawn(seed, n=300, noise=noise) for seed in range(4)] for noise in (0.8, 1.5))
    runs = both_runs(monkeypatch, first, second)
    found = example_error(("a", "b"), runs, "accuracy", Store())
    parts = [[one.parts["test"] for one in side] for side in (first, second)]
    right = [np.stack([part.output.argmax(1) == part.labels for part in side]) for side in parts]
    differences = (right[0].astype(float) - right[1]).mean(0)
    assert found.shared
    assert found.error == pytest.approx(differences.std(ddof=1) / 300**0.5, rel=0.25)
    same = example_error(("a", "a"), [(one, one) for one, _ in runs], "accuracy", Store())
    assert same.error == 0


def test_the_error_by_examples_of_counts_is_binomial():
    records = [make_record("ppgt/brec/ppgt", seed, test=200.0) for seed in range(2)]
    for record in records:
        record.run.epochs["pair"] = list(range(400))
    found = example_error(("a", "b"), [(records[0], records[1])], "pairs-distinguished", Store())
    assert found.error == pytest.approx((2 * 400 * 0.25) ** 0.5, rel=1e-3)


def test_without_predictions_the_error_by_examples_is_unknown(tmp_path):
    record = make_record("small/web/mlp", 0)
    said = example_error(("small/web/mlp", "small/web/gcn"), [(record, record)], "accuracy", Store(tmp_path), tmp_path)
    assert isinstance(said, str)


def test_nodes_of_a_graph_are_drawn_together(capsys, monkeypatch):
    """Coverage over 60 data sets of 30 graphs, in each of which a model is right on all nodes or on none."""
    graphs, nodes, covered = 30, 10, 0
    target = torch.zeros(graphs * nodes, dtype=torch.long)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        right = [np.repeat(rng.random(graphs) < p, nodes) for p in (0.8, 0.6)]
        outputs = [torch.from_numpy(np.stack([r, ~r], 1).astype(np.float32)) for r in right]
        sides = [predictions(one, target, ids=np.arange(graphs), nodes=np.full(graphs, nodes)) for one in outputs]
        low, high = bootstrap([paired(*sides)], "accuracy", 200).interval
        covered += low <= 0.2 <= high
    assert 52 <= covered <= 60
    monkeypatch.setattr(paired_examples, "loaded", lambda *_: (None, [sides[0]]))
    paired_examples.show(("a", "b"), load_grid(), ["accuracy"], "test", 100, as_json=False)
    said = capsys.readouterr().out
    assert "paired bootstrap: 100 draws of the graphs" in said
    assert "McNemar" not in said  # it assumes independent examples


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "f1-macro"])
def test_means_per_example_and_metrics_of_all_examples_agree(metric, monkeypatch):
    pairs = [paired(drawn(0, noise=0.8), drawn(1, noise=1.5))]
    fast = bootstrap(pairs, metric, 100)
    monkeypatch.setattr("gt_bench.analysis.paired_examples._per_example", lambda pair, metric: None)
    slow = bootstrap(pairs, metric, 100)
    assert fast.interval == pytest.approx(slow.interval)
    assert fast.first - fast.second == pytest.approx(pairs[0].first.score(metric) - pairs[0].second.score(metric))


def test_a_smaller_error_is_better():
    ids, target = np.arange(50), torch.zeros(50, 1)
    rng = torch.Generator().manual_seed(0)
    good, bad = (
        predictions(scale * torch.randn(50, 1, generator=rng), target, task="graph-regression", ids=ids)
        for scale in (0.1, 2.0)
    )
    assert bootstrap([paired(good, bad)], "mae", 200).word == "first"
    assert bootstrap([paired(bad, good)], "mse", 200).word == "second"


def test_an_undefined_metric_is_null_in_json(capsys, monkeypatch):
    one_class = predictions(torch.randn(20, 2), [0] * 20, ids=np.arange(20))
    monkeypatch.setattr(paired_examples, "loaded", lambda *_: (None, [one_class]))
    paired_examples.show(("a", "b"), load_grid(), ["roc-auc"], "test", 100, as_json=True)
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["metrics"]["roc-auc"] == {"first": None, "second": None, "interval": None, "word": "inconclusive"}


@pytest.mark.slow
def test_cells_with_different_splits_are_not_paired_and_the_error_names_both(project):
    project.recipe()
    project.recipe(row="gcn", model={"name": "gcn", "hidden_dim": 8, "num_layers": 2}, split=1, seeds=[0])
    train()
    grid = load_grid()
    train_cell(grid.find("small/web/gcn"), grid)
    message = str(run("score", CELL, "--against", "small/web/gcn").exception)
    assert "different test sets (seed 0: 20 examples of web, split 0, and 20 of web, split 1)" in message
    assert f"`gt-bench compare {CELL} small/web/gcn`" in message


@pytest.mark.slow
def test_the_command_compares_two_cells(project):
    project.recipe()
    project.recipe(row="gcn", model={"name": "gcn", "hidden_dim": 8, "num_layers": 2})
    train()
    grid = load_grid()
    train_cell(grid.find("small/web/gcn"), grid)
    done = run("score", CELL, "--against", "small/web/gcn", "--json", "--resamples", "100")
    content = json.loads(done.output)
    assert content["seeds"] == [0, 1]
    assert content["mcnemar"].keys() == {"0", "1"}
    low, high = content["metrics"]["accuracy"]["interval"]
    assert low <= content["metrics"]["accuracy"]["first"] - content["metrics"]["accuracy"]["second"] <= high
    assert "McNemar's exact test" in run("score", CELL, "--against", "small/web/gcn", "--resamples", "100").output


def of_accuracy(first_right, second_right):
    """A pair of predictions of two classes, by whether each example is right."""
    target = torch.zeros(len(first_right), dtype=torch.long)
    sides = [
        predictions(torch.tensor([[float(r), float(not r)] for r in right]), target, ids=np.arange(len(right)))
        for right in (first_right, second_right)
    ]
    return paired(*sides)


@pytest.mark.parametrize(("differing", "word"), [(2, "inconclusive"), (5, "inconclusive"), (6, "first")])
def test_few_examples_that_differ_decide_nothing(differing, word):
    pair = of_accuracy([True] * differing, [False] * differing)
    assert bootstrap([pair], "accuracy", 200).word == word
    assert (mcnemar(pair).p_value < 0.05) == (word == "first")


def test_the_error_by_two_examples_is_that_of_two_new_ones_and_by_one_it_is_unknown(monkeypatch):
    two = of_accuracy([True, True], [True, False])
    found = example_error(("a", "b"), both_runs(monkeypatch, [two.first], [two.second]), "accuracy", Store())
    assert found.error == pytest.approx(np.std([1, 0], ddof=1) / 2**0.5, rel=0.2)
    one = of_accuracy([True], [False])
    assert isinstance(
        example_error(("a", "b"), both_runs(monkeypatch, [one.first], [one.second]), "accuracy", Store()), str
    )
