"""Batches of one split of a dataset, on a device."""

import copy
import hashlib
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import LongTensor, Tensor

from gt_bench.runtime.resources import memory_free
from gt_bench.training.device_data import DeviceData
from gt_bench.training.interfaces import SplitData
from gt_bench.training.neighbor_sampling import NeighborSampler, by_graph
from gt_bench.training.prefetch import prefetch
from gt_models.batch import GraphBatch

FREE_SHARE = 0.25  # of the free memory of a GPU, for the dataset; a training step needs the rest


def free_bytes(device: torch.device) -> int:
    """Returns the bytes that are free on a device. On a GPU that processes share: in the share of this process."""
    if device.type != "cuda":
        return memory_free()
    free, total = torch.cuda.mem_get_info(device)
    share = int(torch.cuda.get_per_process_memory_fraction(device) * total)
    return max(0, min(free, share - torch.cuda.memory_reserved(device)))


def seed_of(*parts: Any) -> int:
    """Returns a 63-bit seed derived from any values, for example (purpose, seed of the run, epoch)."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def seed_generators(device: torch.device, *parts: Any) -> None:
    """Seeds the generators of torch, NumPy and Python: a user-supplied model may use any of them."""
    seed = seed_of(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # on the CPU, torch.manual_seed would spend half a millisecond on other devices
    (torch.manual_seed if device.type != "cpu" else torch.default_generator.manual_seed)(seed)


def plan_batches(
    sizes: Tensor,
    *,
    batch_size: int | None = None,
    node_budget: int | None = None,
    bucket: bool = False,
    generator: torch.Generator | None = None,
    join_last: bool = False,
) -> list[Tensor]:
    """Divides graphs into batches.

    Args:
        sizes: number of nodes of each graph, long [B].
        batch_size: maximum number of graphs per batch.
        node_budget: maximum number of nodes per batch. With `bucket`, padding counts: number of graphs times the size
            of the largest. A graph that is larger is a batch by itself.
        bucket: put graphs of similar size together to reduce padding. With a generator, ties and the order of batches
            are random.
        generator: shuffles the graphs. None for the given order, sorted by size if `bucket`.
        join_last: a last batch of one graph is joined to the batch before it, which may then exceed its limit (see
            `joined`).

    Returns:
        For each batch the positions of its graphs in `sizes`. Each position occurs once.
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
        cuts = _cuts(sizes[order].numpy(), batch_size or count, node_budget, bucket)
        batches = list(order.tensor_split(cuts)) if count else []
    if join_last:
        batches = joined(batches)
    if bucket and generator is not None:
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
    return batches


def _cuts(sizes: np.ndarray, batch_size: int, node_budget: int, padded: bool) -> list[int]:
    """Returns where consecutive batches of at most `batch_size` graphs and `node_budget` nodes begin, without the 0.

    Each batch is found by a binary search, so the work on the host grows with the number of batches.

    Args:
        sizes: number of nodes of each graph; ascending if `padded`.
        batch_size: maximum number of graphs.
        node_budget: maximum number of nodes.
        padded: whether each graph counts as many nodes as the last one of its batch.
    """
    cuts: list[int] = []
    start, total = 0, sizes.cumsum()
    while True:
        if padded:
            end = _padded_end(sizes, start, node_budget)
        else:
            end = int(np.searchsorted(total, node_budget + (total[start - 1] if start else 0), "right"))
        start = min(max(end, start + 1), start + batch_size)
        if start >= len(sizes):
            return cuts
        cuts.append(start)


def _padded_end(sizes: np.ndarray, start: int, node_budget: int) -> int:
    """Returns the end of the longest batch from `start` whose graphs, padded to the last one, fit the budget."""

    def cost(end: int) -> int:
        return int(sizes[end - 1]) * (end - start)

    return start + bisect_right(range(start + 1, len(sizes) + 1), node_budget, key=cost)


def joined(batches: Sequence[Tensor]) -> list[Tensor]:
    """Joins a last batch of one graph to the batch before it, because BatchNorm cannot train on one row.

    Batches of single graphs (`batch.graphs: 1`) are not changed.
    """
    if len(batches) > 1 and len(batches[-1]) == 1 < len(batches[-2]):
        return [*batches[:-2], torch.cat([batches[-2], batches[-1]])]
    return list(batches)


class Loader:
    """Batches of one split of a packed dataset.

    Iterators yield (batch, rows). `rows` are the rows of the model's output that count, None for all of them.

    Args:
        data: a split of a dataset.

    Raises:
        ValueError: a part of the split is empty, or `batch:` does not fit the dataset.
    """

    # False for loaders in which a graph has several rows in a batch
    JOINS_LAST = True

    def __init__(self, data: SplitData):
        self.packed, self.encoded, self.section = data.packed, data.encoded, data.section
        self.seed, self.device, self.dtype = data.seed, data.device, data.dtype
        packed, section, split = data.packed, data.section, data.split
        self.by_node = packed.header.split_kind == "node"
        # the runner of a task whose dataset has no splits uses `load`
        self.ids = (
            {part: packed.split(part, split) for part in ("train", "val", "test")} if packed.header.num_splits else {}
        )
        for part, ids in self.ids.items():
            if not len(ids):
                raise ValueError(f"dataset {packed.header.name!r}: the {part} part of split {split} is empty")
        if self.by_node and (section.graphs or section.nodes):
            raise ValueError(
                f"batch.graphs and batch.nodes require many graphs; {packed.header.name!r} is one graph: use "
                "batch.parts, or no batch section"
            )
        if section.hyperedges and packed.header.split_kind != "hyperedge":
            raise ValueError(
                f"batch.hyperedges requires a dataset of hyperedges; {packed.header.name!r} is split by "
                f"{packed.header.split_kind}: remove it"
            )
        for key in ("configurations", "segment", "evaluated"):
            if getattr(section, key) and packed.header.task != "configuration-ranking":
                raise ValueError(
                    f"batch.{key} is for configuration-ranking; {packed.header.name!r} is {packed.header.task}: remove "
                    "it"
                )
        if not self.by_node and (section.parts or section.targets):
            raise ValueError(
                f"batch.{'parts' if section.parts else 'targets'} requires one large graph; {packed.header.name!r} has "
                "many: use batch.graphs or batch.nodes"
            )
        self._whole: GraphBatch | None = None
        self._sampler: NeighborSampler | None = None
        self._fixed: dict[str, list[GraphBatch]] = {}
        self._on_device: DeviceData | None = None
        self._prefetches = False

    def place(self, where: Literal["auto", "device", "host"]) -> None:
        """Chooses where the graphs of the dataset are stored. It does not change any number.

        Without a call, each batch is made on the host when it is needed.

        Args:
            where: "device": on the device of the batches, where a batch is an index gather. "host": in memory; a thread
                makes batches ahead for a GPU. "auto": on a GPU if they need at most a quarter of its free memory,
                otherwise on the host.

        Raises:
            ValueError: `where` is "device", and the graphs do not fit.
        """
        if self.packed.header.split_kind != "graph":  # one large graph is on the device once it is loaded
            return
        needed, free = DeviceData.num_bytes(self.packed, self.encoded), free_bytes(self.device)
        if where == "device" and needed > free:
            raise ValueError(
                f"run.data_on: device: the arrays of {self.packed.header.name!r} and its encodings need "
                f"{needed / 2**20:.0f} MiB, but {self.device} has {free / 2**20:.0f} MiB free; set run.data_on to auto "
                "or host in params.yaml"
            )
        gpu = self.device.type == "cuda"
        if where == "device" or (where == "auto" and gpu and needed <= FREE_SHARE * free):
            self._on_device = DeviceData(self.packed, self.encoded, self.device, self.dtype)
        else:
            self._prefetches = gpu

    def on(self, device: torch.device) -> "Loader":
        """Returns the same batches on another device."""
        other = copy.copy(self)
        other.device, other._whole, other._sampler, other._fixed = device, None, None, {}
        other._on_device, other._prefetches = None, False
        return other

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the batches of a training epoch in random order."""
        if self.by_node and self.section.parts:
            yield from self._parts(self._generator(epoch))
        elif self.by_node and self.section.targets:
            yield from self._neighborhoods(self._generator(epoch), epoch)
        elif self.by_node:
            yield self.whole, self.rows("train").to(self.device)
        elif not (self.section.graphs or self.section.nodes):
            for batch in self._evaluation_batches("train"):
                yield batch, None
        else:
            for batch in self._batches(self.training_plan(epoch)):
                yield batch, None

    def training_plan(self, epoch: int) -> list[Tensor]:
        """Returns the ids of the graphs of each batch of a training epoch, for a dataset of many graphs."""
        if not (self.section.graphs or self.section.nodes):
            return self._plan(self.ids["train"])
        return self._plan(self.ids["train"], self._generator(epoch), join_last=self._joins)

    def _generator(self, epoch: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_of("batches", self.seed, epoch))

    def evaluation_plan(self, part: str) -> list[Tensor]:
        """Returns the ids of the graphs of each batch of a part in evaluation, for a dataset of many graphs."""
        return self._plan(self.ids[part])

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields the batches of a part (train, val, test) in fixed order."""
        if self.by_node:
            yield self.whole, self.rows(part).to(self.device)
        else:
            for batch in self._evaluation_batches(part):
                yield batch, None

    def order(self, part: str) -> LongTensor | None:
        """Returns the ids of nodes or graphs of a part in the order of `evaluation`, long [N]."""
        return self.ids[part] if self.by_node else torch.cat(self._plan(self.ids[part]))  # type: ignore[return-value]

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch; with a node budget, of the first epoch."""
        if self.by_node and self.section.targets:
            return len(joined(self.ids["train"].split(self.section.targets)))
        if self.by_node:
            return self.section.parts or 1
        return len(self._plan(self.ids["train"], join_last=self._joins))

    @property
    def _joins(self) -> bool:
        """Whether a last training batch of one graph is joined to the batch before it."""
        return self.JOINS_LAST and self.section.last is None

    def num_batches(self, part: str) -> int:
        """Returns the number of batches of a part in evaluation, for a dataset of many graphs."""
        return len(self._plan(self.ids[part]))

    def rows(self, part: str) -> LongTensor:
        """Returns the rows of the nodes of a part in the graph of a dataset that is split by nodes, long [n]."""
        return self.ids[part]

    @property
    def whole(self) -> GraphBatch:
        """The graph of a dataset that is split by nodes, with encodings, on the device. Loaded on first use."""
        if self._whole is None:
            self._whole = self.load(torch.arange(self.packed.num_graphs))
        return self._whole

    def _evaluation_batches(self, part: str) -> Iterator[GraphBatch]:
        ids = self.ids[part]
        if self.packed.sizes[ids].sum() <= 200_000:  # small enough to be cached on the device
            if part not in self._fixed:
                self._fixed[part] = list(self._batches(self._plan(ids)))
            yield from self._fixed[part]
        else:
            yield from self._batches(self._plan(ids))

    def _batches(self, plans: list[Tensor]) -> Iterator[GraphBatch]:
        """Yields the batches with these ids of graphs, with encodings, on the device."""
        if self._on_device is not None:
            yield from self._on_device.batches(plans)
        elif self._prefetches:
            for graphs, batch in prefetch(plans, self._load_stored, self.device):
                yield self.encoded.attach_computed(batch, graphs).to(self.device, self.dtype)
        else:
            for graphs in plans:
                yield self.load(graphs)

    def _load_stored(self, graphs: Tensor) -> GraphBatch:
        """Returns the graphs with these ids, with stored encodings, on the host."""
        return self.encoded.attach_stored(self.packed.batch(graphs), graphs).to("cpu", self.dtype)

    def _plan(self, ids: Tensor, generator: torch.Generator | None = None, join_last: bool = False) -> list[Tensor]:
        """Divides ids into batches by count or node budget. Without a generator, they keep their order."""
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
        """Returns the graphs with these ids, with encodings, on the device."""
        if self._on_device is not None:
            return next(self._on_device.batches([graphs]))
        batch = self.packed.batch(graphs).to(self.device)  # first: encodings may be computed on the device
        return self.encoded.attach(batch, graphs).to(self.device, self.dtype)

    def _parts(self, rng: torch.Generator) -> Iterator[tuple[GraphBatch, Tensor]]:
        """Yields the induced subgraphs of a random partition of the nodes, and the training nodes of each as rows."""
        whole = self._whole_to_divide("parts")
        is_train = torch.zeros(whole.num_nodes, dtype=torch.bool, device=self.device)
        is_train[self.rows("train").to(self.device)] = True
        for nodes in torch.randperm(whole.num_nodes, generator=rng).to(self.device).tensor_split(self.section.parts):
            nodes, _ = by_graph(whole, nodes)
            rows = is_train[nodes].nonzero().squeeze(1)
            if len(rows):
                yield induced(whole, nodes), rows

    def _neighborhoods(self, rng: torch.Generator, epoch: int) -> Iterator[tuple[GraphBatch, Tensor]]:
        """Yields sampled neighbourhoods of the training nodes in random order, and the rows of these nodes."""
        if self._sampler is None:
            self._sampler = NeighborSampler(self._whole_to_divide("targets"))
        order = self.rows("train")[torch.randperm(len(self.ids["train"]), generator=rng)]
        draws = np.random.default_rng(seed_of("neighbors", self.seed, epoch))
        for targets in joined(order.split(self.section.targets)):
            yield self._sampler.around(targets, self.section.neighbors, draws)

    def _whole_to_divide(self, key: str) -> GraphBatch:
        """Returns the graph. Raises ValueError if it has encodings that cannot be divided with the nodes."""
        whole = self.whole
        if any(value.size(0) != whole.num_nodes for value in whole.encodings.values()):
            raise ValueError(f"batch.{key} divides the graph, so only encodings with one row per node are supported")
        return whole


def induced(batch: GraphBatch, nodes: Tensor) -> GraphBatch:
    """Returns the subgraph of a batch that is induced by `nodes`, long [n], in the order of `by_graph`."""
    nodes, ptr = by_graph(batch, nodes)
    position = torch.full((batch.num_nodes,), -1, device=nodes.device)
    position[nodes] = torch.arange(len(nodes), device=nodes.device)
    edges = position[batch.edge_index]
    kept = (edges >= 0).all(0)
    return GraphBatch(
        batch.x[nodes],
        edges[:, kept],
        ptr,
        None if batch.edge_attr is None else batch.edge_attr[kept],
        None if batch.y is None else batch.y[nodes],
        {name: value[nodes] for name, value in batch.encodings.items()},
    )
