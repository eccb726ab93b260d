"""Batches of a few fixed sizes, so that a compiler sees few shapes and a GPU can replay a recorded step.

A batch is padded with dummy graphs, which come after its own graphs. Its own nodes, edges, pairs and graphs are
therefore a prefix of the padded ones. Models compute graphs independently of each other, except in batch normalisation,
whose statistics here leave the padding out. The rows of the padding are cut off the output, so losses and metrics never
see it. The same design as in jraph (`pad_with_graphs`, https://jraph.readthedocs.io).

Sizes are chosen from the batches of the first epochs. A batch that fits none of them is computed without padding, by
the model as it is, and is counted.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from gt_bench.records.run import StaticReport
from gt_bench.training.loader import Loader
from gt_bench.utils.errors import UserError
from gt_models import kernels
from gt_models.batch import GraphBatch
from gt_models.encodings import ENCODINGS
from gt_models.layers.cached import cached_property

# epochs whose batches decide the sizes
EPOCHS = 5
# Compilations of a run: each size in training and in evaluation, in each phase
COMPILATIONS = 6
# "aot_eager" in tests, which need no C++ compiler
BACKEND = "inductor"
# array of an encoding -> what its rows belong to
_KINDS = {array: kind for encoding in ENCODINGS.values() for array, kind in encoding.arrays.items()}
# arrays of indices of edges, where -1 is none
_INDICES = {array for encoding in ENCODINGS.values() for array in encoding.offsets}
# Models whose outputs, gradients and statistics are those without padding, and which torch.compile accepts in one
# graph (tests/gt_bench/training/test_static_batches.py). Not among them: models of hyperedges or subgraphs; hot and
# s2g, which number pairs or sets themselves; nodeformer, whose gradients change by half a percent.
MODELS = frozenset({
    "appnp", "classic-gnn", "difformer", "edge-transformer", "edge-transformer-brec-released",
    "edge-transformer-released", "exphormer", "gat", "gatedgcn", "gcn", "gcnii", "gin", "gin-bare", "gprgnn", "gps",
    "graphormer", "grit", "heterophilous-gnn", "linkx", "mlp", "mlp-pi", "nagphormer",
    "ogb-gnn", "polynormer", "polynormer-released", "ppgn", "ppgt", "ppgt-released", "sage", "sat",
    "sgformer", "siam", "tokengt", "tokengt-released",
})  # fmt: skip
_FIELDS = ("graphs", "nodes", "edges", "pairs", "max_nodes", "max_edges")


class StaticError(UserError, ValueError):
    """Batches cannot be padded, or the model cannot be compiled. The message names the key of the recipe."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a batch.

    Attributes:
        graphs: number of graphs.
        nodes: number of nodes.
        edges: number of edges.
        pairs: number of ordered pairs of nodes of one graph.
        max_nodes: nodes of the largest graph.
        max_edges: edges of the graph with the most edges.
    """

    graphs: int
    nodes: int
    edges: int
    pairs: int
    max_nodes: int
    max_edges: int

    @classmethod
    def of(cls, batch: GraphBatch) -> "Sizes":
        """Returns the sizes of a batch."""
        return cls(
            batch.num_graphs, batch.num_nodes, batch.num_edges, batch.num_pairs, batch.max_nodes, batch.max_edges
        )

    def rows(self) -> tuple[int, int, int, int]:
        """Returns the numbers of rows that a tensor of a model can have: graphs, nodes, edges, pairs."""
        return self.graphs, self.nodes, self.edges, self.pairs

    def fits(self, other: "Sizes") -> bool:
        """Whether a batch of sizes `other` can be padded to these."""
        graphs, nodes, edges = self.graphs - other.graphs, self.nodes - other.nodes, self.edges - other.edges
        # each dummy graph has a node: some layers have no value for a graph without nodes
        if graphs < 1 or nodes < graphs or edges < 0 or max(other.max_nodes, -(-nodes // graphs)) > self.max_nodes:
            return False
        pairs = other.pairs + _squares(nodes, graphs)
        return pairs <= self.pairs and max(other.max_edges, _edges_per_graph(edges, nodes, graphs)) <= self.max_edges


def _squares(nodes: int, graphs: int) -> int:
    """Returns the ordered pairs of `nodes` nodes that are divided equally into graphs."""
    each, larger = divmod(nodes, graphs)
    return larger * (each + 1) ** 2 + (graphs - larger) * each**2


def _edges_per_graph(edges: int, nodes: int, graphs: int) -> int:
    """Returns an upper bound of the dummy edges of a dummy graph, if edges are divided equally among nodes."""
    return -(-edges // nodes) * -(-nodes // graphs)


class PaddedBatch(GraphBatch):
    """A batch that ends with dummy graphs, and with pairs that repeat its last node.

    Set `max_nodes`, `max_edges` and `num_pairs` after construction.
    """

    @cached_property
    def pair_nodes(self) -> tuple[Tensor, Tensor]:
        """First and second node of each pair, long [num_pairs] each. Pairs after those of the graphs: the last node."""
        width = self.sizes[self.batch]  # pairs of which a node is the first, [N]
        end, pair = width.cumsum(0), torch.arange(self.num_pairs, device=self.ptr.device)
        first = torch.searchsorted(end, pair, right=True).clamp(max=self.num_nodes - 1)
        second = pair - (end - width)[first] + self.ptr[self.batch[first]]
        return first, second.clamp(max=self.num_nodes - 1)


def pad(batch: GraphBatch, sizes: Sizes) -> PaddedBatch:
    """Pads a batch with dummy graphs. Targets and extras are left out.

    Args:
        batch: the batch.
        sizes: sizes that fit it.

    Returns:
        A batch of these sizes.
    """
    actual, device = Sizes.of(batch), batch.ptr.device
    graphs, nodes, edges = sizes.graphs - actual.graphs, sizes.nodes - actual.nodes, sizes.edges - actual.edges
    ends = actual.nodes + torch.arange(1, graphs + 1, device=device) * nodes // graphs
    loops = actual.nodes + torch.arange(edges, device=device) * nodes // max(edges, 1)
    padded = PaddedBatch(
        _extend(batch.x, sizes.nodes),
        torch.cat([batch.edge_index, loops.expand(2, -1)], 1),
        torch.cat([batch.ptr, ends]),
        None if batch.edge_attr is None else _extend(batch.edge_attr, sizes.edges),
        encodings={
            name: _extend(value, getattr(sizes, f"{_KINDS[name]}s"), -1 if name in _INDICES else 0)
            for name, value in batch.encodings.items()
        },
    )
    padded.max_nodes, padded.max_edges, padded.num_pairs = sizes.max_nodes, sizes.max_edges, sizes.pairs
    return padded


def _extend(values: Tensor, rows: int, value: float = 0) -> Tensor:
    return torch.cat([values, values.new_full((rows - len(values), *values.shape[1:]), value)])


class Rows:
    """Number of rows of the current batch that are not padding.

    Attributes:
        padded: number of graphs, nodes, edges and pairs with padding. None if the batch has no padding.
        counts: the same without padding, float64 [4] on the device.
    """

    def __init__(self) -> None:
        self.padded: tuple[int, int, int, int] | None = None
        self.counts: Tensor | None = None


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation whose statistics leave out the padding of a batch.

    Attributes:
        rows: rows of the current batch. Set after construction.
    """

    rows: Rows

    def forward(self, x: Tensor) -> Tensor:
        """Values [rows, C] -> [rows, C].

        Raises:
            StaticError: rows are neither graphs, nodes, edges nor pairs of the batch.
        """
        if self.rows.padded is None or not (self.training or self.running_mean is None):
            return super().forward(x)
        if x.dim() != 2 or x.size(0) not in self.rows.padded:
            raise StaticError(
                f"a BatchNorm layer has values of shape {list(x.shape)}, but the graphs, nodes, edges and pairs of the "
                f"batch are {self.rows.padded}: padding cannot be left out",
                place="batch.static",
                remedy="remove batch.static",
            )
        counts, running_mean, running_var = self.rows.counts, self.running_mean, self.running_var
        assert counts is not None
        values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        count = counts[self.rows.padded.index(x.size(0))].to(values.dtype)
        real = (torch.arange(x.size(0), device=x.device) < count)[:, None]
        # not a product with the mask: padding may hold a number that is not finite
        mean = torch.where(real, values, 0.0).sum(0) / count
        centred = values - mean
        variance = torch.where(real, centred, 0.0).square().sum(0) / count
        if self.training and running_mean is not None and running_var is not None:
            with torch.no_grad():
                seen = cast(Tensor, self.num_batches_tracked).add_(1)
                step: Any = 1 / seen.to(count.dtype) if self.momentum is None else self.momentum
                for running, value in ((running_mean, mean), (running_var, variance * count / (count - 1))):
                    running.copy_(torch.lerp(running, value.to(running.dtype), step))
        out = centred * (variance + self.eps).rsqrt()
        return (out * self.weight + self.bias if self.affine else out).to(x.dtype)


def choose_sizes(batches: Sequence[Sizes], count: int) -> list[Sizes]:
    """Chooses sizes to which batches are padded.

    Batches are divided by their number of nodes into at most `count` groups so that padding is least. Sizes are rounded
    up, so that batches of later epochs fit, too.

    Args:
        batches: sizes of typical batches.
        count: maximum number of sizes.

    Returns:
        Sizes in ascending order. Each of `batches` fits one of them.
    """
    ordered = sorted(set(batches), key=lambda sizes: (sizes.nodes, sizes.pairs))
    nodes = np.sort([sizes.nodes for sizes in batches])
    # candidates for the largest number of nodes of a group
    tops = np.unique(np.quantile(nodes, np.linspace(0, 1, 33)[1:], method="higher"))
    below = np.searchsorted(nodes, tops, "right")
    best: list[tuple[float, tuple[int, ...]]] = [(float(top * n), (i,)) for i, (top, n) in enumerate(zip(tops, below))]
    for _ in range(count - 1):
        best = [
            min(
                [
                    best[i],
                    *((cost + tops[i] * (below[i] - below[j]), (*cut, i)) for j, (cost, cut) in enumerate(best[:i])),
                ]
            )
            for i in range(len(tops))
        ]
    chosen: list[Sizes] = []
    for i in best[-1][1]:
        group = [sizes for sizes in ordered if sizes.nodes <= tops[i]]
        chosen.append(_around(group))
    return chosen


def _around(group: Sequence[Sizes]) -> Sizes:
    """Returns sizes that fit each of a group of batches."""
    largest = {name: max(getattr(sizes, name) for sizes in group) for name in _FIELDS}
    # Enough dummy graphs that none of them is larger than the batch's own. At most an eighth of its graphs, otherwise
    # larger ones
    for dummies in range(1, max(1, largest["graphs"] // 8) + 1):
        graphs = largest["graphs"] + dummies
        nodes = _round_up(max(sizes.nodes + graphs - sizes.graphs for sizes in group))
        max_nodes = max(-(-(nodes - sizes.nodes) // (graphs - sizes.graphs)) for sizes in group)
        if max_nodes <= largest["max_nodes"]:
            break
    rest = [(sizes, nodes - sizes.nodes, graphs - sizes.graphs) for sizes in group]
    pairs = _round_up(max(sizes.pairs + _squares(*padding) for sizes, *padding in rest))
    edges = _round_up(largest["edges"])
    # a row of a tensor is identified by their number
    taken = {graphs}
    nodes, edges, pairs = (_free(rows, taken) for rows in (nodes, edges, pairs))
    rest = [(sizes, nodes - sizes.nodes, graphs - sizes.graphs) for sizes in group]
    max_nodes = max(largest["max_nodes"], *(-(-padding // dummies) for _, padding, dummies in rest))
    max_edges = max(
        largest["max_edges"],
        *(_edges_per_graph(edges - sizes.edges, padding, dummies) for sizes, padding, dummies in rest),
    )
    fitting = Sizes(graphs, nodes, edges, pairs, _round_up(max_nodes), _round_up(max_edges))
    while not all(fitting.fits(sizes) for sizes in group):  # another number of nodes has other pairs
        fitting = replace(fitting, pairs=_free(fitting.pairs + 1, {graphs, nodes, edges}))
    return fitting


def _round_up(value: int) -> int:
    """Rounds up to five significant bits: by at most a sixteenth."""
    step = 1 << max(0, value.bit_length() - 5)
    return -(-value // step) * step


def _free(value: int, taken: set[int]) -> int:
    """Returns the smallest number from `value` that is not taken, and takes it."""
    while value in taken:
        value += 1
    taken.add(value)
    return value


def sizes_of_batches(loader: Loader) -> list[Sizes]:
    """Returns the sizes of the batches of the first epochs and of all evaluations."""
    packed = loader.packed
    nodes, edges = packed.sizes.numpy(), packed.array("edge_ptr").long().diff().numpy()
    plans = [plan for epoch in range(EPOCHS) for plan in loader.training_plan(epoch)]
    plans += [plan for part in ("val", "test") for plan in loader.evaluation_plan(part)]
    of_batches = []
    for plan in plans:
        n, e = nodes[plan.numpy()], edges[plan.numpy()]
        of_batches.append(Sizes(*map(int, (len(plan), n.sum(), e.sum(), (n**2).sum(), n.max(), e.max()))))
    return of_batches


class StaticForward:
    """Replaces the `forward` of a model: pads batches, or compiles the model, or both.

    Args:
        model: the model.
        sizes: sizes to which batches are padded. None: batches are not padded, because all have one size.
        mode: mode of torch.compile. None: the model is not compiled.

    Attributes:
        batches: number of batches by what was done with them: "padded", "unpadded" (they fit no size) and "one size".
        seconds: seconds of the calls that compiled.
        compilations: number of compilations.
        replays: whether a GPU should replay compiled graphs.
    """

    def __init__(self, model: nn.Module, sizes: Sequence[Sizes] | None, mode: str | None):
        self.model, self.sizes, self.mode = model, sizes, mode
        self.plain = model.forward
        self.batches: Counter[str] = Counter()
        self.seconds, self.compilations = 0.0, 0
        self.replays, self.skips_before = False, _skips()
        self.rows = Rows()
        self.has_norm = False
        for module in model.modules() if sizes is not None else ():
            if isinstance(module, nn.BatchNorm1d):
                module.__class__ = MaskedBatchNorm
                cast(MaskedBatchNorm, module).rows, self.has_norm = self.rows, True
        self.run: Callable[..., Tensor] = _compiled(self._on_tensors, mode) if mode else self._on_tensors
        self.seen: set[object] = set()
        model.forward = self

    def __call__(self, batch: GraphBatch) -> Tensor:
        """Returns the output of the model for a batch, without rows of padding."""
        actual = Sizes.of(batch)
        sizes = actual if self.sizes is None else next((sizes for sizes in self.sizes if sizes.fits(actual)), None)
        self.rows.padded = None
        if sizes is None:
            self.batches["unpadded"] += 1
            return cast(Tensor, self.plain(batch))
        if self.sizes is None:
            self.batches["one size"] += 1
            return self._timed(batch, sizes, None)
        if actual.graphs == 1 and self.model.training and self.has_norm:
            # what torch's BatchNorm raises for one row
            raise ValueError("Expected more than 1 value per channel when training, got a batch of one graph")
        self.batches["padded"] += 1
        self.rows.padded = sizes.rows()
        counts = torch.tensor(actual.rows(), dtype=torch.float64)
        if batch.ptr.device.type == "cuda":
            counts = counts.pin_memory().to(batch.ptr.device, non_blocking=True)
        output = self._timed(pad(batch, sizes), sizes, counts)
        if output.size(0) not in sizes.rows():
            raise StaticError(
                f"the model returns {output.size(0)} rows, but the graphs, nodes, edges and pairs of the batch are "
                f"{sizes.rows()}: padding cannot be cut off",
                place="batch.static",
                remedy="remove batch.static",
            )
        return output[: actual.rows()[sizes.rows().index(output.size(0))]]

    def _timed(self, batch: GraphBatch, sizes: Sizes, counts: Tensor | None) -> Tensor:
        if not self.mode:
            with kernels.use("reference"):  # kernels write only the rows of pairs that belong to a graph
                return self.run(*_tensors(batch), sizes, counts)
        if batch.ptr.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
            self.replays = self.mode == "reduce-overhead"
        before, began = _graphs(), time.perf_counter()
        try:
            output = self.run(*_tensors(batch), sizes, counts)
        except torch._dynamo.exc.TorchDynamoException as error:
            problem = f"torch.compile fails ({str(error).strip().splitlines()[0]:.300})"
            raise StaticError(problem, place="compile", remedy="remove compile from the recipe") from error
        if new := _graphs() - before:
            self.seconds += time.perf_counter() - began
            self.compilations += new
            if self.compilations > COMPILATIONS:
                raise StaticError(
                    f"the model was compiled {self.compilations} times, at most {COMPILATIONS} are expected: its code "
                    "depends on more than the sizes of the batch",
                    place="compile",
                    remedy="remove compile from the recipe",
                )
        # memory of a replayed graph is written again by the next step
        return output if torch.is_grad_enabled() else output.clone()

    def _on_tensors(
        self,
        x: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
        edge_attr: Tensor | None,
        encodings: dict[str, Tensor],
        sizes: Sizes,
        counts: Tensor | None,
    ) -> Tensor:
        # an argument: a tensor that is read from a module has a fixed place in a CUDA graph, and another tensor there
        # would be another graph in each step
        self.rows.counts = counts
        kind = GraphBatch if self.sizes is None else PaddedBatch
        batch = kind(x, edge_index, ptr, edge_attr, None, encodings)
        # one by one: torch 2.11 cannot trace an update of `__dict__`
        batch.max_nodes, batch.max_edges, batch.num_pairs = sizes.max_nodes, sizes.max_edges, sizes.pairs
        return cast(Tensor, self.plain(batch))

    def report(self) -> StaticReport:
        """Returns the part of a record about padding and compilation."""
        content = StaticReport(
            mode=self.mode,
            compilations=self.compilations,
            compile_seconds=round(self.seconds, 3),
            sizes=[list(sizes.rows()) for sizes in self.sizes or ()],
            batches=dict(self.batches),
        )
        if not self.replays:
            return content
        # also those of the backward pass
        return content.model_copy(update={"not_replayed": _skips() - self.skips_before})


def _tensors(batch: GraphBatch) -> tuple[Any, ...]:
    return batch.x, batch.edge_index, batch.ptr, batch.edge_attr, dict(batch.encodings)


def _graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def _skips() -> int:
    return torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]


def _compiled(method: Any, mode: str) -> Callable[..., Tensor]:
    """Compiles a method. Each call has a cache of its own, so that models of earlier runs do not count."""
    function = method.__func__
    code = function.__code__.replace()
    copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    options: Any = {"mode": mode} if BACKEND == "inductor" and mode != "default" else {}
    bound: Any = copied.__get__(method.__self__)
    return cast(Callable[..., Tensor], torch.compile(bound, fullgraph=True, dynamic=False, backend=BACKEND, **options))
