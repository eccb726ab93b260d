"""Sections of a recipe.

gt_bench/config/search_section.py has the section `search`, gt_bench/config/protocols/ those of single tasks.
"""

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gt_bench.config.schema import Positive, RecipeError, Strict
from gt_bench.utils.json_types import Settings


def check_plain(value: object, place: str) -> None:
    """Checks that JSON can represent a value exactly, so that its digest is unique.

    Raises:
        RecipeError: it cannot.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise RecipeError(f"is {value}; expected a finite number", place=place, value=value)
    if isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            check_plain(entry, f"{place}[{number}]")
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                problem = f"the key {key!r:.200} is not text"
                raise RecipeError(problem, place=place, value=key, remedy="write it in quotes")
            check_plain(entry, f"{place}.{key:.200}")
    elif not isinstance(value, bool | int | float | str | None):
        problem = f"is {value!r:.200}; expected a number, text, true, false, null, a list or a mapping"
        raise RecipeError(problem, place=place, value=value)


class ModelSection(BaseModel):
    """Name of the model and arguments of its constructor (checked by gt_bench/experiment/validate.py)."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    name: str

    @model_validator(mode="after")
    def _finite(self) -> Self:
        for key, value in self.arguments.items():
            check_plain(value, key)
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
            remedy = "use only one of them, without graphs, nodes or bucket"
            raise RecipeError("parts and hyperedges are for one large graph", remedy=remedy)
        if (self.targets is None) != (self.neighbors is None):
            remedy = "add the other one: targets: 512, neighbors: [9, 9]"
            raise RecipeError("targets and neighbors belong together", remedy=remedy)
        if self.targets and (self.graphs or self.nodes or self.bucket or self.parts or self.hyperedges):
            remedy = "remove graphs, nodes, bucket, parts and hyperedges"
            raise RecipeError("samples one large graph", place="targets", value=self.targets, remedy=remedy)
        for key in ("last", "bucket"):
            if getattr(self, key) and not (self.graphs or self.nodes):
                remedy = "add batch.graphs or batch.nodes, or remove it"
                raise RecipeError("is for batches of graphs", place=key, value=getattr(self, key), remedy=remedy)
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
        name: shape after the warm-up. "plateau": multiply by `factor` after `patience` validations without a
            better value. "step": multiply by `factor` every `every` units.
        unit: unit of `warmup`, `every` and `total`.
        warmup: length of the linear warm-up.
        start_factor: factor at its start.
        final_factor: factor at the end of "cosine" and "linear".
        factor: factor of "plateau" and "step".
        patience: validations of "plateau".
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
            raise RecipeError("is required for schedule.name step, and invalid for others", place="every")
        if self.total is not None and self.total <= self.warmup:
            raise RecipeError("must be larger than schedule.warmup", place="total", value=self.total)
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
            raise RecipeError("is for product and concat; dot has no layers", place=extra[0], remedy="remove it")
        return self
