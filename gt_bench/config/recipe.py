"""Schema of recipes. Every mistake is a RecipeError that names the file, the key and the nearest valid one.

A recipe (suites/SUITE/recipes/DATASET/ROW.yaml) with its bases (gt_bench/config/inheritance.py) is complete: together
with the data and the code it determines a cell. The section `origin:` contains the source of each value.
gt_bench/experiment/validate.py checks whether a recipe fits its model and dataset. gt_bench/config/grid.py describes
the grid of cells.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from gt_bench.config.inheritance import read_recipe
from gt_bench.config.origins import check_origins
from gt_bench.config.protocols import BrecSection, Protocol
from gt_bench.config.recipe_sections import (
    BatchSection,
    FeaturesSection,
    HeadSection,
    ModelSection,
    OptimizerSection,
    Phase,
    PublishedRef,
    ScheduleSection,
    StartSection,
    SubgraphsSection,
    check_plain,
)
from gt_bench.config.schema import Positive, RecipeError, Strict, validated
from gt_bench.config.search_section import SearchSection
from gt_bench.records.cell import Reduction
from gt_bench.utils.json_types import Settings
from gt_bench.utils.nested import flat

BY_SET = "chosen: by --set"  # origin of a value given to `gt-bench try`
TRIED = "tried"  # suite of the cells of `gt-bench try`
# keys that do not change numbers of a run
DESCRIPTIVE = frozenset(
    {"seeds", "search", "published", "parameters", "keep_weights", "predictions", "reduced", "origin"}
)
# defaults that a run's digest leaves out, because the first records do not have these keys
OMITTED_DEFAULTS = {"select": "best", "threads": 1, "processes": 1}


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
    brec: BrecSection | None = None
    precision: Literal["float32", "bf16", "float64"] = "float32"
    compile: Literal["default", "reduce-overhead"] | None = None
    threads: int = Field(1, ge=1, le=1024)
    processes: int = Field(1, ge=1, le=1024)
    seeds: list[int] = Field(min_length=1)
    split: Literal["seed"] | int = "seed"
    published: PublishedRef | None = None
    parameters: Positive | None = None
    reduced: list[Reduction | str] = []
    search: SearchSection | None = None
    origin: dict[str, str] = {}

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("duplicate seeds")
        return seeds

    @field_validator("encodings", mode="before")
    @classmethod
    def _without_arguments(cls, value: object) -> object:
        return {k: v or {} for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("encodings")
    @classmethod
    def _check_encodings(cls, value: dict[str, Settings]) -> dict[str, Settings]:
        for name, arguments in value.items():
            check_plain(arguments, name)
        return value

    @field_validator("features")
    @classmethod
    def _none_if_default(cls, value: FeaturesSection | None) -> FeaturesSection | None:
        """Both ways to leave features unchanged give the same digest."""
        return None if value == FeaturesSection() else value

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if (self.epochs is None) == (not self.phases):
            raise RecipeError("expected either epochs or phases")
        if self.select == "last" and (self.patience or any(phase.reload_best for phase in self.phases)):
            remedy = "remove patience and reload_best"
            raise RecipeError("last has no best epoch", place="select", value=self.select, remedy=remedy)
        if self.patience and self.phases:
            remedy = "remove patience, or use epochs"
            raise RecipeError("would end the run in its first phase", place="patience", remedy=remedy)
        if self.patience and self.patience < self.eval_every:
            raise RecipeError(
                f"{self.patience} epochs can pass without a validation, because eval_every is {self.eval_every}",
                place="patience",
                value=self.patience,
                remedy="use a longer patience",
            )
        if self.select == "test":
            self._check_selection_on_test()
        for how in ("threads", "processes", "compile", "batch.static"):
            if self.search and any(
                how in (key, *getattr(space, "also", ())) for key, space in self.search.space.items()
            ):
                problem = f"{how} is not a hyperparameter"
                raise RecipeError(problem, place="search.space", value=how, remedy="remove it")
        if self.search and self.start:
            remedy = "search that cell, and start from it without a search"
            raise RecipeError("a search cannot start from the weights of another cell", place="start", remedy=remedy)
        if self.subgraphs and not self.batch.graphs:
            raise RecipeError("need batch.graphs, the number of graphs per step", place="subgraphs")
        if self.subgraphs and self.head:
            problem = "is for targets of edges, and subgraphs are for targets of nodes"
            raise RecipeError(problem, place="head", remedy="remove one of them")
        if self.subgraphs and self.eval_device:
            problem = "is for a large graph that is evaluated as a whole"
            raise RecipeError(problem, place="eval_device", remedy="remove it, or subgraphs")
        if self.processes > 1:
            shared = f"{self.processes} processes share the graphs of a step"
            if self.batch.graphs and self.batch.graphs < self.processes:
                raise RecipeError(
                    f"{shared}, but batch.graphs is {self.batch.graphs}",
                    place="processes",
                    value=self.processes,
                    remedy=f"use at most {self.batch.graphs} processes",
                )
            keys = ("parts", "targets", "hyperedges", "edges", "configurations")
            unsupported = [f"batch.{key}" for key in keys if getattr(self.batch, key)]
            unsupported += [self.protocol.KEY] if self.protocol else []
            unsupported += ["eval_device"] if self.eval_device else []
            if unsupported:
                raise RecipeError(
                    f"{shared}, which {unsupported[0]} does not support",
                    place="processes",
                    value=self.processes,
                    remedy="remove one of them",
                )
        return self

    def _check_selection_on_test(self) -> None:
        if not self.origin.get("select", "").startswith("authors:"):
            raise RecipeError(
                "test is only for rows that repeat what authors did: origin.select must begin with `authors:`; all "
                "other rows use select: best, which reads validation",
                place="select",
                value=self.select,
            )
        reading = {
            "search": self.search, "patience": self.patience, "protocol": self.protocol,
            "phases.reload_best": any(phase.reload_best for phase in self.phases),
            "schedule plateau": self.schedule.name == "plateau",
        }  # fmt: skip
        if wrong := [key for key, value in reading.items() if value]:
            problem = f"test with {', '.join(wrong)} would also train on the test split"
            raise RecipeError(problem, place="select", value=self.select, remedy="remove one")

    def given_values(self) -> list[str]:
        """Returns the dotted keys of values that the recipe contains and that change numbers. Each needs an origin."""
        content = self.model_dump(
            mode="json",
            exclude_unset=True,
            exclude={"published", "parameters", "keep_weights", "predictions", "reduced", "origin"},
        )
        content["model"].pop("name")
        return [key for key, _ in flat(content) if not key.startswith("search.space.")] + ["search.space"] * (
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
        omitted = {key for key, value in OMITTED_DEFAULTS.items() if getattr(self, key) == value}
        content = self.model_dump(mode="json", exclude=set(DESCRIPTIVE) | omitted)
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
                    raise RecipeError(f"no such key, because {parent} is a value and not a section", place=key)
            place[last] = value
        return validated(Recipe, content, "")

    def value(self, key: str) -> object:
        """Returns the value of a dotted key, None if there is none."""
        return dict(flat(self.model_dump(exclude_unset=True))).get(key)

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
            raise RecipeError(f"no split {index}; the dataset has {num_splits}", place="split", value=index)
        return index


def load_recipe(path: str | Path) -> Recipe:
    """Reads and validates a recipe with its bases.

    The arguments of the model are validated by gt_bench/experiment/validate.py.

    Raises:
        RecipeError: the recipe is invalid.
    """
    content, without_origin = read_recipe(path)
    recipe = validated(Recipe, content, path)
    if without_origin:
        key = without_origin[0]
        problem = "differs from its base and has no origin here"
        raise RecipeError(problem, file=path, place=key, remedy=f"add origin.{key}")
    check_origins(recipe.given_values(), recipe.origin, path)
    return recipe


def _without_empty(content: Settings) -> Settings:
    return {
        key: _without_empty(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None and value != [] and value != {}
    }
