"""One model on one dataset, without a recipe: defaults, data, encodings, runs and a table (`gt-bench try`, `gt_bench.evaluate`)."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
import yaml

from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS, EncodingError, find_encoding
from gt_models.registry import ModelInfo, create_model, list_models, model_info
from gt_models.transforms import needs
from stages.contents import Result, Settings
from stages.datasets.catalog import catalog, get_spec
from stages.datasets.packed import DatasetUnavailable, PackedDataset, say_notes
from stages.datasets.spec import DatasetSpec
from stages.engine.faces import Header
from stages.engine.failures import is_out_of_memory
from stages.errors import DatasetError, UserError
from stages.files import write_bytes
from stages.home import is_project
from stages.mlflow.address import is_installed
from stages.own.datasets import named
from stages.own.defaults import recipe_of
from stages.own.models import find, taken_names
from stages.own.plain import OwnModelError, PlainModel
from stages.own.table import SUITE, Comparison, comparison
from stages.params import Cell, Grid, load_grid
from stages.recipe import BY_SET, Recipe, digest_of, load_recipe
from stages.recipe_fit import check_fit, check_model
from stages.schema import RecipeError
from stages.store import Store
from stages.study import check_packages
from stages.tasks import create_task
from stages.tasks.task import Task

DATA = Path("data")
PROBED = 40  # nodes of a large graph that a model is shown to learn which encodings it reads


class Incompatible(UserError, ValueError):
    """A model that cannot be run on a dataset; the message says why, and what fits."""


class TriedCell(Cell):
    """A cell outside the grid: its recipe is tried/DATASET/ROW.yaml."""

    @property
    def recipe_path(self) -> Path:
        """The recipe that was written for it."""
        return Path(f"{self.cell}.yaml")

    @property
    def settings_path(self) -> Path:
        """The same, or that of a search's result."""
        return self.recipe_path if self.settings == "recipes" else super().settings_path


def try_pair(
    model: str,
    dataset: str,
    given: Settings | None = None,
    seeds: Sequence[int] | None = None,
    trials: int | None = None,
    *,
    task: str | None = None,
    metric: str | None = None,
    bar: bool = True,
    grid: Grid | None = None,
) -> Comparison:
    """Trains `model` on `dataset` with every seed, and returns the table of what is known there.

    Args:
        model: a name, `path/to/file.py:MyModel`, or one of an installed package.
        dataset: a name, a folder of CSV, an npz file, `path/to/file.py:load`, `pyg:Planetoid/Cora`, or one of an installed package.
        given: dotted keys of a recipe that differ from the defaults.
        seeds: instead of the defaults'.
        trials: of a search on validation, over what defaults.yaml says.
        task, metric: of data of one's own, where what their targets look like would say otherwise.
        bar: whether there is a bar of progress.
        grid: the present one, with other run-wide settings perhaps.

    Raises Incompatible, RecipeError, DatasetError.
    """
    from stages.train import train_cell

    if trials is not None:
        check_packages()
    grid = grid or load_grid()
    info, dataset = _model(model), named(dataset, task, metric)
    spec = get_spec(dataset)
    for what, said, has in (("task", task, spec.task), ("metric", metric, spec.metric)):
        if said not in (None, has):
            raise DatasetError(
                f"dataset {dataset!r} has the {what} {has}, not {said}: only of data of one's own, named by path, can another be said"
            )
    check_pair(info, spec)
    packed = _packed(spec, grid)
    say_notes(packed.folder)
    recipe = with_encodings(recipe_of(info, packed.header, given or {}, seeds, trials), info, packed)
    where = f"gt-bench try {model} {dataset}"
    check_model(recipe, where)
    check_fit(recipe, packed.header.level, dataset, where)
    check_size(info, recipe, packed)
    _encode(recipe, packed)
    cell = _cell(info, dataset, given or {}, trials)
    write_bytes(cell.recipe_path, _text(recipe, given or {}).encode())
    if trials is not None:
        from stages.tune import tune_cell

        tune_cell(cell, grid)
    result = train_cell(cell, grid, metrics=None, bar=bar)
    if grid.run.tracking and is_installed():
        _track(result, Store())
    return comparison(cell, result, grid, str(cell.settings_path), Path("store"))


def check_suite(suite: str) -> None:
    """Raises RecipeError for what cannot be the name of a suite, before anything is trained for it."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", suite):
        raise RecipeError(f"--save {suite}: a suite is named in lower case, digits and dashes")


def save(recipe_path: str | Path, suite: str) -> Path:
    """Copies the recipe of a tried run to recipes/SUITE/DATASET/ROW.yaml and writes the grid anew. Raises RecipeError."""
    from stages.grid import write_grid

    # elsewhere the grid is read from recipes/ each time (`load_grid`)
    source = Path(recipe_path)
    check_suite(suite)
    path = Path("recipes", suite, source.parent.name, source.name)
    recipe = load_recipe(source)
    if path.exists() and load_recipe(path) != recipe:
        raise RecipeError(f"{path}: another recipe is there already: name another suite, or move that one away")
    content = recipe.model_dump(mode="json", exclude_unset=True)
    write_bytes(path, yaml.safe_dump(content, sort_keys=False, width=140).encode())
    if is_project():
        write_grid()
    return path


def check_pair(info: ModelInfo, spec: DatasetSpec) -> None:
    """Raises Incompatible, by what the two state alone."""
    if spec.level not in info.levels:
        fitting = [name for name in list_models() if spec.level in model_info(name).levels]
        datasets = [other.name for other in catalog().values() if other.level in info.levels]
        raise Incompatible(
            f"model {info.name!r} predicts per {' or per '.join(info.levels)}, and dataset {spec.name!r} asks for a prediction per {spec.level}.\n"
            f"models that fit {spec.name}: {', '.join(fitting) or 'none'}\ndatasets that fit {info.name}: {', '.join(datasets) or 'none'}"
        )


def check_size(info: ModelInfo, recipe: Recipe, packed: PackedDataset) -> None:
    """Raises Incompatible where one layer's states of all pairs of nodes alone do not fit into memory."""
    from stages.side_by_side.machine import available_mib

    pairwise = any("pair" in find_encoding(name).arrays.values() for name in recipe.encodings) or (
        info.cost.startswith(("n^2", "n^3")) and ", or " not in info.cost
    )
    nodes, width = int(packed.sizes.max()), int(recipe.model.arguments.get("hidden_dim") or 1)
    needed = nodes**2 * width * 4 / 2**20
    if pairwise and needed > available_mib():
        linear = [
            name
            for name in list_models()
            if packed.header.level in model_info(name).levels
            and not model_info(name).cost.startswith(("n^2", "n^3", "n^4", "m^2", "(n + m)^2"))
        ]
        raise Incompatible(
            f"model {info.name!r} (time per layer {info.cost}) keeps states of all pairs of nodes: with {nodes:,} nodes in a graph of {packed.header.name} "
            f"and width {width} one layer's take {needed / 1024:.1f} GiB, and {available_mib() / 1024:.1f} GiB are free.\n"
            f"models linear in nodes and edges: {', '.join(linear)}; or a smaller width: --set model.hidden_dim=16"
        )


def with_encodings(recipe: Recipe, info: ModelInfo, packed: PackedDataset) -> Recipe:
    """The recipe with the encodings that its model reads, as wide as it is built; those that the recipe names keep their arguments.

    Raises Incompatible for a model that cannot do without encodings on a dataset that has none.
    """
    header = packed.header
    if not info.encodings or issubclass(info.cls, PlainModel):  # a plain module reads attributes, which nobody can ask for
        return recipe
    arguments = check_model(recipe, f"gt-bench try {info.name} {header.name}")
    try:
        task = create_task(header.task, header.metric, recipe.loss, header.also)
    except KeyError as error:
        raise RecipeError(f"gt-bench try {info.name} {header.name}: {error.args[0]}") from None
    dims = {"in_dim": task.in_dim(cast(Header, header)), "out_dim": header.out_dim, "level": header.level, "edge_dim": header.edge_dim}
    model = _built(info, dims, arguments)
    try:
        asked = needs(model, _shown(recipe, task, packed), recipe.encodings)
    except EncodingError as error:  # of a graph that the encoding is not for, or of arguments that only the recipe can say
        raise RecipeError(f"gt-bench try {info.name} {header.name}: {error}") from error
    found = {name: _without_defaults(name, arguments) for name, arguments in asked.items()}
    if found and header.task == "configuration-ranking":  # copies of a graph are made for each step, and encodings only for stored graphs
        fitting = [name for name in list_models() if header.level in model_info(name).levels and not model_info(name).encodings]
        raise Incompatible(
            f"model {info.name!r} reads {', '.join(found)}, and graphs of the task {header.task} carry no encodings.\n"
            f"models that read none: {', '.join(fitting)}"
        )
    if not found:
        return recipe
    return recipe.model_copy(update={"encodings": found | {k: v for k, v in recipe.encodings.items() if k not in found}})


def _shown(recipe: Recipe, task: Task, packed: PackedDataset) -> GraphBatch:
    """A small batch, as the task makes them: hyperedges with their graph, else a part of the first graph."""
    from stages.datasets.encoded import EncodedDataset
    from stages.engine.batching import induced

    header = packed.header
    if header.split_kind == "hyperedge" and task.loader is not None:
        encoded = EncodedDataset(packed, packed.folder, {})
        batch = next(iter(task.loader(packed, encoded, 0, recipe.batch, 0, torch.device("cpu"), torch.float32).training(0)))[0]
    else:
        batch = packed.batch(torch.tensor([0]))
        if batch.num_nodes > PROBED:
            batch = induced(batch, torch.arange(PROBED))
        if (width := task.in_dim(cast(Header, header))) != header.in_dim:  # the task adds to the features
            batch.x = torch.zeros(batch.num_nodes, width)
    batch.y = None
    return batch


def _built(info: ModelInfo, dims: Settings, arguments: Settings) -> torch.nn.Module:
    import inspect

    taken = inspect.signature(info.cls).parameters
    try:
        with torch.random.fork_rng():
            return create_model(info.name, **{key: value for key, value in dims.items() if key in taken}, **arguments)
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        if is_out_of_memory(error):
            raise Incompatible(
                f"gt-bench try {info.name}: the model alone does not fit into memory ({error}); give smaller widths"
            ) from error
        raise RecipeError(f"gt-bench try {info.name}: model: {error}") from error


def _without_defaults(name: str, arguments: Settings) -> Settings:
    parameters = ENCODINGS[name].parameters
    return {key: value for key, value in arguments.items() if value != parameters[key].default}


def _model(name: str) -> ModelInfo:
    try:
        found = find(name)
    except KeyError as error:
        raise RecipeError(error.args[0]) from None
    if wrong := [line for line in taken_names() if f" {name} = " in line]:
        raise OwnModelError(wrong[0])
    return found


def _packed(spec: DatasetSpec, grid: Grid) -> PackedDataset:
    from stages.datasets.prepare import prepare

    prepared = prepare(spec.name, DATA, grid.run.mirrors, print)
    if prepared.state == "unavailable":
        raise DatasetUnavailable(f"dataset {spec.name!r} cannot be had: {prepared.reason}")
    return PackedDataset.open(prepared.folder)


def _encode(recipe: Recipe, packed: PackedDataset) -> None:
    from stages.datasets.encoding import encode
    from stages.encode import requests

    for name, arguments in requests(recipe):
        encode(packed, DATA / "encodings" / packed.header.name, name, arguments)


def _cell(info: ModelInfo, dataset: str, given: Settings, trials: int | None) -> TriedCell:
    """Named by the model and what differs from the defaults, so that each variant keeps a result of its own: where another one has the short
    name already (a class of the same name in another file, -1 beside 1), with a digest of the two."""
    parts = [
        _row_name(info.name),
        *(f"{key.split('.')[-1]}-{value}" for key, value in given.items()),
        *(["searched"] if trials is not None else []),
    ]
    row = re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-.")[:80].rstrip("-.")
    if _is_of_another(Path(SUITE, dataset, f"{row}.yaml"), info.name, given):
        row = f"{row}-{digest_of([info.name, given])[:8]}"
    settings = "recipes" if trials is None else "tuned"
    return TriedCell(key=f"{SUITE}-{dataset}-{row}", cell=f"{SUITE}/{dataset}/{row}", dataset=dataset, model=row, settings=settings)


def _is_of_another(path: Path, model: str, given: Settings) -> bool:
    """Whether the recipe that was written there is of another model, or has other values by --set."""
    try:
        recipe = load_recipe(path)
    except RecipeError:  # not there, or damaged: it is written anew
        return False
    said = {key: recipe.value(key) for key, origin in recipe.origin.items() if origin == BY_SET}
    return recipe.model.name != model or said != {
        key: value for key, value in given.items() if key in recipe.given_values() and key != "seeds"
    }


def _row_name(model: str) -> str:
    """ "path/to/file.py:MyModel" -> "my-model"."""
    last = model.rpartition(":")[2] if ":" in model else Path(model).stem if model.endswith(".py") else model
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", last)


def _text(recipe: Recipe, given: Settings) -> str:
    origin = {key: BY_SET for key in given if key in recipe.given_values() and key != "seeds"}
    content = recipe.model_dump(mode="json", exclude_unset=True) | {
        "origin": {"all": "chosen: a default of stages/own/defaults.yaml", **origin}
    }
    if not set(recipe.given_values()) - set(origin):
        del content["origin"]["all"]
    return yaml.safe_dump(content, sort_keys=False, width=140)


def _track(result: Result, store: Store) -> None:
    """Completes the experiment `tried` of MLflow; a store that cannot be used costs one line."""
    from stages.addresses import without_credentials
    from stages.mlflow.address import tracking_uri
    from stages.mlflow.database import TrackingError
    from stages.mlflow.tracking import complete

    records = {digest: record for digest in result["runs"] if (record := store.get(digest)) is not None}
    try:
        complete(SUITE, [result], records, store=store, only=True)
    except TrackingError as error:
        uri = without_credentials(tracking_uri())
        print(
            f"warning: MLflow at {uri} was not completed: {without_credentials(str(error))}; the same command tries again", file=sys.stderr
        )
