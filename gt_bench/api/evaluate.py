"""One model on one dataset without a recipe (`gt-bench try`, `gt_bench.evaluate`)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import yaml

from gt_bench.api.dataset_summary import summary
from gt_bench.api.ensemble import MEMBERS, check_ensemble, ensembled
from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.recipe import BY_SET, TRIED, Recipe, load_recipe, model_level
from gt_bench.config.schema import RecipeError, validated
from gt_bench.config.search_options import options_of
from gt_bench.config.search_section import SearchMethod, SearchSection
from gt_bench.config.space_text import space_lines
from gt_bench.config.tried import TriedCell
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset, say_notes
from gt_bench.data.prepare import prepared_dataset
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.encodings.requests import encode_for
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.plugins.adapter import OwnModelError, PlainModel
from gt_bench.plugins.datasets import NOTHING, dataset_name
from gt_bench.plugins.default_recipes import recipe_of, settings_lines
from gt_bench.plugins.models import find, is_importable, is_own, taken_names
from gt_bench.reports.dataset_comparison import Comparison, comparison
from gt_bench.schemas import Result, Settings
from gt_bench.search.methods import check_method
from gt_bench.search.space import check_space, size_text, space_size
from gt_bench.search.storage import check_packages
from gt_bench.store.run_store import Store
from gt_bench.tasks.base import Task
from gt_bench.tasks.registry import create_task
from gt_bench.tracking.uri import is_installed
from gt_bench.training.failures import is_out_of_memory
from gt_bench.training.feature_preparation import prepared_header
from gt_bench.training.interfaces import SplitData
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import is_project, recipe_file
from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS, EncodingError, find_encoding
from gt_models.registry import ModelInfo, create_model, list_models, model_info
from gt_models.transforms import needs

DATA = Path("data")
CPU = torch.device("cpu")
# sections of a recipe that belong to a model: `--against` trains other models without them
OF_MODELS = frozenset({"model", "optimizer", "schedule", "encodings", "phases"})
PROBE_NODES = 40  # nodes of the batch that shows which encodings a model reads


class Incompatible(UserError, ValueError):
    """A model cannot be run on a dataset; the message has the reason, and what fits."""


class Pair(NamedTuple):
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
    bar: bool = True,
    grid: Grid | None = None,
    method: SearchMethod | None = None,
    ensemble: bool = False,
    members: int = MEMBERS,
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
        bar: whether to show a progress bar.
        grid: a grid with other run-wide settings; default: that of the current folder.
        method: sampler, pruner, objectives and first trials of the search, where they are not the default.
        ensemble: with a search, also train the default recipe of `model`, and an ensemble of the best trials.
        members: number of trials that are candidates of the ensemble, in addition to the default.

    Raises:
        Incompatible: a model cannot be run on the dataset.
        RecipeError: a key or a value is invalid in a recipe.
        DatasetError: the data cannot be read.
    """
    method = method or SearchMethod()
    if trials is not None:
        check_packages()
    elif space:
        raise RecipeError(f"a search space is given ({', '.join(space)}) and no search: add --search TRIALS")
    elif options := options_of(method):
        raise RecipeError(f"{options[0]} {options[1]} is given and no search: add --search TRIALS")
    elif ensemble:
        raise RecipeError("--ensemble is given and no search: add --search TRIALS")
    if twice := [name for i, name in enumerate(against) if name in (model, *against[:i])]:
        raise RecipeError(f"--against {','.join(against)}: {twice[0]} is named twice")
    grid, given = grid or load_grid(), given or {}
    dataset = dataset_name(dataset, data)
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
    if ensemble:
        check_ensemble(spec.task, spec.metric, grid, members, method.objectives)
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"require_predictions": True})})
    section = getattr(spec.arguments.get("reader"), "section", None)
    if seeds is None and section and section.folds:  # each fold is tested once
        seeds = range(section.folds)
    packed = prepared_dataset(spec.name, DATA, grid.run.mirrors, print)
    print_text("\n".join(summary(packed.header)), flush=True)
    say_notes(packed.folder)
    protocol = {key: value for key, value in given.items() if key.split(".")[0] not in OF_MODELS}
    pairs = [
        _pair(
            info, packed, given if name == model else protocol, seeds, trials, space if name == model else None, method
        )
        for name, info in infos.items()
    ]
    default = _pair(infos[model], packed, given, seeds, None, None, method) if ensemble else None
    default_result = _run(default, grid, bar) if default else None
    results = [_run(pair, grid, bar) for pair in pairs]
    cell = pairs[0].cell
    columns = None
    if default_result:
        columns = ensembled(cell, default_result, results[0], pairs[0].recipe, grid, members, DATA, Store())
    found = comparison(cell, results[0], grid, str(cell.settings_path), Path("store"))
    return replace(found, tuned=columns)


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
    from gt_bench.experiment.debug import debug
    from gt_bench.experiment.run import Experiment
    from gt_bench.runtime.startup import prepare_process

    grid = load_grid()
    dataset = dataset_name(dataset, data)
    spec, info = get_spec(dataset), _model(model)
    check_pair(info, spec)
    packed = prepared_dataset(spec.name, DATA, grid.run.mirrors, print)
    recipe = _prepared(recipe_of(info, packed.header, given or {}, [seed], None), info, packed)
    prepare_process(grid.run)
    return debug(Experiment(recipe, _where(info, dataset), dataset, grid.run, Store(), DATA), preset, seed, print_text)


def _where(info: ModelInfo, dataset: str) -> str:
    """Returns what error messages name instead of the file of a recipe."""
    return f"gt-bench try {info.name} {dataset}"


def _prepared(recipe: Recipe, info: ModelInfo, packed: PackedDataset) -> Recipe:
    """Checks the recipe, adds its width and encodings, and computes them. Raises the errors of `try_pair`."""
    dataset = packed.header.name
    where = _where(info, dataset)
    recipe = with_encodings(recipe, info, packed)
    check_model(recipe, where)
    check_fit(recipe, packed.header.level, dataset, where)
    check_size(info, recipe, packed)
    encode_for(recipe, packed, DATA)
    return recipe


def _pair(
    info: ModelInfo,
    packed: PackedDataset,
    given: Settings,
    seeds: Sequence[int] | None,
    trials: int | None,
    space: Settings | None,
    method: SearchMethod,
) -> Pair:
    """Checks a pair, computes its encodings and writes its recipe. Arguments and errors are those of `try_pair`."""
    dataset = packed.header.name
    where = _where(info, dataset)
    recipe = recipe_of(info, packed.header, given, seeds, trials, space)
    if recipe.search:
        section = validated(SearchSection, recipe.search.merged(method), where, "search.")
        recipe = recipe.model_copy(update={"search": section})
    recipe = _prepared(recipe, info, packed)
    cell = _cell(info, dataset, given, trials)
    if trials is not None:
        check_space(recipe, cell)
        check_method(recipe.searched, recipe.total_epochs * len(recipe.searched.seeds), where)
    write_bytes(cell.recipe_path, _text(recipe, given).encode())
    print_text("\n".join([f"{cell.cell}: settings", *settings_lines(info, recipe, given)]), flush=True)
    return Pair(cell, recipe, trials)


def _run(pair: Pair, grid: Grid, bar: bool) -> Result:
    """Searches, if the pair has trials, and trains."""
    from gt_bench.pipeline.train import train_cell

    if pair.trials is not None:
        from gt_bench.pipeline.tune import tune_cell

        search = pair.recipe.searched
        print_text(f"{pair.cell.cell}: {pair.trials} trials over {size_text(space_size(search))}:", flush=True)
        print_text("\n".join(space_lines(search.space)), flush=True)
        tune_cell(pair.cell, grid)
    result = train_cell(pair.cell, grid, metrics=None, bar=bar)
    if "mlflow" in grid.run.trackers and is_installed():
        from gt_bench.tracking.sync import track_cells

        track_cells([pair.cell])
    return result


def check_suite(suite: str) -> None:
    """Checks the name of a suite before anything is trained; raises RecipeError."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", suite):
        raise RecipeError(f"--save {suite}: a name of a suite has lower-case letters, digits and dashes")


def save(recipe_path: str | Path, suite: str) -> Path:
    """Copies the recipe of a run to suites/SUITE/recipes/DATASET/ROW.yaml and updates the grid; raises RecipeError."""
    from gt_bench.pipeline.grid import write_grid

    source = Path(recipe_path)
    check_suite(suite)
    path = recipe_file(f"{suite}/{source.parent.name}/{source.stem}")
    recipe = load_recipe(source)
    if path.exists() and load_recipe(path) != recipe:
        raise RecipeError(f"{path}: another recipe exists; use another suite, or move that recipe")
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
            f"model {info.name!r} predicts per {' or per '.join(info.levels)}, and dataset {spec.name!r} needs "
            f"{needed}.\n"
            f"models that fit {spec.name}: {', '.join(fitting) or 'none'}\n"
            f"datasets that fit {info.name}: {', '.join(datasets) or 'none'}"
        )


def check_size(info: ModelInfo, recipe: Recipe, packed: PackedDataset) -> None:
    """Raises Incompatible if the states of all pairs of nodes of one layer exceed the memory."""
    from gt_bench.runtime.resources import available_mib

    pairwise = any("pair" in find_encoding(name).arrays.values() for name in recipe.encodings) or (
        info.cost.startswith(("n^2", "n^3")) and ", or " not in info.cost
    )
    nodes, width = int(packed.sizes.max()), int(recipe.model.arguments.get("hidden_dim") or 1)
    needed = nodes**2 * width * 4 / 2**20
    if pairwise and needed > available_mib():
        linear = [
            name
            for name in list_models()
            if model_level(packed.header.level) in model_info(name).levels
            and not model_info(name).cost.startswith(("n^2", "n^3", "n^4", "m^2", "(n + m)^2"))
        ]
        raise Incompatible(
            f"model {info.name!r} (time per layer {info.cost}) keeps states of all pairs of nodes: with {nodes:,} "
            f"nodes in a graph of {packed.header.name} and width {width}, one layer needs {needed / 1024:.1f} GiB, but "
            f"{available_mib() / 1024:.1f} GiB are free.\n"
            f"models linear in nodes and edges: {', '.join(linear)}; or a smaller width: --set model.hidden_dim=16"
        )


def with_encodings(recipe: Recipe, info: ModelInfo, packed: PackedDataset) -> Recipe:
    """Returns the recipe with the encodings that its model reads; those in the recipe keep their arguments.

    Raises:
        Incompatible: the model needs encodings, and the dataset cannot have any.
        RecipeError: an encoding needs arguments that only a recipe can have.
    """
    where = _where(info, packed.header.name)
    try:
        header = prepared_header(packed.header, recipe.features)
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from None
    # it is unknown which attributes of the batch a plain module reads
    if not info.encodings or issubclass(info.cls, PlainModel):
        return recipe
    arguments = check_model(recipe, where)
    try:
        task = create_task(header.task, header.metric, recipe.loss, header.also)
    except KeyError as error:
        raise RecipeError(f"{where}: {error.args[0]}") from None
    dims = {
        "in_dim": task.in_dim(header),
        "out_dim": recipe.width_of(header.out_dim),
        "level": recipe.level_of(header.level),
        "edge_dim": header.edge_dim,
    }
    model = _probe_model(info, dims, arguments)
    try:
        needed = needs(model, _probe_batch(recipe, task, packed), recipe.encodings)
    except EncodingError as error:  # the encoding is not for such a graph, or needs arguments of the recipe
        raise RecipeError(f"{where}: {error}") from error
    found = {
        name: {key: value for key, value in arguments.items() if value != ENCODINGS[name].parameters[key].default}
        for name, arguments in needed.items()
    }
    # this task copies graphs in each step, and only stored graphs have encodings
    if found and header.task == "configuration-ranking":
        fitting = [
            name for name in list_models() if header.level in model_info(name).levels and not model_info(name).encodings
        ]
        raise Incompatible(
            f"model {info.name!r} reads {', '.join(found)}, and graphs of the task {header.task} carry no encodings.\n"
            f"models that read none: {', '.join(fitting)}"
        )
    if not found:
        return recipe
    return recipe.model_copy(
        update={"encodings": found | {k: v for k, v in recipe.encodings.items() if k not in found}}
    )


def _probe_batch(recipe: Recipe, task: Task, packed: PackedDataset) -> GraphBatch:
    """Returns a small batch of the task: hyperedges with their graph, otherwise a part of the first graph."""
    from gt_bench.encodings.cache import EncodedDataset
    from gt_bench.training.loader import induced

    header = packed.header
    if header.split_kind == "hyperedge" and task.loader is not None:
        encoded = EncodedDataset(packed, packed.folder, {})
        data = SplitData(packed, encoded, 0, recipe.batch, 0, CPU, torch.float32)
        batch = next(iter(task.loader(data).training(0)))[0]
    else:
        batch = packed.batch(torch.tensor([0]))
        if batch.num_nodes > PROBE_NODES:
            batch = induced(batch, torch.arange(PROBE_NODES))
        width = task.in_dim(prepared_header(header, recipe.features))
        if width != header.in_dim or "missing" in header.statistics:  # the task adds to the features, or some are NaN
            batch.x = torch.zeros(batch.num_nodes, width)
    batch.y = None
    return batch


def _probe_model(info: ModelInfo, dims: Settings, arguments: Settings) -> torch.nn.Module:
    import inspect

    parameters = inspect.signature(info.cls).parameters
    try:
        with torch.random.fork_rng():
            return create_model(
                info.name, **{key: value for key, value in dims.items() if key in parameters}, **arguments
            )
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        if is_out_of_memory(error):
            raise Incompatible(
                f"gt-bench try {info.name}: the model alone does not fit into memory ({error}); give smaller widths"
            ) from error
        raise RecipeError(f"gt-bench try {info.name}: model: {error}") from error


def _model(name: str) -> ModelInfo:
    try:
        found = find(name)
    except KeyError as error:
        raise RecipeError(error.args[0]) from None
    if wrong := [line for line in taken_names() if f" {name} = " in line]:
        raise OwnModelError(wrong[0])
    return found


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
