"""A dataset and one of its splits as batches on a device: (batch, rows), where `rows` are the outputs that count (None: all of them)."""

import copy
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gt_bench.training.interfaces import Encoded, Packed
from gt_models.batch import GraphBatch


def seed_of(*parts: Any) -> int:
    """A 63-bit seed from any values: independent streams for run, epoch and purpose."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def plan_batches(
    sizes: Tensor,
    *,
    batch_size: int | None = None,
    node_budget: int | None = None,
    bucket: bool = False,
    generator: torch.Generator | None = None,
    join_last: bool = False,
) -> list[Tensor]:
    """Which graphs go together: lists of positions into `sizes`, each position once.

    Args:
        sizes: nodes per graph, long [B].
        batch_size: at most so many graphs per batch.
        node_budget: at most so many nodes per batch, padding counted when `bucket` (graphs x largest); a larger graph goes alone.
        bucket: graphs of like size together, which saves padding; with a generator ties and the order of batches are random.
        generator: shuffles; None keeps the order (sorted by size when `bucket`).
        join_last: a remainder of one graph joins the batch before it, which then exceeds its bound by that graph (see `joined`).
    """
    if batch_size is None and node_budget is None:
        raise ValueError("plan_batches needs batch_size, node_budget or both")
    if (batch_size is not None and batch_size < 1) or (node_budget is not None and node_budget < 1):
        raise ValueError(f"batch_size and node_budget must be at least 1; got {batch_size} and {node_budget}")
    count = sizes.numel()
    order = torch.randperm(count, generator=generator) if generator is not None else torch.arange(count)
    if bucket:
        order = order[sizes[order].argsort(stable=True)]
    if node_budget is None:
        batches = list(order.split(batch_size)) if count else []
    else:
        cuts, start, largest, total = [], 0, 0, 0
        for i, size in enumerate(sizes[order].tolist()):
            largest, total = max(largest, size), total + size
            cost = largest * (i - start + 1) if bucket else total
            if i > start and (cost > node_budget or i - start == batch_size):
                cuts.append(i)
                start, largest, total = i, size, size
        batches = list(order.tensor_split(cuts)) if count else []
    if join_last:
        batches = joined(batches)
    if bucket and generator is not None:
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
    return batches


def joined(batches: Sequence[Tensor]) -> list[Tensor]:
    """Batches of which the last one, if it is a single graph, is joined to the one before it: BatchNorm needs two rows to train on.

    Batches that hold single graphs by design (`batch.graphs: 1`) stay as they are.
    """
    if len(batches) > 1 and len(batches[-1]) == 1 < len(batches[-2]):
        return [*batches[:-2], torch.cat([batches[-2], batches[-1]])]
    return list(batches)


class Loader:
    """Batches of one split of a packed dataset.

    Args:
        packed: a PackedDataset; encoded: its EncodedDataset.
        split: which of the dataset's splits.
        section: the recipe's `batch:`.
        seed: of the run; batches of an epoch depend on it and the epoch alone.
    """

    # not where a graph has several rows in a batch
    JOINS_LAST = True

    def __init__(
        self,
        packed: Packed,
        encoded: Encoded,
        split: int,
        section: Any,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.packed, self.encoded, self.section, self.seed, self.device, self.dtype = (
            packed,
            encoded,
            section,
            seed,
            device,
            dtype,
        )
        self.by_node = packed.header.split_kind == "node"
        # a dataset without splits is read by its task's own runner, through `load`
        self.ids = (
            {part: packed.split(part, split) for part in ("train", "val", "test")} if packed.header.num_splits else {}
        )
        for part, ids in self.ids.items():
            if not len(ids):
                raise ValueError(f"dataset {packed.header.name!r}: the {part} part of split {split} is empty")
        if self.by_node and (section.graphs or section.nodes):
            raise ValueError(
                "batch.graphs and batch.nodes are for datasets of many graphs; one large graph takes batch.parts or nothing"
            )
        if section.hyperedges and packed.header.split_kind != "hyperedge":
            raise ValueError(
                f"batch.hyperedges is for datasets of hyperedges; {packed.header.name!r} is split by {packed.header.split_kind}"
            )
        if not self.by_node and section.parts:
            raise ValueError(
                "batch.parts is for one large graph; this dataset has many: use batch.graphs or batch.nodes"
            )
        self._whole: GraphBatch | None = None
        self._fixed: dict[str, list[GraphBatch]] = {}

    def on(self, device: torch.device) -> "Loader":
        """The same batches on another device."""
        other = copy.copy(self)
        other.device, other._whole, other._fixed = device, None, {}
        return other

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Batches of training epoch `epoch` in random order."""
        rng = torch.Generator().manual_seed(seed_of("batches", self.seed, epoch))
        if self.by_node and self.section.parts:
            yield from self._parts(rng)
        elif self.by_node:
            yield self.whole, self.ids["train"].to(self.device)
        elif not (self.section.graphs or self.section.nodes):
            for batch in self._evaluation_batches("train"):
                yield batch, None
        else:
            for graphs in self._plan(self.ids["train"], rng, join_last=self._joins):
                yield self.load(graphs), None

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Batches of "train", "val" or "test" in fixed order."""
        if self.by_node:
            yield self.whole, self.ids[part].to(self.device)
        else:
            for batch in self._evaluation_batches(part):
                yield batch, None

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps of an epoch (for batches by node budget: of the first epoch)."""
        if self.by_node:
            return self.section.parts or 1
        return len(self._plan(self.ids["train"], join_last=self._joins))

    @property
    def _joins(self) -> bool:
        """Whether a training graph that is left over joins the batch before it."""
        return self.JOINS_LAST and self.section.last is None

    def num_batches(self, part: str) -> int:
        """Batches of `part` in evaluation, of a dataset of many graphs."""
        return len(self._plan(self.ids[part]))

    @property
    def whole(self) -> GraphBatch:
        """The one graph of a node-split dataset, encoded and on the device; loaded at the first use."""
        if self._whole is None:
            self._whole = self.load(torch.arange(self.packed.num_graphs))
        return self._whole

    def _evaluation_batches(self, part: str) -> Iterator[GraphBatch]:
        ids = self.ids[part]
        if self.packed.sizes[ids].sum() <= 200_000:  # small enough to stay on the device between epochs
            if part not in self._fixed:
                self._fixed[part] = [self.load(graphs) for graphs in self._plan(ids)]
            yield from self._fixed[part]
        else:
            for graphs in self._plan(ids):
                yield self.load(graphs)

    def _plan(self, ids: Tensor, generator: torch.Generator | None = None, join_last: bool = False) -> list[Tensor]:
        """`ids` cut into batches by count or by node budget; without a generator in their order."""
        section = self.section
        if not (section.graphs or section.nodes):
            return [ids]
        sizes = self.packed.sizes[ids]
        plans = plan_batches(
            sizes,
            batch_size=section.graphs,
            node_budget=section.nodes,
            bucket=section.bucket,
            generator=generator,
            join_last=join_last,
        )
        return [ids[plan] for plan in plans]

    def load(self, graphs: Tensor) -> GraphBatch:
        """The graphs of these ids with their encodings, on the device."""
        batch = self.packed.batch(graphs).to(
            self.device
        )  # first, so that encodings made on the fly are made on the device
        return self.encoded.attach(batch, graphs).to(self.device, self.dtype)

    def _parts(self, rng: torch.Generator) -> Iterator[tuple[GraphBatch, Tensor]]:
        """Random partition of the nodes; every part is the induced subgraph, and trains on its own training nodes."""
        whole = self.whole
        if any(value.size(0) != whole.num_nodes for value in whole.encodings.values()):
            raise ValueError("batch.parts cuts the graph: it works with encodings per node only")
        is_train = torch.zeros(whole.num_nodes, dtype=torch.bool, device=self.device)
        is_train[self.ids["train"].to(self.device)] = True
        for nodes in torch.randperm(whole.num_nodes, generator=rng).to(self.device).tensor_split(self.section.parts):
            rows = is_train[nodes].nonzero().squeeze(1)
            if len(rows):
                yield induced(whole, nodes), rows


def induced(batch: GraphBatch, nodes: Tensor) -> GraphBatch:
    """The subgraph of a single graph on `nodes`, in their order."""
    place = torch.full((batch.num_nodes,), -1, device=nodes.device)
    place[nodes] = torch.arange(len(nodes), device=nodes.device)
    edges = place[batch.edge_index]
    kept = (edges >= 0).all(0)
    return GraphBatch(
        batch.x[nodes],
        edges[:, kept],
        torch.tensor([0, len(nodes)], device=nodes.device),
        None if batch.edge_attr is None else batch.edge_attr[kept],
        None if batch.y is None else batch.y[nodes],
        {name: value[nodes] for name, value in batch.encodings.items()},
    )
