"""Tasks whose targets are edges of known graphs: classification and regression of edges.

A node model returns embeddings of the nodes, and a head (`gt_models.layers.edge_head`) the prediction for a pair of
nodes. All edges of the graphs are known to the model, of all parts; only targets of the training part are used in
training.
"""

import copy
from collections.abc import Iterator

import torch
from torch import LongTensor, Tensor

from gt_bench.config.schema import RecipeError
from gt_bench.config.tasks import LINK
from gt_bench.tasks.standard import Classification, Regression
from gt_bench.training.interfaces import Packed, SplitData
from gt_bench.training.loader import Loader, seed_of
from gt_models.batch import GraphBatch


def is_symmetric(packed: Packed) -> bool:
    """Returns whether the edges of a dataset of edges have no direction."""
    return bool(packed.array("protocol")[2])


class EdgeLoader(Loader):
    """Batches of edges with all graphs of the dataset.

    A batch has the nodes of its edges as `extras["edge_label_index"]`, long [2, P], their features as
    `extras["edge_label_attr"]` if edges have features, and their targets as `y`. A training batch has `batch.edges`
    edges in an order that is drawn again in every epoch.

    Args:
        data: a split of a dataset.

    Raises:
        ValueError, RecipeError: a part of the split is empty, or `batch:` does not fit.
    """

    JOINS_LAST = False

    def __init__(self, data: SplitData):
        packed, section = data.packed, data.section
        for key in ("graphs", "nodes", "parts", "targets"):
            if getattr(section, key):
                problem = f"a step of the task {packed.header.task} uses all graphs"
                remedy = "remove it, or use batch.edges, the number of labelled edges per step"
                raise RecipeError(problem, place=f"batch.{key}", remedy=remedy)
        if section.negatives and packed.header.task != LINK:
            problem = f"is for {LINK}; {packed.header.name!r} is {packed.header.task}"
            raise RecipeError(problem, place="batch.negatives", remedy="remove it")
        super().__init__(data)
        self.split = data.split
        self.pairs = packed.array("target_pair").long().T  # [2, L]

    @property
    def steps_per_epoch(self) -> int:
        """Number of optimiser steps per epoch."""
        return len(self._steps(self.ids["train"]))

    def num_batches(self, part: str) -> int:
        """Returns 1: all edges of a part are evaluated together."""
        return 1

    def order(self, part: str) -> LongTensor:
        """Returns the ids of the targets of a part in the order of `evaluation`, long [P]."""
        return self.ids[part]

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, None]]:
        """Yields the training edges of an epoch in random order."""
        ids = self.ids["train"]
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed_of("edges", self.seed, epoch)))
        for some in self._steps(ids[order]):
            yield self._labelled(some), None

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, None]]:
        """Yields all edges of a part."""
        if part not in self._fixed:
            self._fixed[part] = [self._labelled(self.ids[part])]
        yield self._fixed[part][0], None

    def _steps(self, ids: Tensor) -> list[Tensor]:
        return list(ids.split(self.section.edges or len(ids)))

    def _labelled(self, ids: Tensor) -> GraphBatch:
        """Returns the graphs with these targets."""
        y = self.packed.array("y")[ids]
        attributes = self._attributes
        attributes = None if attributes is None else attributes[self.packed.array("target_edge")[ids].long()]
        return self._with_pairs(self.pairs[:, ids], y, attributes)

    @property
    def _attributes(self) -> Tensor | None:
        """Features of all edges, on the device."""
        return self.whole.edge_attr

    def _with_pairs(self, pairs: Tensor, y: Tensor, attributes: Tensor | None = None) -> GraphBatch:
        """Returns the graphs with pairs of nodes to predict.

        Args:
            pairs: nodes, long [2, P].
            y: targets.
            attributes: features of the edges, [P, D].
        """
        batch = copy.copy(self.whole)  # shares what was computed from the graph
        batch.y = y.to(self.device, self.dtype if y.is_floating_point() else None)
        batch.extras = {**batch.extras, "edge_label_index": pairs.to(self.device)}
        if attributes is not None:
            batch.extras["edge_label_attr"] = attributes
        return batch


class EdgeClassification(Classification):
    """One class per edge. Outputs are logits, [P, classes]."""

    loader = EdgeLoader


class EdgeRegression(Regression):
    """One or several numbers per edge, [P, targets]. Unlabelled entries are NaN and do not count."""

    loader = EdgeLoader
