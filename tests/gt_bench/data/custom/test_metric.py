"""User-supplied metrics `file.py:function`: direction, identity, units, and messages for mistakes."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from gt_bench.data.custom.metric import MetricError, load_metric
from gt_bench.store.run_store import Store
from gt_bench.tasks.registry import create_task
from tests.gt_bench.custom_data import write_many, write_web
from tests.gt_bench.shipping import run
from tests.gt_bench.user_models import write
from tests.refusals import refused

COST = """
    def cost(output, target):
        wrong = output.argmax(1) != target
        return (wrong * (1.0 + target)).mean()

    cost.direction = "min"
    """


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_with_its_direction(here):
    write("lab/costs.py", COST)
    function, direction = load_metric("lab/costs.py:cost")
    assert direction == "min"
    output, target = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]), torch.tensor([1, 1, 0])
    assert function(output, target) == pytest.approx(2 / 3)
    task = create_task("node-classification", "lab/costs.py:cost", also=["accuracy"])
    assert task.direction == "min"
    assert task.evaluate([output[:2], output[2:]], [target[:2], target[2:]])["lab/costs.py:cost"] == pytest.approx(
        2 / 3
    )


def test_it_gets_all_columns_of_a_regression_and_cannot_change_what_others_get(here):
    text = """
        def last(output, target):
            assert output.shape == target.shape == (3, 2)
            assert target.isnan().sum() == 1
            target[:] = 0
            return output[-1, -1]
        last.direction = "max"
        """
    write("m.py", text)
    task = create_task("graph-regression", "m.py:last", also=["mae"])
    output, target = torch.arange(6.0).view(3, 2), torch.tensor([[0.0, 0.0], [0.0, torch.nan], [0.0, 0.0]])
    found = task.evaluate([output], [target])
    assert (found["m.py:last"], found["mae"]) == (5.0, (0 + 1 + 2 + 4 + 5) / 5)


@pytest.mark.parametrize(
    ("text", "name", "place", "value"),
    [
        (COST, "other.py:cost", "metric", None),
        (COST, "m.py:costs", "metric", "costs"),
        ("def f(output, target):\n    return 1\n", "m.py:f", "metric f", None),
        ("def f(output, target):\n    return 1\nf.direction = 'up'\n", "m.py:f", "metric f", "up"),
    ],
)
def test_a_metric_that_cannot_be_loaded(here, text, name, place, value):
    write("m.py", text)
    for load in (load_metric, partial(create_task, "edge-regression")):
        with refused(MetricError, file=name.partition(":")[0], place=place, value=value):
            load(name)


@pytest.mark.parametrize(
    ("body", "line", "remedy"),
    [
        ("return output.nothing", 2, "it was given output [4, 2], target [4]"),
        *((f"return {value}", 1, "expected a finite number") for value in ("None", "output", "float('nan')", "True")),
    ],
)
def test_a_metric_that_fails(here, body, line, remedy):
    write("m.py", f"def f(output, target):\n    {body}\nf.direction = 'max'\n")
    with refused(MetricError, file="m.py", place=f"line {line}", remedy=remedy):
        load_metric("m.py:f")[0](torch.randn(4, 2), torch.zeros(4, dtype=torch.long))


def test_tasks_of_published_datasets_have_only_their_own_metrics(here):
    write("m.py", COST)
    with pytest.raises(KeyError, match=r"no metric named 'm.py:cost'; known: auc"):
        create_task("hyperedge-prediction", "m.py:cost")


def ran(*arguments):
    shown = run("try", *arguments, "--seeds", "0", "--set", "epochs=3", "--set", "model.hidden_dim=4")
    return shown, [record.run for record in Store().records()]


@pytest.mark.slow
def test_it_selects_the_epoch_and_its_text_is_part_of_the_identity(here):
    write_web(here / "papers")
    write("costs.py", COST)
    shown, runs = ran("mlp", "./papers", "--metric", "costs.py:cost")
    assert shown.exit_code == 0, shown.output
    (one,) = runs
    assert (one.metric, one.direction) == ("costs.py:cost", "min")
    assert one.val == min(v for v in one.epochs["val"] if v is not None)
    assert set(one.test_metrics) == {"loss", "costs.py:cost"}
    assert len(ran("mlp", "papers")[1]) == 1  # stored
    score = ("score", "tried/papers/mlp-epochs-3-hidden-dim-4", "--json", "--metric", "costs.py:cost", "--metric")
    assert "--metric ap: not a metric of node-classification" in str(run(*score, "ap").exception)
    scored = run(*score, "f1-macro")
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["metrics"]["costs.py:cost"]["mean"] == pytest.approx(one.test)
    write("costs.py", COST.replace("1.0 + target", "2.0 + target"))
    shown, runs = ran("mlp", "papers")
    assert shown.exit_code == 0, shown.output
    assert len({run.digests.metric for run in runs}) == 2
    assert len({run.digests.data for run in runs}) == 1


@pytest.mark.slow
def test_it_gets_targets_in_the_unit_of_the_data(here):
    write_many(here / "many")
    text = """
        def largest(output, target):
            return (target.max() - target.min()).abs()
        largest.direction = "min"
        """
    write("m.py", text)
    shown, runs = ran("mlp", "./many", "--metric", "m.py:largest")
    assert shown.exit_code == 0, shown.output
    assert "targets=train" not in shown.output
    assert runs[0].test == round(runs[0].test)  # counts of atoms
    assert "/ σ" not in shown.output
    shown, _ = ran("mlp", "many", "--set", "targets=train")
    assert "targets: train standardises the targets, but the metric m.py:largest of 'many'" in str(shown.exception)


def test_a_mistake_in_the_metric_is_reported_before_anything_is_stored(here):
    write_web(here / "papers")
    write("m.py", "def f(output, target):\n    return 1.0\n")
    shown, runs = ran("mlp", "./papers", "--metric", "m.py:f")
    assert isinstance(shown.exception, MetricError)
    assert not runs
    assert not Path("datasets.yaml").exists()
