"""Every mistake in a recipe names the file, the key and the nearest valid one."""

import math

import pytest
import yaml

from gt_bench.config.origins import check_origins
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from tests.gt_bench.conftest import RECIPE, write_yaml

SPACE = {"model.dropout": {"choices": [0.1]}}
ON_TEST = {"select": "test", "origin": {"select": "authors: x"}}


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
        ({"search": {"trials": 2, "space": {}}}, "search.space"),
        (space(choices=[]), "search.space.epochs.choices"),
        (space(choices=[[0], [1]]), "search.space.epochs.choices"),
        (space(choices=[math.nan]), "search.space.epochs.choices"),
        (space(low=1, high=0), "search.space.epochs"),
        (space(low=2, high=9, log=True, step=2), "search.space.epochs"),
        (space(low=2, high=9, step=0), "search.space.epochs"),
        (space(low=1.5, high=9, integer=True), "search.space.epochs"),
        (space(low=0, hihg=1), "search.space.epochs.hihg"),
        ({"schedule": {"name": "cosin"}}, "schedule.name"),
        ({"schedule": {"start_factor": math.inf}}, "schedule.start_factor"),
        ({"model": {"name": "mlp", "dropout": math.inf}}, "model"),
        ({"select": "test"}, ""),
        (ON_TEST | {"patience": 2}, ""),
        (ON_TEST | {"search": {"trials": 2, "space": SPACE}}, ""),
        (ON_TEST | {"schedule": {"name": "plateau"}}, ""),
        ({"patience": 3, "eval_every": 5}, ""),
        ({"epochs": None, "phases": [{"name": "local", "epochs": 9}], "patience": 3}, ""),
        ({"origin": 3}, "origin"),
        ({"origin": {"optimizer.lr": ["printed: Table 4"]}}, "origin.optimizer.lr"),
    ],
)
def test_a_mistake_names_the_file_and_its_key(tmp_path, change, key):
    path = write_yaml(tmp_path, {k: v for k, v in {**RECIPE, **change}.items() if v is not None})
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert key in error.value.keys
    assert str(error.value).startswith(f"{path}: ")
    assert "<" not in str(error.value).replace("low < high", "")  # tags of alternative schemas


@pytest.mark.parametrize(
    ("change", "nearest"),
    [
        ({"epocs": 3}, "epochs"),
        ({"optimizer": {"lr": 0.1, "weight_dacay": 0}}, "weight_decay"),
        (space(low=0, hihg=1), "high"),
    ],
)
def test_the_nearest_key_is_named(tmp_path, change, nearest):
    with pytest.raises(RecipeError, match=f"did you mean '{nearest}'"):
        load_recipe(write_yaml(tmp_path, RECIPE | change))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("model: [", "YAML"),
        ("- 1", "mapping of keys, found a list"),
        ("", "mapping of keys, found nothing"),
        ("text", "mapping of keys, found a single value"),
        ("epochs: 1\nepochs: 2", "duplicate key"),
        ("model: !!python/object:os.system {}", "YAML"),
        ("epochs: 2024-13-45", "YAML: month must be in 1..12"),
    ],
)
def test_unreadable_files(tmp_path, text, word):
    path = write_yaml(tmp_path, text)
    with pytest.raises(RecipeError, match=word) as error:
        load_recipe(path)
    assert str(path) in str(error.value)
    with pytest.raises(RecipeError, match="no such file"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(RecipeError, match=r"cannot be read \(Is a directory\); expected a YAML file"):
        load_recipe(tmp_path)


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
    ("origin", "words"),
    [
        ({"optimizer.rl": "printed: Table 4"}, ["origin.optimizer.rl", "did you mean 'optimizer.lr'"]),
        ({"optimizer.lr": "Table 4"}, ["origin.optimizer.lr", "printed, authors", "Table 4"]),
        (
            {
                "optimizer.lr": "printed: Table 4",
                "optimizer.name": "printed: Table 4",
                "optimizer": "authors: a script",
            },
            ["origin.optimizer", "second origin of optimizer.lr, optimizer.name"],
        ),
        ({"model": "authors: a script", "all": "unstated: ours"}, None),
        (
            {
                "optimizer.name": "authors: a script",
                "optimizer": "authors: a script",
                "optimizer.lr": "tuned: 3 trials",
            },
            None,
        ),
    ],
)
def test_origins(tmp_path, origin, words):
    path = write_yaml(tmp_path, {**RECIPE, "origin": origin})
    if words is None:
        assert load_recipe(path).origin == origin
        return
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_a_duplicate_origin(tmp_path):
    path = write_yaml(
        tmp_path,
        yaml.safe_dump(RECIPE) + "origin: {optimizer.lr: 'printed: Table 4', optimizer.lr: 'authors: a script'}\n",
    )
    with pytest.raises(RecipeError, match="recipe.yaml: .*duplicate key 'optimizer.lr'"):
        load_recipe(path)


def test_every_deciding_value_has_an_origin():
    recipe = Recipe(**RECIPE, origin={key: "chosen: for tests" for key in RECIPE if key not in ("seeds", "published")})
    with pytest.raises(RecipeError, match="no origin for seeds$"):
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
    with pytest.raises(RecipeError, match="optimizer.rl"):
        Recipe(**RECIPE).with_values({"optimizer.rl": 1})
