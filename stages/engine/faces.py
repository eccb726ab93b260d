"""What the engine and the tasks ask of what they are given: datasets, loaders and tasks have these faces, and the engine imports none of them."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import LongTensor, Tensor, nn

from gt_models.batch import GraphBatch


class Header(Protocol):
    """What a packed dataset says of itself (`stages.datasets.packed.PackedHeader`)."""

    name: str
    task: str
    in_dim: int | list[int]
    out_dim: int
    edge_dim: int | list[int] | None
    split_kind: str
    num_splits: int
    extras: dict[str, str]


class Packed(Protocol):
    """A dataset: `PackedDataset`, or one with other targets."""

    header: Header
    num_graphs: int

    @property
    def sizes(self) -> LongTensor: ...  # nodes per graph, [B]

    def array(self, name: str) -> Tensor: ...

    def split(self, part: str, index: int = 0) -> LongTensor: ...

    def batch(self, graphs: Tensor) -> GraphBatch: ...


class Encoded(Protocol):
    """The encodings of a dataset (`EncodedDataset`)."""

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch: ...


class Batches(Protocol):
    """A dataset's split as batches (`Loader`): (batch, rows of the output that count, None for all)."""

    packed: Packed
    ids: dict[str, LongTensor]
    by_node: bool
    device: torch.device
    dtype: torch.dtype

    @property
    def steps_per_epoch(self) -> int: ...

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]: ...

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]: ...

    def load(self, graphs: Tensor) -> GraphBatch: ...

    def on(self, device: torch.device) -> "Batches": ...  # of one large graph, which may be evaluated elsewhere


class Objective(Protocol):
    """What a run asks of its task (`stages.tasks.task.Task`)."""

    metric: str
    direction: str
    loss: Callable[..., Tensor]

    def output_shape(self, batch: GraphBatch, header: Header) -> tuple[int, ...] | None: ...

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]: ...

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]: ...
