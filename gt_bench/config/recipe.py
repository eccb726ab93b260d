"""Schema of recipes. Every mistake is a RecipeError that names the file, the key and the nearest valid one.

A recipe (suites/SUITE/recipes/DATASET/ROW.yaml) with its bases (gt_bench/config/inheritance.py) is complete: together
with the data and the code it determines a cell. The section `origin:` contains the source of each value.
gt_bench/experiment/validate.py checks whether a recipe fits its model and dataset. gt_bench/config/grid.py describes
the grid of cells.
"""

import math
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gt_bench.config.inheritance import ancestors, read_recipe
from gt_bench.config.match_section import MatchSection
from gt_bench.config.protocols import BrecSection, Protocol
from gt_bench.config.schema import Positive, RecipeError, Strict, nearest, validated
from gt_bench.config.search_space import SearchSection
from gt_bench.schemas import Settings

# first words of an origin: published in the paper, from its authors' scripts, not published, result of a search,
# different from the published value, chosen here
ORIGINS = ("printed", "authors", "unstated", "tuned", "deviates", "chosen")
BY_SET = "chosen: by --set"  # origin of a value given to `gt-bench try`
TRIED = "tried"  # suite of the cells of `gt-bench try`
# keys that describe a recipe and do not change numbers of a run
DESCRIBED = frozenset(
    {"seeds", "search", "published", "parameters", "keep_weights", "predictions", "match", "reduced", "origin"}
)

# keys that were added after the first records: these values are not part of a run's digest
USUAL = {"select": "best", "threads": 1, "processes": 1}


class ModelSection(BaseModel):
    """Name of the model and arguments of its constructor (checked by gt_bench/experiment/validate.py)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @model_validator(mode="after")
    def _finite(self) -> Self:
        for key, value in self.arguments.items():
            _check_plain(value, key)
        return self

    @property
    def arguments(self) -> Settings:
        """Arguments of the constructor, without the dimensions of the dataset."""
        return dict(self.model_extra or {})


class BatchSection(Strict):
    """Composition of batches.

    By default, a step uses the whole graph of a transductive dataset, or all training graphs.

    Attributes:
        graphs: graphs per step.
        nodes: largest number of nodes per step.
        parts: random parts of the nodes per epoch, for one large graph.
        targets: training nodes per step, for one large graph. A step computes a sampled subgraph around them.
        neighbors: largest number of sampled incoming edges of a node, for each hop around the targets.
        hyperedges: labelled hyperedges per step.
        edges: labelled edges per step, for tasks of edges. All training edges if not given.
        negatives: negatives per edge in training, for link prediction. They are drawn again in every epoch.
        configurations: configurations per graph and step, for ranking configurations.
        segment: largest number of nodes of a graph through which gradients flow in a step, for ranking configurations.
        evaluated: largest number of configurations of a graph on validation and test.
        bucket: whether graphs of similar size are grouped, which reduces padding.
        last: "alone" if a single remaining training graph is a separate step. By default it joins the step before it,
            because BatchNorm cannot train on one row. Batches of configurations and of hyperedges have several rows per
            graph and are not affected.
        static: True pads batches of graphs to a few sizes (docs/gpu.md).
    """

    graphs: Positive | None = None
    nodes: Positive | None = None
    parts: Positive | None = None
    targets: Positive | None = None
    neighbors: list[Positive] | None = Field(None, min_length=1)
    hyperedges: Positive | None = None
    edges: Positive | None = None
    negatives: Positive | None = None
    configurations: Positive | None = None
    segment: Positive | None = None
    evaluated: Positive | None = None
    bucket: bool = False
    last: Literal["alone"] | None = None
    static: Literal[True] | None = None

    @field_validator("static", mode="before")
    @classmethod
    def _not_static(cls, value: object) -> object:
        return None if value is False else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.parts or self.hyperedges) and (
            self.graphs or self.nodes or self.bucket or (self.parts and self.hyperedges)
        ):
            raise ValueError(
                "parts and hyperedges are for one large graph; use only one of them, without graphs, nodes or bucket"
            )
        if (self.targets is None) != (self.neighbors is None):
            raise ValueError(
                "targets and neighbors belong together; add the other one: targets: 512, neighbors: [9, 9]"
            )
        if self.targets and (self.graphs or self.nodes or self.bucket or self.parts or self.hyperedges):
            raise ValueError("targets samples one large graph; remove graphs, nodes, bucket, parts and hyperedges")
        if self.last and not (self.graphs or self.nodes):
            raise ValueError("last is for batches of graphs; add batch.graphs or batch.nodes, or remove it")
        return self


class OptimizerSection(Strict):
    """Adam, AdamW or SGD of torch. `clip_norm` is the largest norm of the gradient of a step."""

    name: Literal["adam", "adamw", "sgd"] = "adamw"
    lr: float = Field(gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-8, ge=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, allow_inf_nan=False)
    clip_norm: float | None = Field(None, gt=0, allow_inf_nan=False)


class ScheduleSection(Strict):
    """Learning rate over time, as a multiple of `lr`.

    Attributes:
        name: shape after the warm-up. "plateau": multiply by `factor` after `patience` epochs without a better
            validation value. "step": multiply by `factor` every `every` units.
        unit: unit of `warmup`, `every` and `total`.
        warmup: length of the linear warm-up.
        start_factor: factor at its start.
        final_factor: factor at the end of "cosine" and "linear".
        factor: factor of "plateau" and "step".
        patience: epochs of "plateau".
        every: units of "step".
        total: end of the schedule, if it is not the end of training. The learning rate is constant after it.
    """

    name: Literal["constant", "cosine", "linear", "plateau", "step"] = "constant"
    unit: Literal["epoch", "step"] = "epoch"
    warmup: int = Field(0, ge=0)
    start_factor: float = Field(0.0, ge=0, allow_inf_nan=False)
    final_factor: float = Field(0.0, ge=0, allow_inf_nan=False)
    factor: float = Field(0.5, gt=0, lt=1)
    patience: Positive = 10
    every: Positive | None = None
    total: Positive | None = None

    @model_validator(mode="after")
    def _after_warmup(self) -> Self:
        if (self.name == "step") != (self.every is not None):
            raise ValueError("schedule.every is required for schedule.name step, and invalid for others")
        if self.total is not None and self.total <= self.warmup:
            raise ValueError("schedule.total must be larger than schedule.warmup")
        return self


class Phase(Strict):
    """One phase of training.

    Attributes:
        name: passed to the model's set_phase.
        epochs: number of epochs.
        reload_best: start from the best weights so far and the state of their optimiser.
    """

    name: str
    epochs: Positive
    reload_best: bool = False


class StartSection(Strict):
    """Fine-tuning: a run starts from the best weights of another cell's run with the same seed.

    Optimiser and schedule start from the beginning.

    Attributes:
        cell: suite/dataset/row. Its recipe must have `keep_weights: true`.
        load: "all": both models have the same weights. "common": weights with equal names and shapes are loaded, others
            are initialised.
    """

    cell: str = Field(pattern=r"^[^/\s]+/[^/\s]+/[^/\s]+$")
    load: Literal["all", "common"] = "all"


class AlsoPublished(Strict):
    """Another table that contains the number of the same run. Missing keys are as in `published`."""

    table: str
    method: str | None = None
    metric: str | None = None
    split: str | None = None
    dataset: str | None = None


class PublishedRef(Strict):
    """Place of the published number in the results.yaml of the paper's suite.

    Attributes:
        paper: suite of the paper.
        table: name of the table.
        method: row of the table.
        dataset: column of the table, if it is not the dataset of the cell.
        metric: metric, if there are several.
        split: split, if it is not the test split or there are several.
        also: further tables that contain the number of the same run.
    """

    paper: str
    table: str
    method: str
    dataset: str | None = None
    metric: str | None = None
    split: str | None = None
    also: list[AlsoPublished] = []

    def references(self, dataset: str) -> list[dict[str, str | None]]:
        """Returns every place as keys of results.yaml. Metric and split are None for any."""
        main = {"paper": self.paper, "table": self.table, "method": self.method, "dataset": self.dataset or dataset}
        places = [main | {"metric": self.metric, "split": self.split}]
        others = [a.model_dump(exclude_none=True) | {"metric": a.metric, "split": a.split} for a in self.also]
        return places + [main | other for other in others]


class SubgraphsSection(Strict):
    """Node2Subgraph (PPGT, Appendix B.4): one small graph per node of a large graph.

    A subgraph is drawn once per run. Encodings are computed for the subgraphs during training. The model predicts per
    graph.

    Attributes:
        hops: largest distance from the node.
        max_nodes: largest number of nodes.
    """

    hops: int = Field(ge=0)
    max_nodes: Positive


class FeaturesSection(Strict):
    """Preparation of continuous node features, fitted on the training part of each split.

    Attributes:
        scale: "standard": mean 0 and standard deviation 1; "quantile": the quantiles of a normal distribution.
        missing: what a missing value (NaN) becomes. "mean": the mean of the column; "indicator": the mean, and a column
            of 0 and 1 is added for each column with missing values; "error": data with missing values are rejected.
    """

    scale: Literal["standard", "quantile", "none"] = "none"
    missing: Literal["mean", "indicator", "error"] = "error"


class HeadSection(Strict):
    """Prediction for an edge from the embeddings of its two nodes (`gt_models.layers.edge_head`), for tasks of edges.

    Attributes:
        name: "dot": inner product, one output. "product": MLP of the elementwise product. "concat": MLP of both.
        dim: width of the embeddings, which is `out_dim` of the model, and of the hidden layers of the MLP.
        layers: linear layers of the MLP.
        dropout: after each hidden layer of the MLP.
    """

    name: Literal["dot", "product", "concat"]
    dim: Positive = 64
    layers: Positive = 2
    dropout: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _of_mlp(self) -> Self:
        if self.name == "dot" and (extra := sorted({"layers", "dropout"} & self.model_fields_set)):
            raise ValueError(f"head.{extra[0]} is for product and concat; dot has no layers: remove it")
        return self


def model_level(level: str) -> str:
    """Returns what a model predicts for targets of this level: embeddings of nodes for targets of edges."""
    return "node" if level == "edge" else level


class Recipe(Strict):
    """Hyperparameters of one model on one dataset.

    Attributes:
        model: model and arguments of its constructor.
        encodings: {encoding: its arguments}.
        subgraphs: how a large graph is divided into small ones.
        features: preparation of node features. None to use them unchanged.
        batch: composition of batches.
        head: prediction for an edge from the embeddings of its nodes.
        loss: loss function. None for the default of the task.
        optimizer: optimiser.
        schedule: learning rate over time.
        epochs: number of epochs, if there are no phases.
        phases: phases of training.
        eval_every: epochs between two validations. The last epoch is always validated.
        eval_after: validation starts after this epoch.
        eval_device: device of validation and test, for a graph that does not fit on the training device as a whole.
        select: epoch that is tested: the best on validation, or the last one. "test" selects on the test split, as some
            released code does. Such a row is only for comparison with the number that was published this way.
        patience: epochs without a better validation value after which training stops.
        targets: standardise regression targets per column with the statistics of the training part ("train") or of all
            parts ("all", which leaks test statistics, for protocols that do so). None to use them unchanged.
        start: fine-tuning.
        keep_weights: whether the best weights are stored, for cells that start from them.
        predictions: limit of stored predictions in MiB, instead of `run.predictions` of params.yaml.
        match: a width that follows from a number of parameters.
        brec: settings of the BREC protocol.
        precision: precision of training.
        compile: mode of torch.compile for the model (docs/gpu.md). None does not compile it.
        threads: CPU threads of one process. Sums over several threads round differently.
        processes: processes that share the graphs of each step (docs/gpu.md). Each has `threads` threads or a GPU. The
            batch size is that of all processes together.
        seeds: seeds of the runs.
        split: index of the split of all seeds. "seed": each seed has its own.
        published: place of the published number.
        parameters: published number of parameters, for information only.
        reduced: reductions of the recipe itself, for information only.
        search: search of hyperparameters.
        origin: {dotted key: source of its value}.
    """

    model: ModelSection
    encodings: dict[str, Settings] = {}
    subgraphs: SubgraphsSection | None = None
    features: FeaturesSection | None = None
    batch: BatchSection = BatchSection()
    head: HeadSection | None = None
    loss: (
        Literal[
            "cross-entropy",
            "weighted-cross-entropy",
            "l1",
            "mse",
            "bce",
            "bce-one-hot",
            "bce-f1",
            "list-mle",
            "pairwise-hinge",
        ]
        | None
    ) = None
    optimizer: OptimizerSection
    schedule: ScheduleSection = ScheduleSection()
    epochs: Positive | None = None
    phases: list[Phase] = []
    eval_every: Positive = 1
    eval_after: Positive | None = None
    eval_device: Literal["cpu"] | None = None
    select: Literal["best", "last", "test"] = "best"
    patience: Positive | None = None
    targets: Literal["train", "all"] | None = None
    start: StartSection | None = None
    keep_weights: bool = False
    predictions: float | None = Field(None, ge=0, allow_inf_nan=False)
    match: MatchSection | None = None
    brec: BrecSection | None = None
    precision: Literal["float32", "bf16", "float64"] = "float32"
    compile: Literal["default", "reduce-overhead"] | None = None
    threads: int = Field(1, ge=1, le=1024)
    processes: int = Field(1, ge=1, le=1024)
    seeds: list[int] = Field(min_length=1)
    split: Literal["seed"] | int = "seed"
    published: PublishedRef | None = None
    parameters: Positive | None = None
    reduced: list[str] = []
    search: SearchSection | None = None
    origin: dict[str, str] = {}

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("duplicate seeds")
        return seeds

    @field_validator("encodings", mode="before")
    @classmethod
    def _no_arguments(cls, value: object) -> object:
        return {k: v or {} for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("encodings")
    @classmethod
    def _plain(cls, value: dict[str, Settings]) -> dict[str, Settings]:
        for name, arguments in value.items():
            _check_plain(arguments, name)
        return value

    @field_validator("features")
    @classmethod
    def _does_something(cls, value: FeaturesSection | None) -> FeaturesSection | None:
        """Makes one identity of the two ways to prepare nothing."""
        return None if value == FeaturesSection() else value

    @model_validator(mode="after")
    def _length(self) -> Self:
        if (self.epochs is None) == (not self.phases):
            raise ValueError("expected either epochs or phases")
        if self.select == "last" and (self.patience or any(phase.reload_best for phase in self.phases)):
            raise ValueError("select: last has no best epoch; remove patience and reload_best")
        if self.select == "test":
            self._check_selection_on_test()
        for how in ("threads", "processes", "compile", "batch.static"):
            if self.search and any(
                how in (key, *getattr(space, "also", ())) for key, space in self.search.space.items()
            ):
                raise ValueError(f"search.space: {how} is not a hyperparameter; remove it")
        if self.search and self.start:
            raise ValueError(
                "a search cannot start from the weights of another cell; search that cell, and start from it "
                "without a search"
            )
        if self.subgraphs and not self.batch.graphs:
            raise ValueError("subgraphs need batch.graphs, the number of graphs per step")
        if self.subgraphs and self.head:
            raise ValueError("head is for targets of edges, and subgraphs are for targets of nodes; remove one of them")
        if self.subgraphs and self.eval_device:
            raise ValueError("eval_device is for a large graph that is evaluated as a whole; remove it, or subgraphs")
        if self.processes > 1:
            if self.batch.graphs and self.batch.graphs < self.processes:
                raise ValueError(
                    f"processes: {self.processes} processes share the graphs of a step, but batch.graphs is "
                    f"{self.batch.graphs}; use at most {self.batch.graphs} processes"
                )
            listed = ("parts", "targets", "hyperedges", "edges", "configurations")
            alone = [key for key in listed if getattr(self.batch, key)]
            alone = [f"batch.{key}" for key in alone]
            alone += [self.protocol.KEY] if self.protocol else []
            alone += ["eval_device"] if self.eval_device else []
            if alone:
                raise ValueError(
                    f"processes: {self.processes} processes share the graphs of a step, which {alone[0]} does "
                    "not support; "
                    "remove one of them"
                )
        return self

    def _check_selection_on_test(self) -> None:
        if not self.origin.get("select", "").startswith("authors:"):
            raise ValueError(
                "select: test is only for rows that repeat what authors did: origin.select must begin with `authors:`; "
                "all other rows use select: best, which reads validation"
            )
        reading = {
            "search": self.search, "patience": self.patience, "protocol": self.protocol,
            "phases.reload_best": any(phase.reload_best for phase in self.phases),
            "schedule plateau": self.schedule.name == "plateau",
        }  # fmt: skip
        if wrong := [key for key, value in reading.items() if value]:
            raise ValueError(f"select: test with {', '.join(wrong)} would also train on the test split; remove one")

    def given_values(self) -> list[str]:
        """Returns the dotted keys of values that the recipe contains and that change numbers. Each needs an origin."""
        content = self.model_dump(
            mode="json",
            exclude_unset=True,
            exclude={"published", "parameters", "keep_weights", "predictions", "reduced", "origin"},
        )
        content["model"].pop("name")
        return [key for key, _ in _flat(content) if not key.startswith("search.space.")] + ["search.space"] * (
            "search" in content
        )

    @property
    def cores(self) -> int:
        """CPU cores of a run."""
        return self.threads * self.processes

    @property
    def total_epochs(self) -> int:
        """Number of epochs of all phases."""
        return self.epochs or sum(p.epochs for p in self.phases)

    def level_of(self, level: str) -> str:
        """Returns the level at which the model predicts for a dataset of this level.

        With subgraphs, graphs replace nodes. For targets of edges, the model predicts embeddings of nodes.
        """
        return "graph" if self.subgraphs and level == "node" else model_level(level)

    def width_of(self, out_dim: int) -> int:
        """Returns the number of outputs of the model for a dataset with `out_dim` classes or targets."""
        return self.head.dim if self.head else out_dim

    @property
    def reports(self) -> int:
        """Number of progress reports of a run: one per epoch, or per part of a special protocol."""
        return self.protocol.parts if self.protocol else self.total_epochs

    @property
    def searched(self) -> SearchSection:
        """Section `search` of a recipe that has one."""
        assert self.search is not None
        return self.search

    @property
    def protocol(self) -> Protocol | None:
        """Section of a task with a special protocol, None for other tasks."""
        return next((value for _, value in self if isinstance(value, Protocol)), None)

    def with_protocol(self, section: Protocol) -> "Recipe":
        """Returns the recipe with another section of its task's protocol."""
        return self.model_copy(update={section.KEY: section})

    def decisive(self) -> Settings:
        """Returns the content that determines the numbers of a run, besides seed, data and code.

        Empty values are left out, so that a new optional key does not change existing digests.
        """
        usual = {key for key, value in USUAL.items() if getattr(self, key) == value}
        content = self.model_dump(mode="json", exclude=set(DESCRIBED) | usual)
        # an empty argument of a constructor may override a default
        as_given = {key: content.pop(key) for key in ("model", "encodings")}
        return _without_empty(content) | as_given

    def with_values(self, values: Settings) -> "Recipe":
        """Returns a copy with other values.

        Args:
            values: {dotted key: value}, for example {"model.dropout": 0.2}. Keys that the search ties to them get the
                same value.

        Raises:
            RecipeError: a key does not exist, or a value is invalid.
        """
        content = self.model_dump(exclude_unset=True)
        for key, value in self.with_tied(values).items():
            place = content
            *parents, last = key.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise RecipeError(f"{key}: no such key, because {parent} is a value and not a section")
            place[last] = value
        return validated(Recipe, content, "the search space")

    def value(self, key: str) -> object:
        """Returns the value of a dotted key, None if there is none."""
        return dict(_flat(self.model_dump(exclude_unset=True))).get(key)

    def with_tied(self, values: Settings) -> Settings:
        """Returns `values` with the same values for keys that the search ties to them (`also`)."""
        spaces = self.search.space if self.search else {}
        return values | {
            other: value for key, value in values.items() for other in getattr(spaces.get(key), "also", ())
        }

    def split_of(self, seed: int, num_splits: int) -> int:
        """Returns the index of the split of a seed, 0 if the dataset has no splits.

        Raises:
            RecipeError: the dataset has no such split.
        """
        if num_splits == 0:
            return 0
        index = seed % num_splits if self.split == "seed" else self.split
        if not 0 <= index < num_splits:
            raise RecipeError(f"split: no split {index}; the dataset has {num_splits}")
        return index


def load_recipe(path: str | Path) -> Recipe:
    """Reads and validates a recipe with its bases.

    The arguments of the model are validated by gt_bench/experiment/validate.py.

    Raises:
        RecipeError: the recipe is invalid.
    """
    content, without_origin = read_recipe(path)
    recipe = validated(Recipe, content, str(path))
    if without_origin:
        key = without_origin[0]
        raise RecipeError(f"{path}: {key} differs from its base and has no origin here; add origin.{key}")
    check_origins(recipe, path)
    if recipe.match:
        # imported on first use: it builds models, which no other recipe needs
        recipe = import_module("gt_bench.experiment.match_size").resolved(recipe, Path(path).parent.name, str(path))
    return recipe


def check_origins(recipe: Recipe, path: str | Path = "recipe", complete: bool = False) -> None:
    """Validates the origins of a recipe.

    An origin of `model` applies to every `model.x` without one, and `all` to every value without one.

    Args:
        recipe: the recipe.
        path: its file, for messages.
        complete: whether every value needs an origin.

    Raises:
        RecipeError: an origin has an unknown kind, applies to no value, or applies only to values with another origin.
    """
    values = recipe.given_values()
    covers = {key: {v for v in values if key == "all" or v == key or v.startswith(f"{key}.")} for key in recipe.origin}
    for key, text in recipe.origin.items():
        where = f"{path}: origin.{key:.200}"
        if not covers[key]:
            known = sorted({v for value in values for v in ancestors(value)})
            raise RecipeError(f"{where}: the recipe has no value {key!r:.200}{nearest(key, known)}")
        if not text.startswith(ORIGINS):
            raise RecipeError(f"{where}: expected one of {', '.join(ORIGINS)} as first word (given: {text!r:.200})")
        # "tuned" may be added to the origin of the starting value
        narrower = [
            other for other in covers if covers[other] < covers[key] and not recipe.origin[other].startswith("tuned")
        ]
        if narrower and covers[key] == set().union(*(covers[other] for other in narrower)):
            raise RecipeError(f"{where}: second origin of {', '.join(sorted(narrower))}; keep one of them")
    if complete:
        without = sorted(set(values) - set().union(*covers.values()))
        if without:
            raise RecipeError(f"{path}: no origin for {', '.join(without)}")


def _check_plain(value: object, where: str) -> None:
    """Checks that JSON can represent a value exactly, so that its digest is unique.

    Raises:
        ValueError: it cannot.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; expected a finite number")
    if isinstance(value, list | tuple):
        for number, one in enumerate(value):
            _check_plain(one, f"{where}[{number}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: the key {key!r:.200} is not text; write it in quotes")
            _check_plain(one, f"{where}.{key:.200}")
    elif not isinstance(value, bool | int | float | str | None):
        raise ValueError(f"{where} is {value!r:.200}; expected a number, text, true, false, null, a list or a mapping")


def _flat(content: Settings, prefix: str = "") -> list[tuple[str, object]]:
    """Returns dotted keys and values of nested mappings. An empty mapping is a value."""
    pairs: list[tuple[str, object]] = []
    for key, value in content.items():
        pairs += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else [(f"{prefix}{key}", value)]
    return pairs


def _without_empty(content: Settings) -> Settings:
    return {
        key: _without_empty(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None and value != [] and value != {}
    }
