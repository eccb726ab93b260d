"""YAML from anywhere: bounded, of plain values, and every mistake one short line."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gt_bench.config.grid import Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError, parse_yaml, read_yaml
from gt_bench.experiment.validate import check_model
from gt_bench.reports.cell_list import listing
from tests.conftest import ROOT
from tests.gt_bench.conftest import RECIPE, write_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
)
RECURSIVE = "&m {rec: *m, name: mlp}"
HOSTILE = {
    "lists": ("[" * 100_000, "more than 50 levels of nesting"),
    "sequences": ("- " * 100_000, "more than 50 levels of nesting"),
    "maps": ("{a: " * 500 + "1" + "}" * 500, "more than 50 levels of nesting"),
    "bomb": (BOMB, "more than 200,000 values"),
    "itself": (RECURSIVE, r"\*m contains itself"),
    "hexadecimal": ("a: 0x" + "f" * 20_000, "at most 64 bits"),
    "binary": ("a: 0b" + "1" * 90, "at most 64 bits"),
    "sexagesimal": ("a: 1" + ":1" * 3_000, "at most 64 bits"),
    "decimal": ("a: " + "9" * 5_000, "at most 64 bits"),
    "set": ("a: !!set {x, y}", "tag !!set is not supported; use a list"),
    "bytes": ("a: !!binary aGk=", "tag !!binary is not supported; use text"),
    "omap": ("a: !!omap [x: 1]", "tag !!omap is not supported"),
    "merge": ("<<: {a: 1}", r"merge keys \(<<\) are not supported"),
    "key": ("? [a]\n: 1", "expected text as a key"),
    "tag": ("a: !!bool maybe", "not have the type of its tag"),
    "timestamp": ("a: !!timestamp noon", "not have the type of its tag"),
    "long key": (f"{'k' * 1_000}: 1\n{'k' * 1_000}: 2", "duplicate key"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_ends_in_one_short_line(name):
    text, words = HOSTILE[name]
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match=words) as error:
        parse_yaml(text)
    assert time.process_time() - start < 5
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("line ") or name in ("tag", "timestamp")


@pytest.mark.parametrize("place", ["loss", "model: {name: mlp, hidden_dim", "encodings", "origin"])
@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if name not in ("merge", "key", "long key", "sequences", "bomb")]
)
def test_a_hostile_value_anywhere_in_a_recipe(tmp_path, place, name):
    value = HOSTILE[name][0].removeprefix("a: ")
    path = write_yaml(
        tmp_path,
        yaml.safe_dump({k: v for k, v in RECIPE.items() if k != place[:5]})
        + f"{place}: {value}{'}' * ('{' in place)}\n",
    )
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)


def test_aliases_that_repeat_little_are_accepted():
    assert parse_yaml("a: &x {b: 1}\nc: *x\nd: [*x, *x]") == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}] * 2}


def test_one_bad_recipe_of_a_list_is_one_line_and_the_others_continue(project):
    project.recipe(row="mlp")
    for name in ("lists", "itself", "bytes", "bomb"):
        project.recipe(row=name.replace(" ", "-")).write_text(HOSTILE[name][0])
    cells = yaml.safe_load(Path("params.yaml").read_text())
    grid = Grid(**cells | {"cells": {key: {"key": key, **cell} for key, cell in cells["cells"].items()}})
    found, problems = listing(grid.cells.values(), grid)
    assert {line["cell"]: line["state"] for line in found if line["state"] != "unreadable"} == {
        "small/web/mlp": "not run"
    }
    assert len(problems) == 4
    assert not any("\n" in problem for problem in problems)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": True}, "epochs: expected a number (given: True)"),
        ({"optimizer": {"lr": True}}, "optimizer.lr: expected a number (given: True)"),
        ({"optimizer": {"lr": 0.1, "betas": [True, 0.9]}}, "optimizer.betas: expected a number (given: [True, 0.9])"),
        ({"seeds": [0, True]}, "seeds: expected a number (given: [0, True])"),
        ({"batch": {"graphs": False}}, "batch.graphs: expected a number (given: False)"),
        ({"schedule": {"warmup": True}}, "schedule.warmup: expected a number"),
        (
            {"search": {"trials": True, "space": {"model.dropout": {"low": 0, "high": 1}}}},
            "search.trials: expected a number",
        ),
        ({"model": {"name": "mlp", "hidden_dim": True}}, "model.hidden_dim: expected a number (given: True)"),
        ({"model": {"name": "mlp", "dropout": False}}, "model.dropout: expected a number (given: False)"),
        ({"model": {"name": "mlp", "x": {"y": [1, {1: 2}]}}}, "x.y[1]: the key 1 is not text"),
        ({"model": {"name": "mlp", "x": [[float("inf")]]}}, "x[0][0] is inf; expected a finite number"),
        (
            {"model": {"name": "mlp", "x": __import__("datetime").date(2026, 1, 2)}},
            "x is datetime.date(2026, 1, 2); expected a number, text",
        ),
        ({"encodings": {"rwse": {"steps": float("nan")}}}, "rwse.steps is nan"),
    ],
)
def test_values_that_are_no_numbers(tmp_path, change, words):
    path = write_yaml(tmp_path, RECIPE | change)
    with pytest.raises(RecipeError) as error:
        check_model(load_recipe(path), path)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "x" * 100_000},
        {"epochs": "x" * 100_000},
        {"seeds": ["x" * 100_000]},
        {"origin": {"model": "x" * 100_000}},
        {"origin": {"x" * 100_000: "chosen: y"}},
        {"x" * 100_000: 1},
        {"model": {"name": "mlp", "x" * 100_000: 1}},
        {"model": {"name": "mlp", "hidden_dim": "x" * 100_000}},
        {"base": ["x" * 100_000]},
        {"search": {"trials": 1, "space": {"epochs": {"choices": [["x" * 100_000]]}}}},
    ],
    ids=range(10),
)
def test_a_message_shows_at_most_200_characters_of_a_value(tmp_path, change):
    path = write_yaml(tmp_path, RECIPE | change)
    with pytest.raises(RecipeError) as error:
        check_model(load_recipe(path), path)
    assert max(map(len, str(error.value).replace(str(path), "").splitlines())) < 600


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, -1])
def test_a_model_without_width_is_refused(project, width):
    from gt_bench.config.grid import load_grid
    from gt_bench.pipeline.train import train_cell

    project.recipe(model={"name": "mlp", "hidden_dim": width})
    grid = load_grid()
    with pytest.raises(RecipeError, match="model: .*"):
        train_cell(grid.find("small/web/mlp"), grid)
    assert project.records() == []


def test_a_yaml_file_is_a_regular_file_of_bounded_size(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "large.yaml").write_text("# " + "x" * (5 << 20))
    for name, words in (
        ("pipe", "not a regular file"),
        ("zero", "not a regular file"),
        ("large", "more than 4,194,304 bytes"),
    ):
        with pytest.raises(RecipeError, match=f"{name}.yaml: {words}"):
            read_yaml(tmp_path / f"{name}.yaml")


def test_the_digest_of_a_recipe_does_not_depend_on_the_hash_seed(tmp_path):
    path = write_yaml(tmp_path, yaml.safe_dump(RECIPE).replace("name: mlp", "name: mlp\n  x: {b: [q, w, e], a: 1}"))
    code = (
        "from gt_bench.config.recipe import load_recipe; from gt_bench.utils.digest import digest_of; "
        f"print(digest_of(load_recipe({str(path)!r}).decisive()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}, stdout=-1
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) == 65
