"""Prediction of edges between the elements of a set: Delaunay triangulations and partitions of jets.

Source: Kim et al. 2021, Section 5, Table 3. Losses, thresholds and averages are those of Set2Graph (Serviansky et al.
2020), which the paper uses. Quantities per pair are flat, [sum n_b^2], in row-major order per set, without padding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from gt_bench.tasks.base import Task
from gt_models.batch import GraphBatch

# jet_flav of the simulation -> the name of the dataset in the paper
FLAVOURS = {5: "jets-b", 4: "jets-c", 0: "jets-l"}
EDGE_METRICS = ("f1", "accuracy", "precision", "recall")
PARTITION_METRICS = ("partition-f1", "rand-index", "adjusted-rand-index")


@dataclass
class Pairs:
    """Targets of a batch of sets.

    Attributes:
        labels: 1.0 for pairs with an edge, otherwise 0.0, [P].
        sizes: number of elements of each set, long [B].
        flavour: flavour of each jet, [B]. None for other sets.
    """

    labels: Tensor
    sizes: Tensor
    flavour: Tensor | None = None

    def __len__(self) -> int:
        return self.sizes.numel()

    @cached_property
    def graph(self) -> Tensor:
        """Index of the set of each pair, long [P]."""
        graphs = torch.arange(len(self), device=self.sizes.device)
        return torch.repeat_interleave(graphs, self.sizes**2, output_size=self.labels.numel())

    @cached_property
    def _position(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For each pair: the first pair of its set, the size of its set, its row and its column, long [P] each."""
        squares = self.sizes**2
        start, size = (squares.cumsum(0) - squares)[self.graph], self.sizes[self.graph]
        number = torch.arange(self.labels.numel(), device=self.sizes.device) - start
        return start, size, number.div(size, rounding_mode="floor"), number % size

    @cached_property
    def transposed(self) -> Tensor:
        """Index of the pair (j, i) of each pair (i, j), long [P]."""
        start, size, row, column = self._position
        return start + column * size + row

    @cached_property
    def diagonal(self) -> Tensor:
        """Whether a pair is an element with itself, bool [P]."""
        _, _, row, column = self._position
        return row == column

    def per_graph(self, values: Tensor) -> Tensor:
        """Sums over the pairs of each set, [P] -> [B]."""
        return values.new_zeros(len(self)).index_add_(0, self.graph, values)

    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the indices of both elements of each pair in the batch, [P] each."""
        first = (self.sizes.cumsum(0) - self.sizes)[self.graph]
        _, _, row, column = self._position
        return (first + row).cpu().numpy(), (first + column).cpu().numpy()


def pair_bce(output: Tensor, target: Pairs) -> Tensor:
    """Binary cross entropy of the symmetric logits (P + P^T) / 2, diagonal included.

    The loss is the mean over sets of the mean over the pairs of a set. The authors average over all entries of a batch
    of sets of one size, so each set has the same weight there, too.
    """
    labels = target.labels.to(output.dtype)
    return _mean(F.binary_cross_entropy_with_logits(_symmetric(output, target), labels, reduction="none"), target)


def pair_bce_f1(output: Tensor, target: Pairs) -> Tensor:
    """Binary cross entropy, averaged as in `pair_bce`, minus the sum over sets of their soft F1.

    The diagonal counts as edges. Logits are not symmetric. The second term is a sum, not a mean, as in the authors'
    code.
    """
    labels = target.labels.to(output.dtype)
    entropy = F.binary_cross_entropy_with_logits(output, labels, reduction="none").masked_fill(target.diagonal, 0.0)
    probability = output.sigmoid().masked_fill(target.diagonal, 1.0)
    both = target.per_graph(probability * labels)  # [B]
    either = target.per_graph(probability + labels)  # [B]
    return _mean(entropy, target) - (2 * both / either).sum()  # no division by 0: the diagonal is in both


class SetToGraph(Task):
    """Edges of a set. Metrics are computed per set and averaged.

    `EDGE_METRICS` compare edges, `PARTITION_METRICS` compare partitions into connected components.

    Args:
        metric: metric that selects the best epoch.
        loss: name of the loss.
        also: metrics that are reported in addition, of the same kind.

    Raises:
        KeyError: a metric or the loss does not exist, or metrics are of both kinds.
    """

    target_type = Pairs
    default_loss = "bce"
    losses: Mapping[str, Callable[..., Tensor]] = {"bce": pair_bce, "bce-f1": pair_bce_f1}
    directions: Mapping[str, str] = dict.fromkeys((*EDGE_METRICS, *PARTITION_METRICS), "max")

    def __init__(self, metric: str, loss: str | None = None, also: Sequence[str] = ()):
        super().__init__(metric, loss, also)
        if len({name in PARTITION_METRICS for name in (metric, *also)}) > 1:
            raise KeyError(f"metrics of edges and of partitions cannot be combined; got {', '.join((metric, *also))}")

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Pairs]:
        """Returns logits [P] and their targets."""
        output = model(batch).squeeze(-1)
        assert batch.y is not None
        return output, Pairs(batch.y, batch.sizes, batch.extras.get("flavour"))

    def evaluate(self, outputs: list[Tensor], targets: list[Any]) -> dict[str, float]:
        """Computes loss and metrics. For jets also each metric by flavour, for example "rand-index@jets-b"."""
        measure = partition_scores if self.metric in PARTITION_METRICS else edge_scores
        parts = [measure(output, target) for output, target in zip(outputs, targets, strict=True)]
        scores = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}  # per graph
        sets = torch.tensor([float(len(t)) for t in targets], dtype=torch.float64)
        losses = torch.tensor(
            [float(self.loss(o, t)) for o, t in zip(outputs, targets, strict=True)], dtype=torch.float64
        )
        by_metric = {"loss": float((losses * sets).sum() / sets.sum())}
        by_metric |= {name: scores[name].mean().item() for name in (self.metric, *self.also)}
        if targets[0].flavour is not None:
            flavour = torch.cat([t.flavour.cpu() for t in targets])
            for code, dataset in FLAVOURS.items():
                if bool((flavour == code).any()):
                    for name in (self.metric, *self.also):
                        by_metric[f"{name.removeprefix('partition-')}@{dataset}"] = (
                            scores[name][flavour == code].mean().item()
                        )
        return by_metric


def edge_scores(output: Tensor, target: Pairs) -> dict[str, Tensor]:
    """Computes accuracy, precision, recall and F1 of edges over all n^2 ordered pairs.

    An edge is predicted if its symmetric logit is at least 0. The diagonal counts: it adds n true negatives to a
    correct prediction. A ratio 0 / 0 is 0.

    Args:
        output: logits [P].
        target: their targets.

    Returns:
        {metric: values per set, float64 [B] on the CPU}.
    """
    predicted, true = _symmetric(output, target) >= 0, target.labels > 0.5
    return _ratios(*_counts(target, predicted, true, torch.ones_like(true)))


def partition_scores(output: Tensor, target: Pairs) -> dict[str, Tensor]:
    """Computes F1, Rand index and adjusted Rand index of the partition into connected components.

    Components are those of the edges whose symmetric logit is at least 0. Unordered pairs of different elements count.
    F1 is 0 if no two elements belong together.

    Args:
        output: logits [P].
        target: their targets.

    Returns:
        {metric: values per set, float64 [B] on the CPU}.
    """
    predicted = _partition(_symmetric(output, target) >= 0, target)
    tp, fp, fn, tn = _counts(target, predicted, target.labels > 0.5, ~target.diagonal)
    scores = _ratios(tp, fp, fn, tn)
    adjusted = _ratio(2 * (tp * tn - fn * fp), (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))
    return {
        "partition-f1": scores["f1"],
        # a set of one element has no pairs
        "rand-index": torch.where(target.sizes.cpu() < 2, 1.0, scores["accuracy"]),
        "adjusted-rand-index": torch.where((fp == 0) & (fn == 0), 1.0, adjusted),
    }


def _mean(values: Tensor, target: Pairs) -> Tensor:
    """Mean over sets of the mean over the pairs of a set, of values [P]."""
    return (values / (target.sizes**2)[target.graph]).sum() / len(target)


def _symmetric(output: Tensor, target: Pairs) -> Tensor:
    return (output + output[target.transposed]) / 2


def _partition(edge: Tensor, target: Pairs) -> Tensor:
    """Returns which pairs are in one connected component, bool [P]. `edge`: which pairs are edges, bool [P]."""
    first, second = target.nodes()
    count, edges = int(target.sizes.sum()), edge.cpu().numpy()
    graph = coo_matrix((np.ones(int(edges.sum()), np.int8), (first[edges], second[edges])), (count, count))
    _, component = connected_components(graph, directed=False)
    return torch.from_numpy(component[first] == component[second]).to(edge.device)


def _counts(target: Pairs, predicted: Tensor, true: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Counts true positives, false positives, false negatives and true negatives per set, float64 [B] each."""
    cases = (predicted & true, predicted & ~true, ~predicted & true, ~predicted & ~true)
    return tuple(target.per_graph((case & counted).double()).cpu() for case in cases)  # type: ignore[return-value]


def _ratios(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> dict[str, Tensor]:
    return {
        "accuracy": _ratio(tp + tn, tp + fp + fn + tn),
        "precision": _ratio(tp, tp + fp),
        "recall": _ratio(tp, tp + fn),
        "f1": _ratio(2 * tp, 2 * tp + fp + fn),
    }


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole == 0, 0.0, part / whole.clamp(min=torch.finfo(torch.float64).tiny))
