"""One model on one dataset without a recipe (`gt-bench try`, `gt_bench.evaluate`)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import yaml

from gt_bench.api.dataset_summary import summary
from gt_bench.api.ensemble import check_ensemble, ensembled
from gt_bench.api.names import check_model_name, named_dataset
from gt_bench.api.needed_encodings import Incompatible, where_of, with_encodings
from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import BY_SET, TRIED, Recipe, load_recipe, model_level
from gt_bench.config.schema import RecipeError, validated
from gt_bench.config.search_options import options_of
from gt_bench.config.search_section import SearchMethod, SearchSection
from gt_bench.config.space_text import space_lines
from gt_bench.config.tried import TriedCell
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset, PackedHeader, say_notes
from gt_bench.data.prepare import prepared_dataset
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.encodings.requests import encode_for
from gt_bench.experiment.debug import debug
from gt_bench.experiment.run import Experiment
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.grid import write_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.plugins.datasets import NOTHING
from gt_bench.plugins.default_recipes import recipe_of, settings_lines
from gt_bench.plugins.models import find, is_importable, is_own, taken_names
from gt_bench.records.cell import CellResult
from gt_bench.reports.dataset_comparison import Comparison, comparison
from gt_bench.runtime.startup import prepare_process
from gt_bench.search.methods import check_method
from gt_bench.search.space import check_space, size_text, space_size
from gt_bench.search.storage import check_packages
from gt_bench.store.run_store import Store
from gt_bench.tracking.sync import track_cells
from gt_bench.tracking.uri import is_installed
from gt_bench.utils.digest import digest_of
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import is_project, recipe_file
from gt_models.registry import ModelInfo, list_models, model_info

DATA = Path("data")
# sections of a recipe that belong to a model: `--against` trains other models without them
OF_MODELS = frozenset({"model", "optimizer", "schedule", "encodings", "phases"})


class PreparedPair(NamedTuple):
    """A model and a dataset that are ready to run: checked, encoded, recipe written."""

    cell: TriedCell
    recipe: Recipe
    trials: int | None


def try_pair(
    model: str,
    dataset: str,
    given: Settings | None = None,
    seeds: Sequence[int] | None = None,
    trials: int | None = None,
    *,
    against: Sequence[str] = (),
    space: Settings | None = None,
    data: Description = NOTHING,
    grid: Grid | None = None,
    method: SearchMethod | None = None,
    members: int | None = None,
) -> Comparison:
    """Trains a model on a dataset with all seeds, and compares it with all results on this dataset.

    Args:
        model: a name, `path/to/file.py:MyModel`, or one of an installed package.
        dataset: a name, a folder of CSV, an npz file, `path/to/file.py:load`, `pyg:Planetoid/Cora`, or one of an
            installed package.
        given: dotted keys of a recipe that differ from the defaults.
        seeds: instead of the default seeds.
        trials: number of trials of a search on validation, over the default space; None for no search.
        against: further models that are trained by the same protocol: the same splits, seeds, epochs, batches and
            trials of a search; with their own default arguments and optimizer.
        space: dotted keys with their spaces, as in `search.space` of a recipe: they replace or extend the default
            space.
        data: what is declared about user-supplied data.
        grid: a grid with other run-wide settings; default: that of the current folder.
        method: sampler, pruner, objectives and first trials of the search, where they are not the default.
        members: with a search, also train the default recipe of `model`, and an ensemble of the default and this number
            of the best trials; None for no ensemble.

    Raises:
        Incompatible: a model cannot be run on the dataset.
        RecipeError: a key or a value is invalid in a recipe.
        DatasetError: the data cannot be read.
    """
    method = method or SearchMethod()
    if trials is not None:
        check_packages()
    elif space:
        problem = f"a search space is given ({', '.join(space)}) and no search"
        raise RecipeError(problem, remedy="add --search TRIALS")
    elif options := options_of(method):
        raise RecipeError(f"{options[0]} {options[1]} is given and no search", remedy="add --search TRIALS")
    elif members is not None:
        raise RecipeError("--ensemble is given and no search", remedy="add --search TRIALS")
    if twice := [name for i, name in enumerate(against) if name in (model, *against[:i])]:
        raise OptionError(f"{twice[0]} is named twice", place="--against", value=",".join(against))
    grid, given = grid or load_grid(), given or {}
    dataset = named_dataset(dataset, data)
    spec = get_spec(dataset)
    infos = {name: _model(name) for name in (model, *against)}
    for info in infos.values():
        check_pair(info, spec)
        if is_own(info.name) and not is_importable(info.name):
            print_text(
                f"{info.name}: its runs are computed each time, because no new process can import a class of a "
                "notebook, of the running script or of a function; save it in a .py file to reuse its runs",
                flush=True,
            )
    if members is not None:
        check_ensemble(spec.task, spec.metric, grid, members, method.objectives)
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"require_predictions": True})})
    section = getattr(spec.arguments.get("reader"), "section", None)
    if seeds is None and section and section.folds:  # each fold is tested once
        seeds = range(section.folds)
    protocol = {key: value for key, value in given.items() if key.split(".")[0] not in OF_MODELS}

    def recipes(header: PackedHeader) -> list[Recipe]:
        return [
            _recipe(info, header, given, seeds, trials, space, method)
            if name == model
            else _recipe(info, header, protocol, seeds, trials, None, method)
            for name, info in infos.items()
        ]

    if spec.expected:  # by its published sizes: a wrong setting is refused before a download
        recipes(spec.header(in_dim=1, out_dim=1, statistics=dict(spec.expected)))
    packed = prepared_dataset(spec.name, DATA, grid.run.mirrors, print)
    checked = recipes(packed.header)
    print_text("\n".join(summary(packed.header)), flush=True)
    say_notes(packed.folder)
    pairs = [
        _pair(info, packed, recipe, given if name == model else protocol, trials)
        for (name, info), recipe in zip(infos.items(), checked, strict=True)
    ]
    default = None
    if members is not None:
        recipe = _recipe(infos[model], packed.header, given, seeds, None, None, method)
        default = _run(_pair(infos[model], packed, recipe, given, None), grid)
    results = [_run(pair, grid) for pair in pairs]
    cell, columns = pairs[0].cell, None
    if default is not None and members is not None:
        columns = ensembled(cell, default, results[0], pairs[0].recipe, grid, members)
    same = {key: other for key, other in grid.cells.items() if other.dataset == cell.dataset}
    held = gather(grid.model_copy(update={"cells": same}))
    compared = comparison(cell, results[0], grid, str(cell.settings_path), Path("store"), held)
    return replace(compared, tuned=columns)


def debug_pair(
    model: str,
    dataset: str,
    preset: str,
    given: Settings | None = None,
    seed: int = 0,
    data: Description = NOTHING,
) -> bool:
    """Runs a debug preset (`gt_bench.experiment.debug`) on the pair that `try_pair` would train. No run is stored.

    Args:
        model: as for `try_pair`.
        dataset: as for `try_pair`.
        preset: overfit, profile, nan or one-batch.
        given: as for `try_pair`.
        seed: seed of the run.
        data: as for `try_pair`.

    Returns:
        Whether nothing suspicious was found.

    Raises:
        Incompatible, RecipeError, DatasetError: as `try_pair`; RecipeError also for a task without a training loop.
    """
    grid = load_grid()
    dataset = named_dataset(dataset, data)
    spec, info = get_spec(dataset), _model(model)
    check_pair(info, spec)
    packed = prepared_dataset(spec.name, DATA, grid.run.mirrors, print)
    recipe = _prepared(recipe_of(info, packed.header, given or {}, [seed], None), info, packed)
    prepare_process(grid.run)
    return debug(
        Experiment(recipe, where_of(info, dataset), dataset, grid.run, Store(), DATA), preset, seed, print_text
    )


def _prepared(recipe: Recipe, info: ModelInfo, packed: PackedDataset) -> Recipe:
    """Checks the recipe, adds its width and encodings, and computes them. Raises the errors of `try_pair`."""
    dataset = packed.header.name
    where = where_of(info, dataset)
    recipe = with_encodings(recipe, info, packed)
    check_model(recipe, where)
    check_fit(recipe, packed.header.level, dataset, where)
    encode_for(recipe, packed, DATA)
    return recipe


def _recipe(
    info: ModelInfo,
    header: PackedHeader,
    given: Settings,
    seeds: Sequence[int] | None,
    trials: int | None,
    space: Settings | None,
    method: SearchMethod,
) -> Recipe:
    """Returns the recipe of a pair without encodings, and checks its keys. Arguments and errors as of `try_pair`."""
    where = where_of(info, header.name)
    recipe = recipe_of(info, header, given, seeds, trials, space)
    check_model(recipe, where)
    if recipe.search:
        first = {} if method.sampler == "grid" else {"warm_start": ["defaults"]}  # grid tries each combination once
        section = validated(SearchSection, first | recipe.search.merged(method), where, "search")
        keys = {key: values for key, values in section.space.items() if not key.startswith("encodings.")}
        without = section.model_copy(update={"space": keys})  # the encodings of a model are found with the data
        check_space(recipe.model_copy(update={"search": without}), _cell(info, header.name, given, trials))
        recipe = recipe.model_copy(update={"search": section})
    return recipe


def _pair(
    info: ModelInfo,
    packed: PackedDataset,
    recipe: Recipe,
    given: Settings,
    trials: int | None,
) -> PreparedPair:
    """Checks a pair, computes its encodings and writes its recipe. Arguments and errors are those of `try_pair`."""
    dataset = packed.header.name
    where = where_of(info, dataset)
    recipe = _prepared(recipe, info, packed)
    cell = _cell(info, dataset, given, trials)
    if trials is not None:
        check_space(recipe, cell)
        check_method(recipe.searched, recipe.total_epochs * len(recipe.searched.seeds), where)
    write_bytes(cell.recipe_path, _text(recipe, given).encode())
    print_text("\n".join([f"{cell.cell}: settings", *settings_lines(info, recipe, given)]), flush=True)
    return PreparedPair(cell, recipe, trials)


def _run(pair: PreparedPair, grid: Grid) -> CellResult:
    """Searches, if the pair has trials, and trains."""
    if pair.trials is not None:
        search = pair.recipe.searched
        print_text(f"{pair.cell.cell}: {pair.trials} trials over {size_text(space_size(search))}:", flush=True)
        print_text("\n".join(space_lines(search.space)), flush=True)
        tune_cell(pair.cell, grid)
    result = train_cell(pair.cell, grid, metrics=None)
    if "mlflow" in grid.run.trackers and is_installed():
        track_cells([pair.cell])
    return result


def check_suite(suite: str) -> None:
    """Checks the name of a suite before anything is trained; raises RecipeError."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", suite):
        raise OptionError("a name of a suite has lower-case letters, digits and dashes", place="--save", value=suite)


def save(recipe_path: str | Path, suite: str) -> Path:
    """Copies the recipe of a run to suites/SUITE/recipes/DATASET/ROW.yaml and updates the grid; raises RecipeError."""
    source = Path(recipe_path)
    check_suite(suite)
    path = recipe_file(f"{suite}/{source.parent.name}/{source.stem}")
    recipe = load_recipe(source)
    if path.exists() and load_recipe(path) != recipe:
        raise RecipeError("another recipe exists", file=path, remedy="use another suite, or move that recipe")
    content = recipe.model_dump(mode="json", exclude_unset=True)
    write_bytes(path, yaml.safe_dump(content, sort_keys=False, width=140).encode())
    if is_project():  # elsewhere the grid is read from the recipes each time (`load_grid`)
        write_grid()
    return path


def check_pair(info: ModelInfo, spec: DatasetSpec) -> None:
    """Raises Incompatible if the model does not predict what the dataset needs."""
    level = model_level(spec.level)
    if level not in info.levels:
        fitting = [name for name in list_models() if level in model_info(name).levels]
        datasets = [other.name for other in catalog().values() if model_level(other.level) in info.levels]
        needed = "embeddings of nodes, for its edges" if spec.level == "edge" else f"a prediction per {spec.level}"
        raise Incompatible(
            f"predicts per {' or per '.join(info.levels)}, and dataset {spec.name!r} needs {needed}",
            place=f"model {info.name!r}",
            value=level,
            remedy=f"models that fit {spec.name}: {', '.join(fitting) or 'none'}\n"
            f"datasets that fit {info.name}: {', '.join(datasets) or 'none'}",
        )


def _model(name: str) -> ModelInfo:
    check_model_name(name)
    info = find(name)
    if wrong := [taken for taken in taken_names() if taken.value == name]:
        raise wrong[0]
    return info


def _cell(info: ModelInfo, dataset: str, given: Settings, trials: int | None) -> TriedCell:
    """Returns the cell, named by the model and the settings that differ from the defaults.

    If another variant has this name (a class of the same name in another file, -1 and 1), a digest is appended.
    """
    parts = [
        _row_name(info.name),
        *(f"{key.split('.')[-1]}-{value}" for key, value in given.items()),
        *(["searched"] if trials is not None else []),
    ]
    row = re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.")[:80].rstrip("-.")
    if _is_of_another(Path(TRIED, dataset, f"{row}.yaml"), info.name, given):
        row = f"{row}-{digest_of([info.name, given])[:8]}"
    settings = "recipes" if trials is None else "tuned"
    return TriedCell(
        key=f"{TRIED}-{dataset}-{row}", cell=f"{TRIED}/{dataset}/{row}", dataset=dataset, model=row, settings=settings
    )


def _is_of_another(path: Path, model: str, given: Settings) -> bool:
    """Returns whether the recipe in this file has another model, or other values of --set."""
    try:
        recipe = load_recipe(path)
    except RecipeError:  # missing or damaged: it will be written again
        return False
    by_set = {key: recipe.value(key) for key, origin in recipe.origin.items() if origin == BY_SET}
    return recipe.model.name != model or by_set != {
        key: value for key, value in given.items() if key in recipe.given_values() and key != "seeds"
    }


def _row_name(model: str) -> str:
    """Returns the name of a row: `my-Model` for `path/to/file.py:MyModel`."""
    last = model.rpartition(":")[2] if ":" in model else Path(model).stem if model.endswith(".py") else model
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", last)


def _text(recipe: Recipe, given: Settings) -> str:
    origin = {key: BY_SET for key in given if key in recipe.given_values() and key != "seeds"}
    content = recipe.model_dump(mode="json", exclude_unset=True) | {
        "origin": {"all": "chosen: a default of gt_bench/plugins/defaults.yaml", **origin}
    }
    if not set(recipe.given_values()) - set(origin):
        del content["origin"]["all"]
    return yaml.safe_dump(content, sort_keys=False, width=140)
