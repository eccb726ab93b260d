"""Every mistake in a recipe names the file, the key and the nearest valid one."""

import math

import pytest
import yaml

from gt_bench.config.origins import check_origins
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from tests.gt_bench.conftest import RECIPE, write_yaml


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epocs": 3}, ["epocs", "did you mean 'epochs'"]),
        ({"optimizer": {"lr": 0.1, "weight_dacay": 0}}, ["optimizer.weight_dacay", "did you mean 'weight_decay'"]),
        ({"optimizer": {"name": "adam"}}, ["optimizer.lr", "missing"]),
        ({"optimizer": {"lr": "fast"}}, ["optimizer.lr", "number", "fast"]),
        ({"optimizer": {"lr": -1}}, ["optimizer.lr", "greater than 0"]),
        ({"epochs": 0}, ["epochs"]),
        ({"epochs": None}, ["epochs or phases"]),
        ({"seeds": [1, 1]}, ["seeds", "duplicate"]),
        ({"batch": {"graphs": 2, "parts": 3}}, ["batch", "one large graph"]),
        ({"search": {"trials": 2, "space": {}}}, ["search.space"]),
        ({"search": {"trials": 2, "space": {}}}, ["search.space: is empty"]),
        (
            {"search": {"trials": 2, "space": {"model.dropout": {"choices": []}}}},
            ["search.space.model.dropout.choices: is empty"],
        ),
        ({"search": {"trials": 2, "space": {"model.dropout": {"low": 1, "high": 0}}}}, ["low < high"]),
        (
            {"search": {"trials": 2, "space": {"epochs": {"low": 2, "high": 9, "log": True, "step": 2}}}},
            ["no step with log"],
        ),
        ({"search": {"trials": 2, "space": {"epochs": {"low": 2, "high": 9, "step": 0}}}}, ["expected step > 0"]),
        (
            {"search": {"trials": 2, "space": {"epochs": {"low": 1.5, "high": 9, "integer": True}}}},
            ["expected integers"],
        ),
        (
            {"search": {"trials": 2, "space": {"seeds": {"choices": [[0], [1]]}}}},
            ["search.space.seeds.choices", "not [0]"],
        ),
        (
            {"search": {"trials": 2, "space": {"model.dropout": {"low": 0, "hihg": 1}}}},
            ["'search.space.model.dropout.hihg' (did you mean 'high'?)", "known here: high, integer, log, low, step"],
        ),
        ({"schedule": {"name": "cosin"}}, ["schedule.name", "cosine"]),
        ({"schedule": {"start_factor": math.inf}}, ["schedule.start_factor: Input should be a finite number"]),
        ({"optimizer": {"lr": 0.1, "clip_norm": math.inf}}, ["optimizer.clip_norm: Input should be a finite number"]),
        ({"model": {"name": "mlp", "dropout": math.inf}}, ["model: dropout is inf; expected a finite number"]),
        (
            {"search": {"trials": 2, "space": {"model.dropout": {"choices": [math.nan]}}}},
            ["choices: expected a finite number"],
        ),
        ({"optimizer": 3}, ["optimizer: expected a mapping of keys (given: 3)"]),
        ({"select": "test"}, ["select: test", "origin.select must begin with `authors:`", "select: best"]),
        (
            {"select": "test", "origin": {"select": "authors: x"}, "patience": 2},
            ["select: test with patience", "train on the test split"],
        ),
        (
            {
                "select": "test",
                "origin": {"select": "authors: x"},
                "search": {"trials": 2, "space": {"model.dropout": {"choices": [0.1]}}},
            },
            ["select: test with search"],
        ),
        (
            {"select": "test", "origin": {"select": "authors: x"}, "schedule": {"name": "plateau"}},
            ["select: test with schedule plateau"],
        ),
        ({"patience": 3, "eval_every": 5}, ["patience: 3 epochs can pass without a validation", "eval_every is 5"]),
        (
            {"epochs": None, "phases": [{"name": "local", "epochs": 9}], "patience": 3},
            ["patience would end the run in its first phase"],
        ),
        ({"origin": 3}, ["origin: expected a mapping of keys (given: 3)"]),
    ],
)
def test_mistakes_in_a_recipe(tmp_path, change, words):
    path = write_yaml(tmp_path, {k: v for k, v in {**RECIPE, **change}.items() if v is not None})
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    for word in [str(path), *words]:
        assert word in str(error.value)
    assert "<" not in str(error.value).replace("low < high", "")


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
        ({"optimizer.lr": ["printed: Table 4", "authors: a script"]}, ["origin.optimizer.lr", "valid string"]),
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
