"""YAML from anywhere: bounded, of plain values, and every mistake one short line."""

import datetime
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
from gt_bench.pipeline.cell_list import listing
from tests.conftest import ROOT
from tests.gt_bench.conftest import RECIPE, write_yaml
from tests.refusals import refused

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
)
RECURSIVE = "&m {rec: *m, name: mlp}"
HOSTILE = {
    "lists": ("[" * 100_000, "line 1, column 51"),
    "sequences": ("- " * 100_000, "line 1, column 101"),
    "maps": ("{a: " * 500 + "1" + "}" * 500, "line 1, column 201"),
    "bomb": (BOMB, "line 6, column 8"),
    "itself": (RECURSIVE, "line 1, column 10"),
    "hexadecimal": ("a: 0x" + "f" * 20_000, "line 1, column 4"),
    "binary": ("a: 0b" + "1" * 90, "line 1, column 4"),
    "sexagesimal": ("a: 1" + ":1" * 3_000, "line 1, column 4"),
    "decimal": ("a: " + "9" * 5_000, "line 1, column 4"),
    "set": ("a: !!set {x, y}", "line 1, column 4"),
    "bytes": ("a: !!binary aGk=", "line 1, column 4"),
    "omap": ("a: !!omap [x: 1]", "line 1, column 4"),
    "merge": ("<<: {a: 1}", "line 1, column 1"),
    "key": ("? [a]\n: 1", "line 1, column 3"),
    "tag": ("a: !!bool maybe", ""),
    "timestamp": ("a: !!timestamp noon", ""),
    "long key": (f"{'k' * 1_000}: 1\n{'k' * 1_000}: 2", "line 1, column 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_ends_in_one_short_line(name):
    text, place = HOSTILE[name]
    start = time.process_time()
    with refused(RecipeError, place=place) as error:
        parse_yaml(text)
    assert time.process_time() - start < 5
    assert len(str(error.value)) < 400
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


@pytest.mark.parametrize("text", ["010", "-017", "00", "0x10", "0b11", "1:30", "12:30:45", "1:30.5"])
def test_a_number_that_yaml_would_read_as_another_is_refused_as_it_is_written(text):
    with refused(RecipeError, value=text):
        parse_yaml(f"epochs: {text}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-3", -3), ("+4", 4), ("1_000", 1000), ("1e-3", 0.001), ("0.5", 0.5), ("'010'", "010"), ("08", "08")],
)
def test_decimal_numbers_and_text_are_read_as_they_are_written(text, value):
    found = parse_yaml(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("value", [True, "3", 3.0, "wide"])
@pytest.mark.parametrize(
    "key",
    ["epochs", "batch.graphs", "schedule.warmup", "search.trials", "seeds", "split", "model.hidden_dim", "threads"],
)
def test_a_whole_number_is_nothing_else(tmp_path, key, value):
    check_refused(tmp_path, key, value)


@pytest.mark.parametrize("value", [True, "0.5"])
@pytest.mark.parametrize("key", ["optimizer.lr", "optimizer.betas", "model.dropout", "predictions"])
def test_a_number_is_neither_text_nor_true(tmp_path, key, value):
    check_refused(tmp_path, key, value)


def check_refused(folder, key, value):
    section, _, last = key.partition(".")
    value = [0, value] if key in ("seeds", "optimizer.betas") else value
    known = {"search": {"trials": 1, "space": {"model.dropout": {"low": 0, "high": 1}}}} | RECIPE
    content = {section: {**known.get(section, {}), last: value}} if last else {key: value}
    path = write_yaml(folder, RECIPE | content)
    with refused(RecipeError, place=key, value=value):
        check_model(load_recipe(path), path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"model": {"name": "mlp", "x": {"y": [1, {1: 2}]}}}, "model.x.y[1]"),
        ({"model": {"name": "mlp", "x": [[float("inf")]]}}, "model.x[0][0]"),
        ({"model": {"name": "mlp", "x": datetime.date(2026, 1, 2)}}, "model.x"),
        ({"encodings": {"rwse": {"steps": float("nan")}}}, "encodings.rwse.steps"),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(tmp_path, change, place):
    with refused(RecipeError, place=place):
        load_recipe(write_yaml(tmp_path, RECIPE | change))


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
    assert "x" * 100 in str(error.value)
    assert max(map(len, str(error.value).replace(str(path), "").splitlines())) < 600


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "problem"), [(0, "has no entries (given: hidden_dim: 0)"), (-1, "negative dimension -1")]
)
def test_a_model_without_width_is_refused(project, width, problem):
    from gt_bench.config.grid import load_grid
    from gt_bench.pipeline.train import train_cell

    project.recipe(model={"name": "mlp", "hidden_dim": width})
    grid = load_grid()
    with refused(RecipeError, place="model") as error:
        train_cell(grid.find("small/web/mlp"), grid)
    assert problem in error.value.problem
    assert project.records() == []


def test_a_yaml_file_is_a_regular_file_of_bounded_size(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "large.yaml").write_text("# " + "x" * (5 << 20))
    for name, problem in (
        ("pipe.yaml", "not a regular file"),
        ("zero.yaml", "not a regular file"),
        ("large.yaml", "more than 4,194,304 bytes"),
    ):
        with refused(RecipeError, file=str(tmp_path / name)) as error:
            read_yaml(tmp_path / name)
        assert problem in error.value.problem


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
