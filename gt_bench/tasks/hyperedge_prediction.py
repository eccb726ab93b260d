"""Which triples of nodes are hyperedges: the protocol of Hyper-SAGNN (Zhang et al. 2020) that Kim et al. 2021, Section 5, Table 4, follow.

There is one hypergraph. Its training hyperedges are what nodes are known by (how often two of them share one) and what is learnt; each
known hyperedge comes with five made-up ones. Hyperedges travel in a batch as `extras["hyperedge_index"]` [H, 3], their labels as `y` [H].

The authors choose their epoch by the test AUC. That cannot be said here: a run is chosen on validation hyperedges, which split 0 of the
datasets has and split 1, the released one, has not.
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

from gt_bench.tasks.base import Task
from gt_bench.tasks.metrics import detached
from gt_bench.training.interfaces import Encoded, Packed
from gt_bench.training.loader import Loader, seed_of
from gt_models.batch import GraphBatch

NEGATIVES = 5  # per known hyperedge, and the weight of a known one in the loss
ONE_NODE = 0.9  # share of negatives in which one node is exchanged; in the others all are
RECONSTRUCTION = 0.01  # weight of the node encoder's reconstruction error
EVALUATED = 1024  # known hyperedges that are evaluated together; changes no number


@dataclass
class HyperedgeTargets:
    """labels [H] (1.0 for hyperedges), and the node encoder's reconstruction error where the model has one."""

    labels: Tensor
    reconstruction: Tensor | None = None

    def __len__(self) -> int:
        return self.labels.numel()


def weighted_bce(output: Tensor, target: HyperedgeTargets) -> Tensor:
    """Binary cross entropy averaged over hyperedges, known ones weighted as their negatives together, plus the reconstruction error."""
    labels = target.labels.to(output.dtype)
    loss = F.binary_cross_entropy_with_logits(output, labels, weight=1 + (NEGATIVES - 1) * labels)
    return loss if target.reconstruction is None else loss + RECONSTRUCTION * target.reconstruction


class Negatives:
    """Draws triples that are no hyperedges.

    Args:
        known: what is not to be drawn, [K, order].
        nodes: ids of the nodes that may take each place of a hyperedge.
    """

    def __init__(self, known: np.ndarray, nodes: list[np.ndarray]):
        self.nodes, self.base = nodes, 1 + max(int(n.max()) for n in nodes)
        if self.base ** len(nodes) >= 2**63:
            raise ValueError(f"{self.base} nodes are too many to number their hyperedges of {len(nodes)}")
        self.known = np.unique(self._code(known))

    def draw(self, hyperedges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """`NEGATIVES` for each of the hyperedges [h, order]: with probability `ONE_NODE` one node in a random place is exchanged for one of
        its type, else all are; drawn again while known. One for which there is nothing to draw is left out."""
        wanted = np.repeat(hyperedges, NEGATIVES, axis=0)
        order = wanted.shape[1]
        exchanged = np.arange(order) == rng.integers(order, size=len(wanted))[:, None]
        exchanged |= rng.random(len(wanted))[:, None] > ONE_NODE
        drawn, open_rows = wanted.copy(), np.arange(len(wanted))
        for _ in range(20):
            fresh = np.stack([nodes[rng.integers(len(nodes), size=len(open_rows))] for nodes in self.nodes], axis=1)
            drawn[open_rows] = np.where(exchanged[open_rows], fresh, wanted[open_rows])
            open_rows = open_rows[self.is_known(drawn[open_rows])]
            if not len(open_rows):
                return drawn
        # what is left has hardly anything to draw: the free choices are listed, which is what drawing again comes to
        keep = np.ones(len(wanted), bool)
        for row in open_rows:
            places = [
                nodes if new else wanted[row, [p]]
                for p, (nodes, new) in enumerate(zip(self.nodes, exchanged[row], strict=True))
            ]
            choices = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, order)
            free = choices[~self.is_known(choices)]
            keep[row] = len(free) > 0
            if len(free):
                drawn[row] = free[rng.integers(len(free))]
        return drawn[keep]

    def is_known(self, hyperedges: np.ndarray) -> np.ndarray:
        """Whether each of [h, order] is a hyperedge of the data, bool [h]."""
        codes = self._code(hyperedges)
        place = np.searchsorted(self.known, codes).clip(max=len(self.known) - 1)
        return self.known[place] == codes

    def _code(self, hyperedges: np.ndarray) -> np.ndarray:
        code = np.zeros(len(hyperedges), np.int64)
        for column in hyperedges.T:
            code = code * self.base + column
        return code


class HyperedgeLoader(Loader):
    """Batches of hyperedges over the one graph, whose edges say how often nodes share a training hyperedge.

    A training batch has `batch.hyperedges` known ones, the last partial one is left out, and new negatives in every epoch. Those of
    validation and test are drawn once per seed.
    """

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
        if not section.hyperedges:
            raise ValueError("hyperedge prediction takes batch.hyperedges, the known hyperedges of a step")
        super().__init__(packed, encoded, split, section, seed, device, dtype)
        self.members = packed.array("hyperedges").numpy().astype(np.int64)  # [H, order]
        kinds = packed.array("x").numpy() > 0  # [N, types]
        # a place in a hyperedge belongs to one type
        self.places = [
            np.flatnonzero(kinds[:, kinds[self.members[0, p]].argmax()]) for p in range(self.members.shape[1])
        ]

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of the training hyperedges; one at least."""
        return max(1, len(self.ids["train"]) // self.section.hyperedges)

    @property
    def whole(self) -> GraphBatch:
        """The graph, whose edges join nodes that share a training hyperedge; edge_attr [E, 1]: how many."""
        if self._whole is None:
            batch = self.load(torch.zeros(1, dtype=torch.long))
            edges, shares = cooccurrence(
                self.members[self.ids["train"].numpy()], (self.packed.array("x") > 0).long().argmax(1).numpy()
            )
            edge_index, edge_attr = (torch.from_numpy(array).to(self.device) for array in (edges, shares[:, None]))
            self._whole = replace(batch, edge_index=edge_index, edge_attr=edge_attr.to(self.dtype))
        return self._whole

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, None]]:
        """Known hyperedges in a new order, with new negatives."""
        rng = np.random.default_rng(seed_of("hyperedges", self.seed, epoch))
        order, size = rng.permutation(self.ids["train"].numpy()), self.section.hyperedges
        for step in range(self.steps_per_epoch):
            known = self.members[order[step * size : (step + 1) * size]]
            yield self._batch(known, self._negatives["train"].draw(known, rng)), None

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, None]]:
        """The part's hyperedges with negatives that are drawn once."""
        # deviates: the authors draw the negatives anew at each evaluation and drop the last partial batch; the same for all epochs, the best
        # epoch is not the one with the easiest draw
        if part not in self._fixed:
            rng = np.random.default_rng(seed_of("negatives", self.seed, part))
            chunks = [self.members[ids.numpy()] for ids in self._plan(self.ids[part])]
            self._fixed[part] = [self._batch(known, self._negatives[part].draw(known, rng)) for known in chunks]
        for batch in self._fixed[part]:
            # a batch of its own for each pass: models may leave something in `extras`
            yield replace(batch, extras=dict(batch.extras)), None

    def _plan(self, ids: Tensor, generator: torch.Generator | None = None, join_last: bool = False) -> list[Tensor]:
        """Hyperedges that are evaluated together."""
        return list(ids.split(EVALUATED))

    @cached_property
    def _negatives(self) -> dict[str, Negatives]:
        """A negative of a part is unknown so far: in no hyperedge of this part or those before it. So one of training may be a hyperedge of
        the test set, as in life and in the authors' code."""
        known, found = np.zeros((0, self.members.shape[1]), np.int64), {}
        for part in ("train", "val", "test"):
            known = np.concatenate([known, self.members[self.ids[part].numpy()]])
            found[part] = Negatives(known, self.places)
        return found

    def _batch(self, known: np.ndarray, negatives: np.ndarray) -> GraphBatch:
        index = torch.from_numpy(np.concatenate([known, negatives])).to(self.device)
        labels = torch.zeros(len(index), dtype=self.dtype, device=self.device)
        labels[: len(known)] = 1
        return replace(self.whole, y=labels, extras={**self.whole.extras, "hyperedge_index": index})


def cooccurrence(members: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How often nodes share a hyperedge: edges u -> v [2, E] in order of v, then u, and their numbers [E], float32.

    Args:
        members: hyperedges [H, order]; repeated ones count again.
        kind: type of each node [N].

    A number is divided by the largest that u has with any node of v's type. The authors weigh each hyperedge 5, which cancels.
    """
    count, order = len(kind), members.shape[1]
    pairs = np.concatenate([members[:, [v, u]] for v in range(order) for u in range(order) if u != v])
    code, times = np.unique(pairs[:, 0] * count + pairs[:, 1], return_counts=True)
    target, source = code // count, code % count
    largest = np.zeros((int(kind.max()) + 1, count), np.int64)
    np.maximum.at(largest, (kind[target], source), times)
    return np.stack([source, target]), (times / largest[kind[target], source]).astype(np.float32)


class HyperedgePrediction(Task):
    """Hyperedges of a part against their negatives, all batches together: area under the ROC curve ("auc") and average precision ("aupr")."""

    default_loss = "bce"
    losses: Mapping[str, Callable[..., Tensor]] = {"bce": weighted_bce}
    directions: Mapping[str, str] = {"auc": "max", "aupr": "max"}
    loader = HyperedgeLoader

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, HyperedgeTargets]:
        """Logits [H] and their targets."""
        output = model(batch).squeeze(-1)
        return output, HyperedgeTargets(batch.y, batch.extras.get("reconstruction_error"))

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """The loss leaves the reconstruction error out."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        output, labels = detached(outputs), detached([target.labels for target in targets])
        scores = {"auc": roc_auc_score, "aupr": average_precision_score}
        found = {name: float(scores[name](labels.numpy(), output.numpy())) for name in (self.metric, *self.also)}
        return {"loss": float(weighted_bce(output, HyperedgeTargets(labels))), **found}


TASK = HyperedgePrediction
