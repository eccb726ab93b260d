"""What may be in a recipe. Every mistake is a RecipeError that names the file, the key and the nearest valid one.

A recipe (suites/SUITE/recipes/DATASET/ROW.yaml), with what it starts from (`base:`, see gt_bench/config/inheritance.py), is complete: it decides a cell together
with the data and the code, and each value says under `origin:` where it came from. Whether it fits its model and dataset: gt_bench/experiment/validate.py. The grid of
cells is in gt_bench/config/grid.py.
"""

import hashlib
import json
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

# how an origin begins: printed in the paper, set by its authors' scripts, stated nowhere, found by search, other than published, ours
ORIGINS = ("printed", "authors", "unstated", "tuned", "deviates", "chosen")
BY_SET = "chosen: by --set"  # of a value that `gt-bench try` was given
TRIED = "tried"  # the suite of what it ran
# what describes a recipe and decides no number of a run
DESCRIBED = frozenset(
    {"seeds", "search", "published", "parameters", "keep_weights", "predictions", "match", "reduced", "origin"}
)

# keys that came after the first records: at these values they are left out of what decides a run
USUAL = {"select": "best", "threads": 1, "processes": 1}


class ModelSection(BaseModel):
    """`name`, and beside it the arguments of the model's constructor (checked against its signature by gt_bench/experiment/validate.py)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @model_validator(mode="after")
    def _finite(self) -> Self:
        for key, value in self.arguments.items():
            _check_plain(value, key)
        return self

    @property
    def arguments(self) -> Settings:
        """What the constructor is given besides the dataset's dimensions."""
        return dict(self.model_extra or {})


class BatchSection(Strict):
    """`graphs` per step, at most `nodes` per step, or both (many graphs; `bucket` puts graphs of like size together, which saves padding), or
    random node `parts` per epoch (one large graph), or known `hyperedges` per step. Nothing: the whole graph of a transductive dataset, or
    every training graph, is one step. Where configurations of graphs are ranked: `configurations` drawn per graph and step, `segment` nodes of
    a graph at most through which gradients flow in a step, `evaluated` configurations of a graph at most on validation and test.

    Where one training graph is left over, it joins the step before it, since BatchNorm cannot train on one row. `last: alone` makes it a step
    of its own, for a protocol that does so. Batches of configurations and of hyperedges have several rows a graph, and join nothing."""

    graphs: Positive | None = None
    nodes: Positive | None = None
    parts: Positive | None = None
    hyperedges: Positive | None = None
    configurations: Positive | None = None
    segment: Positive | None = None
    evaluated: Positive | None = None
    bucket: bool = False
    last: Literal["alone"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.parts or self.hyperedges) and (
            self.graphs or self.nodes or self.bucket or (self.parts and self.hyperedges)
        ):
            raise ValueError(
                "parts and hyperedges are for one large graph: give one of them, and no graphs, nodes or bucket beside it"
            )
        if self.last and not (self.graphs or self.nodes):
            raise ValueError("last is for batches of graphs: give batch.graphs or batch.nodes beside it")
        return self


class OptimizerSection(Strict):
    """torch's Adam, AdamW or SGD; `clip_norm`: the largest norm of a step's gradient."""

    name: Literal["adam", "adamw", "sgd"] = "adamw"
    lr: float = Field(gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-8, ge=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, allow_inf_nan=False)
    clip_norm: float | None = Field(None, gt=0, allow_inf_nan=False)


class ScheduleSection(Strict):
    """Learning rate over time as a multiple of `lr`: linear warm-up from `start_factor`, then constant, cosine or linear to `final_factor`;
    or plateau: times `factor` after `patience` epochs without a better validation value; or step: times `factor` every so many. `total`: where the schedule ends, in its unit, if
    that is not where training does; the rate stays at its last value from there."""

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
            raise ValueError("schedule.every belongs to schedule.name step, and to no other")
        if self.total is not None and self.total <= self.warmup:
            raise ValueError("schedule.total must come after the warm-up")
        return self


class Phase(Strict):
    """One stretch of training; `name` is handed to the model's set_phase. `reload_best`: start from the best weights so far (and their
    optimiser state)."""

    name: str
    epochs: Positive
    reload_best: bool = False


class StartSection(Strict):
    """Fine-tuning: a run begins from the best weights of the run of `cell` (suite/dataset/row) with the same seed; that cell's recipe says
    `keep_weights: true`. `load`: "all": the two models have the same weights; "common": those that both have by name and shape are taken,
    the others begin as they are drawn. Optimiser and schedule begin anew."""

    cell: str = Field(pattern=r"^[^/\s]+/[^/\s]+/[^/\s]+$")
    load: Literal["all", "common"] = "all"


class AlsoPrinted(Strict):
    """Another table that has the same run's number; what is not named here is as in `published`."""

    table: str
    method: str | None = None
    metric: str | None = None
    split: str | None = None
    dataset: str | None = None


class PublishedRef(Strict):
    """Where the published number is in the results.yaml of the paper's suite; the dataset is the cell's unless named here. `split`: which one was
    printed, where it is not the test split or there are several. `also`: further tables that print the same run."""

    paper: str
    table: str
    method: str
    dataset: str | None = None
    metric: str | None = None
    split: str | None = None
    also: list[AlsoPrinted] = []

    def references(self, dataset: str) -> list[dict[str, str | None]]:
        """Every printed place as the keys of results.yaml; metric and split None: whichever is printed there."""
        main = {"paper": self.paper, "table": self.table, "method": self.method, "dataset": self.dataset or dataset}
        places = [main | {"metric": self.metric, "split": self.split}]
        others = [a.model_dump(exclude_none=True) | {"metric": a.metric, "split": a.split} for a in self.also]
        return places + [main | other for other in others]


class SubgraphsSection(Strict):
    """Node2Subgraph (PPGT, Appendix B.4): one large graph as one small graph per node, of at most `max_nodes` nodes up to `hops` hops away.
    A node's subgraph is drawn once per run; encodings are those of the subgraphs, made on the fly; the model predicts per graph."""

    hops: int = Field(ge=0)
    max_nodes: Positive


class Recipe(Strict):
    """Every hyperparameter of one model on one dataset.

    `eval_every`, `eval_after`: validation in every so many epochs, from after this one; and in the last. `eval_device`: where validation and
    test run, for a graph that does not fit into the training device whole. `select`: the epoch that is tested, the best on validation or the
    last one (then validation decides nothing). `targets`: regression targets standardised per column with the
    statistics of the training part ("train") or of all parts ("all": a leak, for protocols that were run so); nothing: as packed.
    `start`: fine-tuning; `keep_weights`: best weights stay in the store beside the record, for cells that start from them. `predictions`: instead of `run.predictions` of
    params.yaml (MiB). `match`: a width that follows from a number of parameters. `brec`: what that task asks for besides.
    `threads`: of the CPU, in one run; sums over several are rounded otherwise. `processes`: that share the graphs of each step of one run (docs/gpu.md), each with so many threads or
    a GPU of its own; the batch is that of all together. `parameters`: the count that the paper prints for this row; decides nothing."""

    model: ModelSection
    encodings: dict[str, Settings] = {}
    subgraphs: SubgraphsSection | None = None
    batch: BatchSection = BatchSection()
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
    select: Literal["best", "last"] = "best"
    patience: Positive | None = None
    targets: Literal["train", "all"] | None = None
    start: StartSection | None = None
    keep_weights: bool = False
    predictions: float | None = Field(None, ge=0, allow_inf_nan=False)
    match: MatchSection | None = None
    brec: BrecSection | None = None
    precision: Literal["float32", "bf16", "float64"] = "float32"
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
            raise ValueError("seeds repeat")
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

    @model_validator(mode="after")
    def _length(self) -> Self:
        if (self.epochs is None) == (not self.phases):
            raise ValueError("give either epochs or phases")
        if self.select == "last" and (self.patience or any(phase.reload_best for phase in self.phases)):
            raise ValueError("select: last knows no best epoch: give no patience and no reload_best beside it")
        for how in ("threads", "processes"):
            if self.search and any(
                how in (key, *getattr(space, "also", ())) for key, space in self.search.space.items()
            ):
                raise ValueError(
                    f"search.space: {how} is no hyperparameter: it says how a run is computed, not what; take it out"
                )
        if self.search and self.start:
            raise ValueError(
                "a search cannot start from another cell's weights: search that cell, and start from it without a search"
            )
        if self.subgraphs and not self.batch.graphs:
            raise ValueError("subgraphs are many graphs: give batch.graphs, how many make a step")
        if self.subgraphs and self.eval_device:
            raise ValueError("eval_device is for a large graph that is evaluated whole: give none beside subgraphs")
        if self.processes > 1:
            if self.batch.graphs and self.batch.graphs < self.processes:
                raise ValueError(
                    f"processes: {self.processes} share the graphs of a step, and batch.graphs is {self.batch.graphs}: give at most as many processes"
                )
            alone = [key for key in ("parts", "hyperedges", "configurations") if getattr(self.batch, key)]
            alone = [f"batch.{key}" for key in alone]
            alone += [self.protocol.KEY] if self.protocol else []
            alone += ["eval_device"] if self.eval_device else []
            if alone:
                raise ValueError(
                    f"processes: {self.processes} share the graphs of a step, which {alone[0]} knows nothing of: take one of the two out"
                )
        return self

    def given_values(self) -> list[str]:
        """Dotted keys of the values that the recipe gives and that decide its numbers: what has an origin."""
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
        """That a run computes on."""
        return self.threads * self.processes

    @property
    def total_epochs(self) -> int:
        """Of all phases."""
        return self.epochs or sum(p.epochs for p in self.phases)

    def level_of(self, level: str) -> str:
        """What the model predicts for on a dataset of this level: a subgraph is predicted in place of its node."""
        return "graph" if self.subgraphs and level == "node" else level

    @property
    def reports(self) -> int:
        """How often a run reports its progress: after every epoch, or after every part of a task's own protocol."""
        return self.protocol.parts if self.protocol else self.total_epochs

    @property
    def searched(self) -> SearchSection:
        """`search`, of a recipe that has one."""
        assert self.search is not None
        return self.search

    @property
    def protocol(self) -> Protocol | None:
        """The section of a task with a protocol of its own."""
        return next((value for _, value in self if isinstance(value, Protocol)), None)

    def with_protocol(self, section: Protocol) -> "Recipe":
        """The recipe with another section of its task's protocol."""
        return self.model_copy(update={section.KEY: section})

    def decisive(self) -> Settings:
        """What decides a run's numbers besides seed, data and code. Empty values are left out, so that a new optional key changes no old digest."""
        usual = {key for key, value in USUAL.items() if getattr(self, key) == value}
        content = self.model_dump(mode="json", exclude=set(DESCRIBED) | usual)
        # an empty value given to a constructor may override a default: these stay as they are
        as_given = {key: content.pop(key) for key in ("model", "encodings")}
        return _without_empty(content) | as_given

    def with_values(self, values: Settings) -> "Recipe":
        """A copy with dotted keys set, for example {"model.dropout": 0.2}, and those that its search ties to them. Raises RecipeError for a
        key that does not exist."""
        content = self.model_dump(exclude_unset=True)
        for key, value in self.with_tied(values).items():
            place = content
            *parents, last = key.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
                if not isinstance(place, dict):
                    raise RecipeError(f"{key}: there is no such key: {parent} is a value, not a section")
            place[last] = value
        return validated(Recipe, content, "the search space")

    def value(self, key: str) -> object:
        """The value under a dotted key; None where there is none."""
        return dict(_flat(self.model_dump(exclude_unset=True))).get(key)

    def with_tied(self, values: Settings) -> Settings:
        """`values` and the same for every key that the search ties to one of theirs (`also`)."""
        spaces = self.search.space if self.search else {}
        return values | {
            other: value for key, value in values.items() for other in getattr(spaces.get(key), "also", ())
        }

    def split_of(self, seed: int, num_splits: int) -> int:
        """Index of the split that `seed` trains on, 0 where the dataset has none. Raises RecipeError when it has no such split."""
        if num_splits == 0:
            return 0
        index = seed % num_splits if self.split == "seed" else self.split
        if not 0 <= index < num_splits:
            raise RecipeError(f"split {index} asked for, but the dataset has {num_splits}")
        return index


def load_recipe(path: str | Path) -> Recipe:
    """Reads a recipe with its bases and checks it (all but the model's arguments: see gt_bench/experiment/validate.py). Raises RecipeError."""
    content, lacking = read_recipe(path)
    recipe = validated(Recipe, content, str(path))
    if lacking:
        raise RecipeError(f"{path}: {lacking[0]} differs from its base and has no origin here; add origin.{lacking[0]}")
    check_origins(recipe, path)
    if recipe.match:
        # imported on first use: it builds models, which no other recipe needs
        recipe = import_module("gt_bench.experiment.match_size").resolved(recipe, Path(path).parent.name, str(path))
    return recipe


def check_origins(recipe: Recipe, path: str | Path = "recipe", complete: bool = False) -> None:
    """Raises RecipeError for an origin of nothing, of an unknown kind, or that is a second one for all it covers; `complete`: also for a
    value without one. An origin of `model` is that of every `model.x` which has none of its own; `all` is that of every value."""
    values = recipe.given_values()
    covers = {key: {v for v in values if key == "all" or v == key or v.startswith(f"{key}.")} for key in recipe.origin}
    for key, text in recipe.origin.items():
        where = f"{path}: origin.{key:.200}"
        if not covers[key]:
            known = sorted({v for value in values for v in ancestors(value)})
            raise RecipeError(f"{where}: the recipe gives no value {key!r:.200}{nearest(key, known)}")
        if not text.startswith(ORIGINS):
            raise RecipeError(f"{where}: an origin begins with one of {', '.join(ORIGINS)}; given: {text!r:.200}")
        # a "tuned" origin may coexist with the origin of the starting value
        narrower = [
            other for other in covers if covers[other] < covers[key] and not recipe.origin[other].startswith("tuned")
        ]
        if narrower and covers[key] == set().union(*(covers[other] for other in narrower)):
            raise RecipeError(f"{where}: a second origin for {', '.join(sorted(narrower))}; keep one of them")
    if complete:
        without = sorted(set(values) - set().union(*covers.values()))
        if without:
            raise RecipeError(f"{path}: no origin for {', '.join(without)}")


def _check_plain(value: object, where: str) -> None:
    """Raises ValueError for a value that JSON does not hold as it is: no digest could tell it from another one."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}; expected a finite number")
    if isinstance(value, list | tuple):
        for number, one in enumerate(value):
            _check_plain(one, f"{where}[{number}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: the key {key!r:.200} is no word; write it in quotes")
            _check_plain(one, f"{where}.{key:.200}")
    elif not isinstance(value, bool | int | float | str | None):
        raise ValueError(f"{where} is {value!r:.200}; expected a number, text, true, false, null, a list or a mapping")


def _flat(content: Settings, prefix: str = "") -> list[tuple[str, object]]:
    """Dotted keys and values of nested mappings; an empty mapping is a value."""
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


def digest_of(content: object) -> str:
    """sha256 of the canonical JSON of `content`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
