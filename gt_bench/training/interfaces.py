"""What the engine and the tasks ask of what they are given: datasets, loaders and tasks have these faces, and the engine imports none of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import LongTensor, Tensor, nn

from gt_models.batch import GraphBatch


class Header(Protocol):
    """What a packed dataset says of itself (`gt_bench.data.packed.PackedHeader`)."""

    @property
    def name(self) -> str:
        """Name of the dataset."""
        ...

    @property
    def task(self) -> str:
        """Name of its task."""
        ...

    @property
    def in_dim(self) -> int | list[int]:
        """Width of node features, or sizes of categorical columns."""
        ...

    @property
    def out_dim(self) -> int:
        """Targets or classes."""
        ...

    @property
    def edge_dim(self) -> int | list[int] | None:
        """Width of edge features, or sizes of categorical columns; None without edge features."""
        ...

    @property
    def split_kind(self) -> str:
        """Which ids a split holds: "node", "graph" or "hyperedge"."""
        ...

    @property
    def num_splits(self) -> int:
        """Number of splits."""
        ...

    @property
    def extras(self) -> Mapping[str, str]:
        """Further arrays and what they have a row for: node, edge, graph or table."""
        ...


class Packed(Protocol):
    """A dataset: `PackedDataset`, or one with other targets."""

    num_graphs: int

    @property
    def header(self) -> Header:
        """Name, task and widths."""
        ...

    @property
    def sizes(self) -> LongTensor:
        """Nodes per graph, [B]."""
        ...

    def array(self, name: str) -> Tensor:
        """A whole array by name, memory-mapped."""
        ...

    def split(self, part: str, index: int = 0) -> LongTensor:
        """Ids of the graphs, or nodes, of `part` (train, val, test) in split `index`, ascending."""
        ...

    def batch(self, graphs: Tensor) -> GraphBatch:
        """The graphs with these ids, without encodings."""
        ...


class Encoded(Protocol):
    """The encodings of a dataset (`EncodedDataset`)."""

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """The batch of `graphs` with its encodings."""
        ...


class Batches(Protocol):
    """A dataset's split as batches (`Loader`): (batch, rows of the output that count, None for all)."""

    packed: Packed
    ids: dict[str, LongTensor]
    by_node: bool
    device: torch.device
    dtype: torch.dtype

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch."""
        ...

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """In an order that the seed of the run and the epoch decide."""
        ...

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """All of `part` (train, val, test), always in the same order."""
        ...

    def load(self, graphs: Tensor) -> GraphBatch:
        """The graphs with these ids, encoded and on the device."""
        ...

    def on(self, device: torch.device) -> "Batches":
        """Of one large graph, which may be evaluated elsewhere."""
        ...


class Objective(Protocol):
    """What a run asks of its task (`gt_bench.tasks.base.Task`)."""

    metric: str
    direction: str
    loss: Callable[..., Tensor]

    def output_shape(self, batch: GraphBatch, header: Header) -> tuple[int, ...] | None:
        """What a model must return for `batch`; None where the task does not say."""
        ...

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]:
        """(outputs that count, their targets), as `loss` and `evaluate` take them."""
        ...

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Metric -> value over the outputs and targets of all batches. Raises ValueError where a metric is not defined on them."""
        ...
