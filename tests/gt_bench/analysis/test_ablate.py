"""`gt-bench ablate`: pairs of cells, the sign of an effect, the message without pairs, and the plot."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.analysis import ablate
from gt_bench.analysis.ablate import Arm, effects, factors, forest, nothing_to_compare, summary, value_of
from gt_bench.config.grid import load_grid
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import Version
from gt_bench.pipeline.train import train_cell
from gt_bench.utils.errors import UserError
from tests.gt_bench.cells import changed, make_record
from tests.gt_bench.conftest import RECIPE
from tests.gt_bench.shipping import run
from tests.refusals import refused


def arm(
    cell: str, recipe: dict, values=(0.5, 0.6, 0.7), dataset: str = "web", direction: str = "max", first: int = 0
) -> Arm:
    name = f"s/{dataset}/{cell}"
    records = [make_record(name, seed, test=value) for seed, value in enumerate(values, first)]
    return Arm(name, "own", (dataset,), recipe, [changed(one, run={"direction": direction}) for one in records])


BASE = {"model.name": "gcn", "model.dropout": 0.0, "epochs": 6}


def test_pairs_differ_in_the_factor_alone():
    arms = [
        arm("a", BASE),
        arm("b", BASE | {"model.dropout": 0.5}, (0.6, 0.7, 0.9)),
        arm("c", BASE | {"model.dropout": 0.5, "epochs": 7}),
        arm("d", BASE | {"model.dropout": 0.5}, dataset="other"),
    ]
    (one,) = effects(arms, ["model.dropout"], Rules())
    assert (one.first.cell, one.second.cell, one.before, one.after) == ("s/web/a", "s/web/b", "0.0", "0.5")
    assert one.found.difference == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert factors(arms) == {"model.dropout": 1, "epochs": 1}
    assert [(e.first.cell, e.second.cell) for e in effects(arms, ["model.dropout", "epochs"], Rules())] == [
        ("s/web/a", "s/web/b"),
        ("s/web/a", "s/web/c"),
        ("s/web/b", "s/web/c"),
    ]


def test_a_smaller_error_is_an_improvement_and_values_are_ordered_by_number():
    arms = [
        arm("big", BASE | {"epochs": 10}, (0.1, 0.2, 0.3), direction="min"),
        arm("small", BASE | {"epochs": 9}, (0.2, 0.3, 0.4), direction="min"),
    ]
    (one,) = effects(arms, ["epochs"], Rules())
    assert (one.before, one.after) == ("9", "10")
    assert one.found.difference == pytest.approx(0.1)


def test_an_encoding_is_absent_or_has_arguments():
    arms = [
        arm("none", BASE),
        arm("short", BASE | {"encodings.rrwp": "present", "encodings.rrwp.steps": 4}),
        arm("long", BASE | {"encodings.rrwp": "present", "encodings.rrwp.steps": 8}),
    ]
    assert [value_of(one, ["encodings.rrwp"]) for one in arms] == ["absent", "steps=4", "steps=8"]
    assert {(e.before, e.after) for e in effects(arms, ["encodings.rrwp"], Rules())} == {
        ("absent", "steps=4"),
        ("absent", "steps=8"),
        ("steps=4", "steps=8"),
    }
    assert factors(arms) == {"encodings.rrwp": 3}


def test_keys_of_the_evaluation_are_no_factors():
    """Counts of other pairs of graphs are no comparison, and the rule for splits changes no run of a seed and split."""

    def of(row: str, pairs: list[list[int]], **recipe) -> Arm:
        record = make_record("small/web/mlp", 0)
        record.run.recipe.update({"brec": {"pairs": pairs, "margin": 0.0}, **recipe})
        return ablate._arm(SimpleNamespace(cell=f"small/web/{row}", dataset="web"), "own", [record])

    basic, extension = [[0, 60]], [[160, 260]]
    found = [of("a", basic, split="seed"), of("b", extension, split="seed"), of("c", basic, split=0, epochs=3)]
    assert factors(found) == {"epochs": 1}
    assert effects(found, ["brec.pairs"], Rules()) == effects(found, ["split"], Rules()) == []


def test_only_common_seeds_count():
    first, second = arm("a", BASE, (0.1, 0.2)), arm("b", BASE | {"epochs": 9}, (0.3, 0.4, 0.5))
    assert effects([first, second], ["epochs"], Rules())[0].found.pairs == 2
    apart = arm("c", BASE | {"epochs": 9}, (0.3,), first=7)
    assert effects([first, apart], ["epochs"], Rules()) == []


def test_over_several_pairs_the_summary_counts_and_averages():
    arms = []
    for i, gain in enumerate((0.1, 0.2, -0.05)):
        arms += [
            arm("a", BASE, (0.5, 0.5, 0.5), f"d{i}"),
            arm("b", BASE | {"epochs": 9}, tuple(0.5 + gain + e for e in (0, 0.01, 0.02)), f"d{i}"),
        ]
    lines = summary(effects(arms, ["epochs"], Rules()), Rules())
    assert lines[0].startswith(
        "6 -> 9: better in 2 of 3 pairs, worse in 1, sign test p = 1; significant alone: 2 better, 1 worse"
    )
    assert lines[1].startswith("  accuracy %: mean +9.33 [")


def test_a_factor_without_pairs_states_what_else_differs():
    arms = [arm("a", BASE), arm("b", BASE | {"model.dropout": 0.5, "epochs": 7})]
    text = str(nothing_to_compare(arms, ["model.dropout"]))
    assert "no two cells differ in model.dropout alone" in text
    assert "s/web/a and s/web/b differ also in epochs" in text
    assert "no recipe has the value 'model.dropot' (did you mean 'model.dropout'?)" in str(
        nothing_to_compare(arms, ["model.dropot"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_forest_plots(suffix, magic):
    pairs = effects([arm("a", BASE), arm("b", BASE | {"epochs": 9}, (0.6, 0.8, 0.7))], ["epochs"], Rules())
    content = forest("epochs", pairs, suffix)
    assert content.startswith(magic)
    if suffix == ".svg":
        assert b"s web: a, b: 6 -&gt; 9" in content
    assert forest("epochs", pairs, suffix) == content


@pytest.fixture
def dropouts(project):
    """Three cells: two differ only in dropout, which one leaves at its default; one also differs in width."""
    model = {key: value for key, value in RECIPE["model"].items() if key != "dropout"}
    project.recipe(row="dropped")
    project.recipe(row="plain", model=model)
    project.recipe(row="wide", model={**model, "hidden_dim": 16})
    grid = load_grid()
    for cell in grid.cells.values():
        train_cell(cell, grid)
    return project


@pytest.mark.slow
def test_the_command_on_own_cells_with_a_default(dropouts, tmp_path):
    content = json.loads(run("ablate", "model.dropout", "--json").output)
    assert [(one["first"], one["second"], one["before"], one["after"]) for one in content] == [
        ("small/web/plain", "small/web/dropped", "0.0", "0.2")
    ]
    records = {r.run.recipe["model"].get("dropout", 0.0): [] for r in dropouts.records()}
    for record in dropouts.records():
        if record.run.recipe["model"]["hidden_dim"] == 8:
            records[record.run.recipe["model"].get("dropout", 0.0)].append(record.run.test)
    assert content[0]["difference"] == pytest.approx(sum(records[0.2]) / 2 - sum(records[0.0]) / 2)
    done = run("ablate", "model.dropout", "small", "--plot", str(tmp_path / "f.svg"))
    assert done.exit_code == 0
    assert Path(tmp_path / "f.svg").read_bytes().startswith(b"<?xml")
    listed = json.loads(run("ablate", "--json").output)
    assert sorted(listed) == [["model.dropout", 1], ["model.hidden_dim", 1]]


def test_a_run_with_an_undefined_metric_is_in_no_pair(project, monkeypatch):
    project.recipe()
    records = [make_record("small/web/mlp", seed, test=test) for seed, test in enumerate((0.5, math.nan, math.inf))]
    version = Version.of("own", {}, records)
    monkeypatch.setattr(ablate, "versions_of", lambda *_: [version])
    grid = load_grid()
    (one,) = ablate.arms(grid, list(grid.cells.values()))[0]
    assert [record.run.test for record in one.records] == [0.5]
    assert one.runs == {(0, 0)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "place", "value"),
    [
        (["optimizer.lr"], "gt-bench ablate optimizer.lr", "optimizer.lr"),
        (["model.depth"], "gt-bench ablate model.depth", "model.depth"),
        (["model.dropout", "--plot", "x.gif"], "--plot", Path("x.gif")),
        (["--plot", "x.png"], "--plot", Path("x.png")),
        (["model.dropout", "smal"], "", "smal"),
        ([","], "gt-bench ablate", ","),
    ],
)
def test_the_command_refuses(dropouts, arguments, place, value):
    with refused(UserError, place=place, value=value):
        raise run("ablate", *arguments).exception
