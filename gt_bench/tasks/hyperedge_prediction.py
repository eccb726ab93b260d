"""Prediction of hyperedges: triples of nodes, by the protocol of Hyper-SAGNN (Zhang et al. 2020).

Source: Kim et al. 2021, Section 5, Table 4. There is one hypergraph. Its training hyperedges define the input graph, in
which an edge has the number of hyperedges that two nodes share, and they are the positive examples. Each positive
example has five random negatives. A batch contains hyperedges as `extras["hyperedge_index"]` [H, 3] and their labels as
`y` [H].

The authors select the epoch by the test AUC. Here, it is selected on validation hyperedges. Split 0 of the datasets has
them, split 1, the released one, does not.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_bench.config.schema import RecipeError
from gt_bench.tasks.base import Task
from gt_bench.tasks.metrics import detached
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader, seed_of
from gt_models.batch import GraphBatch

NEGATIVES = 5  # negatives per positive hyperedge, and the weight of a positive one in the loss
ONE_NODE = 0.9  # fraction of negatives in which one node is replaced; in the others all are
RECONSTRUCTION = 0.01  # weight of the node encoder's reconstruction error
EVALUATED = 1024  # positive hyperedges per evaluation batch; does not change any number


@dataclass
class HyperedgeTargets:
    """Targets of a batch.

    Attributes:
        labels: 1.0 for hyperedges, 0.0 for negatives, [H].
        reconstruction: reconstruction error of the node encoder, if the model has one.
    """

    labels: Tensor
    reconstruction: Tensor | None = None

    def __len__(self) -> int:
        return self.labels.numel()


def weighted_bce(output: Tensor, target: HyperedgeTargets) -> Tensor:
    """Binary cross entropy plus the reconstruction error. A hyperedge has the weight of all its negatives together."""
    labels = target.labels.to(output.dtype)
    loss = F.binary_cross_entropy_with_logits(output, labels, weight=1 + (NEGATIVES - 1) * labels)
    return loss if target.reconstruction is None else loss + RECONSTRUCTION * target.reconstruction


class HyperedgeNegatives:
    """Draws random tuples of nodes that are not hyperedges.

    Args:
        known: hyperedges, which are not drawn, [K, order].
        nodes: for each position of a hyperedge the ids of the nodes that can occur there.

    Raises:
        ValueError: there are too many nodes to number all tuples with 63 bits.
    """

    def __init__(self, known: np.ndarray, nodes: list[np.ndarray]):
        self.nodes, self.base = nodes, 1 + max(int(n.max()) for n in nodes)
        if self.base ** len(nodes) >= 2**63:
            raise ValueError(f"{self.base} nodes are too many to number all hyperedges of {len(nodes)} nodes")
        self.known = np.unique(self._code(known))

    def draw(self, hyperedges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws `NEGATIVES` negatives for each hyperedge.

        With probability `ONE_NODE` one node at a random position is replaced by a node of its type, otherwise all nodes
        are. Tuples that are hyperedges are drawn again. A negative is left out if there is none.

        Args:
            hyperedges: hyperedges, [h, order].
            rng: random generator.

        Returns:
            Negatives, [up to `NEGATIVES` h, order].
        """
        positive = np.repeat(hyperedges, NEGATIVES, axis=0)
        order = positive.shape[1]
        replaced = np.arange(order) == rng.integers(order, size=len(positive))[:, None]
        replaced |= rng.random(len(positive))[:, None] > ONE_NODE
        drawn, open_rows = positive.copy(), np.arange(len(positive))
        for _ in range(20):
            fresh = np.stack([nodes[rng.integers(len(nodes), size=len(open_rows))] for nodes in self.nodes], axis=1)
            drawn[open_rows] = np.where(replaced[open_rows], fresh, positive[open_rows])
            open_rows = open_rows[self.is_known(drawn[open_rows])]
            if not len(open_rows):
                return drawn
        # few negatives exist for the remaining rows: list all of them and draw one, which has the same distribution
        keep = np.ones(len(positive), bool)
        for row in open_rows:
            candidates = [
                nodes if new else positive[row, [p]]
                for p, (nodes, new) in enumerate(zip(self.nodes, replaced[row], strict=True))
            ]
            choices = np.stack(np.meshgrid(*candidates, indexing="ij"), axis=-1).reshape(-1, order)
            free = choices[~self.is_known(choices)]
            keep[row] = len(free) > 0
            if len(free):
                drawn[row] = free[rng.integers(len(free))]
        return drawn[keep]

    def is_known(self, hyperedges: np.ndarray) -> np.ndarray:
        """Returns which tuples of [h, order] are hyperedges, bool [h]."""
        codes = self._code(hyperedges)
        index = np.searchsorted(self.known, codes).clip(max=len(self.known) - 1)
        return self.known[index] == codes

    def _code(self, hyperedges: np.ndarray) -> np.ndarray:
        """Numbers tuples of nodes, [h, order] -> int64 [h]."""
        code = np.zeros(len(hyperedges), np.int64)
        for column in hyperedges.T:
            code = code * self.base + column
        return code


class HyperedgeLoader(Loader):
    """Batches of hyperedges with the graph of nodes that share training hyperedges.

    A training batch has `batch.hyperedges` hyperedges and negatives, which are drawn again in every epoch. The last
    partial batch is left out. Negatives of validation and test are drawn once per seed.

    Args:
        data: a split of a dataset.

    Raises:
        RecipeError: `batch.hyperedges` is missing.
    """

    def __init__(self, data: SplitData):
        if not data.section.hyperedges:
            problem = "the task hyperedge-prediction requires the number of hyperedges per batch"
            raise RecipeError(problem, place="batch.hyperedges")
        super().__init__(data)
        self.members = self.packed.array("hyperedges").numpy().astype(np.int64)  # [H, order]
        kinds = self.packed.array("x").numpy() > 0  # [N, types]
        # each position of a hyperedge has nodes of one type
        self.places = [
            np.flatnonzero(kinds[:, kinds[self.members[0, p]].argmax()]) for p in range(self.members.shape[1])
        ]

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch: complete batches of training hyperedges, at least one."""
        return max(1, len(self.ids["train"]) // self.section.hyperedges)

    @property
    def whole(self) -> GraphBatch:
        """The graph of nodes that share training hyperedges. edge_attr [E, 1]: their relative number."""
        if self._whole is None:
            batch = self.load(torch.zeros(1, dtype=torch.long))
            edges, shares = cooccurrence(
                self.members[self.ids["train"].numpy()], (self.packed.array("x") > 0).long().argmax(1).numpy()
            )
            edge_index, edge_attr = (torch.from_numpy(array).to(self.device) for array in (edges, shares[:, None]))
            self._whole = replace(batch, edge_index=edge_index, edge_attr=edge_attr.to(self.dtype))
        return self._whole

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, None]]:
        """Yields the training hyperedges of an epoch in random order, with new negatives."""
        rng = np.random.default_rng(seed_of("hyperedges", self.seed, epoch))
        order, size = rng.permutation(self.ids["train"].numpy()), self.section.hyperedges
        for step in range(self.steps_per_epoch):
            known = self.members[order[step * size : (step + 1) * size]]
            yield self._batch(known, self._negatives["train"].draw(known, rng)), None

    def order(self, part: str) -> None:
        """Returns None: an id has several rows, or none."""

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, None]]:
        """Yields the hyperedges of a part with negatives that are the same in all epochs."""
        # deviates: the authors draw the negatives again at each evaluation and drop the last partial batch; here they
        # are the same for all epochs, so that the best epoch is not the one with the easiest negatives
        if part not in self._fixed:
            rng = np.random.default_rng(seed_of("negatives", self.seed, part))
            chunks = [self.members[ids.numpy()] for ids in self._plan(self.ids[part])]
            self._fixed[part] = [self._batch(known, self._negatives[part].draw(known, rng)) for known in chunks]
        for batch in self._fixed[part]:
            # a copy, because models may write to `extras`
            yield replace(batch, extras=dict(batch.extras)), None

    def _plan(self, ids: Tensor, generator: torch.Generator | None = None, join_last: bool = False) -> list[Tensor]:
        """Divides hyperedges into evaluation batches."""
        return list(ids.split(EVALUATED))

    @cached_property
    def _negatives(self) -> dict[str, HyperedgeNegatives]:
        """Negatives of each part. They exclude hyperedges of this part and of earlier parts.

        A negative of the training part can therefore be a hyperedge of the test part, as in the authors' code.
        """
        known, by_part = np.zeros((0, self.members.shape[1]), np.int64), {}
        for part in ("train", "val", "test"):
            known = np.concatenate([known, self.members[self.ids[part].numpy()]])
            by_part[part] = HyperedgeNegatives(known, self.places)
        return by_part

    def _batch(self, known: np.ndarray, negatives: np.ndarray) -> GraphBatch:
        index = torch.from_numpy(np.concatenate([known, negatives])).to(self.device)
        labels = torch.zeros(len(index), dtype=self.dtype, device=self.device)
        labels[: len(known)] = 1
        return replace(self.whole, y=labels, extras={**self.whole.extras, "hyperedge_index": index})


def cooccurrence(members: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts the hyperedges that two nodes share.

    The count of an edge u -> v is divided by the largest count of u with any node of v's type. The weight 5 of each
    hyperedge in the authors' code cancels.

    Args:
        members: hyperedges, [H, order]. Duplicates count.
        kind: type of each node, [N].

    Returns:
        Edges u -> v [2, E], sorted by v, then u, and their relative counts, float32 [E].
    """
    count, order = len(kind), members.shape[1]
    pairs = np.concatenate([members[:, [v, u]] for v in range(order) for u in range(order) if u != v])
    code, times = np.unique(pairs[:, 0] * count + pairs[:, 1], return_counts=True)
    target, source = code // count, code % count
    largest = np.zeros((int(kind.max()) + 1, count), np.int64)
    np.maximum.at(largest, (kind[target], source), times)
    return np.stack([source, target]), (times / largest[kind[target], source]).astype(np.float32)


class HyperedgePrediction(Task):
    """Hyperedges and negatives of a part, all batches together.

    Metrics are the area under the ROC curve ("auc") and the average precision ("aupr").
    """

    target_type = HyperedgeTargets
    default_loss = "bce"
    losses: Mapping[str, Callable[..., Tensor]] = {"bce": weighted_bce}
    directions: Mapping[str, str] = {"auc": "max", "aupr": "max"}
    loader = HyperedgeLoader

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, HyperedgeTargets]:
        """Returns logits [H] and their targets."""
        output = model(batch).squeeze(-1)
        errors = (getattr(module, "reconstruction_error", None) for module in model.modules())
        return output, HyperedgeTargets(batch.y, next((error for error in errors if error is not None), None))

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Computes loss and metrics. The loss does not contain the reconstruction error."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        output, labels = detached(outputs), detached([target.labels for target in targets])
        scores = {"auc": roc_auc_score, "aupr": average_precision_score}
        by_metric = {name: float(scores[name](labels.numpy(), output.numpy())) for name in (self.metric, *self.also)}
        return {"loss": float(weighted_bce(output, HyperedgeTargets(labels))), **by_metric}
