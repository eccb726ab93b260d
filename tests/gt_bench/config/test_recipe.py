"""Every mistake in a recipe names the file, the key and the nearest valid one."""

import math

import pytest
import yaml

from gt_bench.config.origins import check_origins
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from tests.gt_bench.conftest import RECIPE, write_yaml
from tests.refusals import refused

SPACE = {"model.dropout": {"choices": [0.1]}}
SAMPLED = {"targets": 5, "neighbors": [5]}
ON_TEST = {"select": "test", "origin": {"select": "authors: x"}}
TWICE = dict.fromkeys(("optimizer.lr", "optimizer.name"), "printed: Table 4") | {"optimizer": "authors: a script"}


def space(**values) -> dict:
    return {"search": {"trials": 2, "space": {"epochs": values}}}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"epocs": 3}, "epocs"),
        ({"optimizer": {"lr": 0.1, "weight_dacay": 0}}, "optimizer.weight_dacay"),
        ({"optimizer": {"name": "adam"}}, "optimizer.lr"),
        ({"optimizer": {"lr": -1}}, "optimizer.lr"),
        ({"optimizer": {"lr": 0.1, "clip_norm": math.inf}}, "optimizer.clip_norm"),
        ({"optimizer": 3}, "optimizer"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": None}, ""),
        ({"seeds": [1, 1]}, "seeds"),
        ({"batch": {"graphs": 2, "parts": 3}}, "batch"),
        ({"batch": {"targets": 5}}, "batch"),
        ({"batch": {"neighbors": [5]}}, "batch"),
        ({"batch": {"targets": 5, "neighbors": []}}, "batch.neighbors"),
        ({"batch": {"targets": 5, "neighbors": [0]}}, "batch.neighbors.0"),
        ({"batch": SAMPLED | {"parts": 2}}, "batch.targets"),
        ({"batch": SAMPLED | {"graphs": 2}}, "batch.targets"),
        ({"batch": {"bucket": True}}, "batch.bucket"),
        ({"batch": {"last": "alone", "edges": 9}}, "batch.last"),
        ({"batch": SAMPLED, "processes": 2}, "processes"),
        ({"features": {"scale": "standart"}}, "features.scale"),
        ({"features": {"fill": "mean"}}, "features.fill"),
        ({"features": {"missing": "drop"}}, "features.missing"),
        ({"features": "standard"}, "features"),
        ({"subgraphs": {"hops": 1, "max_nodes": 5}}, "subgraphs"),
        ({"search": {"trials": 2, "space": {}}}, "search.space"),
        (space(choices=[]), "search.space.epochs.choices"),
        (space(choices=[[0], [1]]), "search.space.epochs.choices"),
        (space(choices=[math.nan]), "search.space.epochs.choices"),
        (space(low=1, high=0), "search.space.epochs"),
        (space(low=2, high=9, log=True, step=2), "search.space.epochs"),
        (space(low=2, high=9, step=0), "search.space.epochs"),
        (space(low=1.5, high=9, integer=True), "search.space.epochs"),
        (space(low=0, high=1, hihg=1), "search.space.epochs.hihg"),
        ({"schedule": {"name": "cosin"}}, "schedule.name"),
        ({"schedule": {"start_factor": math.inf}}, "schedule.start_factor"),
        ({"schedule": {"name": "step"}}, "schedule.every"),
        ({"schedule": {"name": "cosine", "every": 3}}, "schedule.every"),
        ({"model": {"name": "mlp", "dropout": math.inf}}, "model.dropout"),
        ({"select": "test"}, "select"),
        (ON_TEST | {"patience": 2}, "select"),
        (ON_TEST | {"search": {"trials": 2, "space": SPACE}}, "select"),
        (ON_TEST | {"schedule": {"name": "plateau"}}, "select"),
        ({"patience": 3, "eval_every": 5}, "patience"),
        ({"epochs": None, "phases": [{"name": "local", "epochs": 9}], "patience": 3}, "patience"),
        ({"origin": 3}, "origin"),
        ({"origin": {"optimizer.lr": ["printed: Table 4"]}}, "origin.optimizer.lr"),
        ({"origin": {"optimizer.rl": "printed: Table 4"}}, "origin.optimizer.rl"),
        ({"origin": {"optimizer.lr": "Table 4"}}, "origin.optimizer.lr"),
        ({"origin": TWICE}, "origin.optimizer"),
    ],
)
def test_a_mistake_names_the_file_and_its_key(tmp_path, change, key):
    path = write_yaml(tmp_path, {k: v for k, v in {**RECIPE, **change}.items() if v is not None})
    with refused(RecipeError, file=str(path), place=key) as error:
        load_recipe(path)
    assert "<" not in str(error.value).replace("low < high", "")  # tags of alternative schemas


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: [", "invalid YAML: did not find"),
        ("- 1", "found a list"),
        ("", "found nothing"),
        ("text", "found a single value"),
        ("epochs: 1\nepochs: 2", "duplicate key 'epochs'"),
        ("model: !!python/object:os.system {}", "could not determine a constructor for the tag"),
        ("epochs: 2024-13-45", "invalid YAML: month must be in 1..12"),
    ],
)
def test_invalid_files(tmp_path, text, problem):
    path = write_yaml(tmp_path, text)
    with refused(RecipeError, file=str(path)) as error:
        load_recipe(path)
    assert problem in error.value.problem


def test_unreadable_files(tmp_path):
    for path, problem in ((tmp_path / "absent.yaml", "no such file"), (tmp_path, "Is a directory")):
        with refused(RecipeError, file=str(path)) as error:
            load_recipe(path)
        assert problem in error.value.problem


def test_numbers_in_scientific_notation_are_numbers(tmp_path):
    path = write_yaml(tmp_path, yaml.safe_dump(RECIPE).replace("lr: 0.01", "lr: 1e-5"))
    assert load_recipe(path).optimizer.lr == 1e-5


def test_digest_content_ignores_how_a_default_is_written():
    plain, spelled = Recipe(**RECIPE), Recipe(**RECIPE, precision="float32", batch={}, eval_every=1)
    assert plain.decisive() == spelled.decisive()
    assert Recipe(**RECIPE, origin={"a": "b"}, reduced=["c"]).decisive() == plain.decisive()
    assert Recipe(**{**RECIPE, "seeds": [5]}).decisive() == plain.decisive()
    assert Recipe(**{**RECIPE, "epochs": 7}).decisive() != plain.decisive()
    given = [
        Recipe(**{**RECIPE, "model": {"name": "mlp", **extra}}).decisive()
        for extra in ({}, {"a": None}, {"a": False}, {"a": []})
    ]
    assert all(one != other for i, one in enumerate(given) for other in given[:i])


@pytest.mark.parametrize(
    "origin",
    [
        {"model": "authors: a script", "all": "unstated: ours"},
        dict.fromkeys(("optimizer.name", "optimizer"), "authors: a script") | {"optimizer.lr": "tuned: 3 trials"},
    ],
)
def test_a_value_may_have_a_wider_origin(tmp_path, origin):
    assert load_recipe(write_yaml(tmp_path, {**RECIPE, "origin": origin})).origin == origin


def test_every_deciding_value_has_an_origin():
    recipe = Recipe(**RECIPE, origin={key: "chosen: for tests" for key in RECIPE if key not in ("seeds", "published")})
    with refused(RecipeError, place="origin", value=["seeds"]):
        check_origins(recipe.given_values(), recipe.origin, complete=True)
    recipe = recipe.model_copy(update={"origin": {"all": "chosen: for tests"}})
    check_origins(recipe.given_values(), recipe.origin, complete=True)


def test_new_optional_keys_change_no_digest_of_old_recipes():
    plain = Recipe(**RECIPE)
    assert not {"eval_after", "eval_device", "targets", "start", "parameters"} & plain.decisive().keys()
    assert Recipe(**RECIPE, parameters=7).decisive() == plain.decisive()
    assert "total" not in plain.decisive()["schedule"]
    assert Recipe(**RECIPE, threads=1, processes=1).decisive() == plain.decisive()
    changes = (
        {"eval_after": 1},
        {"targets": "all"},
        {"start": {"cell": "a/b/c"}},
        {"schedule": {"total": 3}},
        {"threads": 2},
        {"processes": 2},
    )
    for change in changes:
        assert Recipe(**RECIPE | change).decisive() != plain.decisive()


def test_dotted_values():
    recipe = Recipe(**RECIPE).with_values({"model.dropout": 0.5, "optimizer.lr": 0.3})
    assert (recipe.model.arguments["dropout"], recipe.optimizer.lr) == (0.5, 0.3)
    with refused(RecipeError, place="optimizer.rl"):
        Recipe(**RECIPE).with_values({"optimizer.rl": 1})
