"""Structural interfaces (Protocols) of datasets, encodings, loaders and tasks, of which there are several classes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import LongTensor, Tensor, nn

from gt_bench.data.packed import PackedHeader
from gt_models.batch import GraphBatch


class Packed(Protocol):
    """A packed dataset (`gt_bench.data.packed.PackedDataset`), or a wrapper with other targets."""

    num_graphs: int

    @property
    def header(self) -> PackedHeader:
        """Name, task and dimensions."""

    @property
    def sizes(self) -> LongTensor:
        """Number of nodes per graph, [B]."""

    @property
    def names(self) -> set[str]:
        """Names of the arrays."""

    def array(self, name: str) -> Tensor:
        """Returns a whole array by name, memory-mapped unless a wrapper changes it."""

    def split(self, part: str, index: int = 0) -> LongTensor:
        """Returns the ids of graphs or nodes of `part` (train, val, test) in split `index`, ascending."""

    def batch(self, graphs: Tensor) -> GraphBatch:
        """Returns the graphs with these ids, without encodings."""


@dataclass(frozen=True)
class StoredArray:
    """An array of a stored encoding.

    Attributes:
        name: name of the array.
        kind: what a row belongs to: node, pair, edge or graph.
        values: rows of all graphs, memory-mapped, [rows, width].
        shifted: whether values are indices of edges within the graph, -1 for none. A batch has indices within itself.
    """

    name: str
    kind: str
    values: Tensor
    shifted: bool


class Encoded(Protocol):
    """The encodings of a dataset (`gt_bench.encodings.cache.EncodedDataset`)."""

    @property
    def stored(self) -> Sequence[StoredArray]:
        """The stored arrays."""

    @property
    def computes(self) -> bool:
        """Whether there are encodings that are computed for each batch."""

    def attach_stored(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the stored encodings of `graphs` to their batch."""

    def attach_computed(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the encodings that are computed for each batch."""

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the encodings of `graphs` to their batch."""


@dataclass(frozen=True)
class SplitData:
    """One split of a dataset, and how its batches are made: the argument of every loader.

    Attributes:
        packed: the dataset.
        encoded: its encodings.
        split: index of the split.
        section: `batch:` of the recipe.
        seed: seed of the run. The batches of an epoch depend only on it and the epoch.
        device: device of the batches.
        dtype: type of floating-point numbers.
    """

    packed: Packed
    encoded: Encoded
    split: int
    section: Any
    seed: int
    device: torch.device
    dtype: torch.dtype


class Batches(Protocol):
    """Batches of one split of a dataset (`gt_bench.training.loader.Loader`).

    Iterators yield (batch, rows). `rows` are the rows of the model's output that count, None for all of them.
    """

    packed: Packed
    ids: dict[str, LongTensor]
    by_node: bool
    device: torch.device
    dtype: torch.dtype

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch."""

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the training batches in an order that depends on the seed of the run and the epoch."""

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields all of `part` (train, val, test) in a fixed order."""

    def order(self, part: str) -> LongTensor | None:
        """Returns the ids of a part in the order of `evaluation`. None if rows of the output do not follow from ids."""

    def load(self, graphs: Tensor) -> GraphBatch:
        """Returns the graphs with these ids, with encodings, on the device."""

    def on(self, device: torch.device) -> "Batches":
        """Returns the same batches on another device, for the evaluation of one large graph."""


class Objective(Protocol):
    """Loss and metrics of a run (`gt_bench.tasks.base.Task`)."""

    metric: str
    direction: str
    loss: Callable[..., Tensor]

    def output_shape(self, batch: GraphBatch, header: PackedHeader) -> tuple[int, ...] | None:
        """Returns the shape of a model's output for `batch`, or None if any shape is allowed."""

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]:
        """Returns the outputs that count and their targets, as arguments of `loss` and `evaluate`."""

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Computes metrics over the outputs and targets of all batches.

        Returns:
            {metric: value}.

        Raises:
            ValueError: a metric is undefined on these targets.
        """
