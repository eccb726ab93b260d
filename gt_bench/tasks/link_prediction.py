"""Link prediction: which pairs of nodes are edges.

The model sees the training graph of its split: all edges except those of the validation and test parts, in both
directions if edges have no direction. Encodings are computed on this graph. The same graph is used for validation and
test.

A negative of an edge (u, v) replaces u or v, with probability 1/2 each, by a node of the same graph that is drawn
uniformly from those that make the pair no edge and no self-loop. If the graph has two sides, such as users and items,
it is drawn from the side of the node that it replaces.

- In training, each edge has `batch.negatives` negatives, drawn again in every epoch. They are no edges of the training
  graph. They can be edges of validation and test, because excluding those would reveal them.
- On validation and test, each edge has the number of negatives that the dataset states (`gt_bench.data.custom.edges`).
  They depend only on the dataset and the split, not on the model or the seed of the run, and are no edge of any part.

An edge is ranked among its own negatives: rank = 1 + (number of higher scores) + (number of equal scores) / 2, as in
ogb's evaluator (Hu et al. 2020).
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_bench.config.schema import RecipeError
from gt_bench.config.tasks import LINK, METRICS
from gt_bench.data.packed import PackedHeader
from gt_bench.data.readers import distinct
from gt_bench.tasks.base import Task
from gt_bench.tasks.edges import EdgeLoader, is_symmetric
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import seed_of
from gt_models.batch import GraphBatch
from gt_models.encodings import compute

ROUNDS = 20  # of drawing again, before the possible nodes are listed


class Negatives:
    """Draws pairs of nodes that are not edges.

    Args:
        links: edges that are not drawn, [K, 2].
        ptr: first node of each graph, and the number of nodes, [B + 1].
        symmetric: whether edges have no direction.
        side: of a graph with two sides, the side of each node, [N]: 1 or 2, 0 for nodes that are not drawn.
    """

    def __init__(self, links: np.ndarray, ptr: np.ndarray, symmetric: bool, side: np.ndarray | None = None):
        self.ptr, self.total, self.side = ptr, int(ptr[-1]), side
        self.members = [np.flatnonzero(side == number) for number in range(3)] if side is not None else []
        both = np.concatenate([links, links[:, ::-1]]) if symmetric else links
        self.known = distinct(both[:, 0] * self.total + both[:, 1])

    def draw(self, links: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws negatives.

        Args:
            links: edges, [P, 2].
            count: negatives per edge.
            rng: random generator.

        Returns:
            Negatives [P, count, 2], and which of them exist, bool [P, count]: an edge whose two nodes are connected to
            all others has none.
        """
        rows = np.repeat(links, count, axis=0)
        end = rng.integers(2, size=len(rows))  # which node is replaced
        drawn, open_rows = rows.copy(), np.arange(len(rows))
        for _ in range(ROUNDS):
            drawn[open_rows] = self._replaced(rows[open_rows], end[open_rows], rng)
            open_rows = open_rows[self._is_taken(drawn[open_rows])]
            if not len(open_rows):
                break
        exists = np.ones(len(rows), bool)
        if len(open_rows):  # few nodes are possible: list them, which has the same distribution
            exists[open_rows] = self._draw_listed(rows, end, drawn, open_rows, rng)
        return drawn.reshape(-1, count, 2), exists.reshape(-1, count)

    def is_known(self, pairs: np.ndarray) -> np.ndarray:
        """Returns which pairs of nodes [P, 2] are edges, bool [P]."""
        keys = pairs[:, 0] * self.total + pairs[:, 1]
        index = np.searchsorted(self.known, keys).clip(max=max(0, len(self.known) - 1))
        return self.known[index] == keys if len(self.known) else np.zeros(len(pairs), bool)

    def _is_taken(self, pairs: np.ndarray) -> np.ndarray:
        taken = self.is_known(pairs) | (pairs[:, 0] == pairs[:, 1])
        return taken if self.side is None else taken | (self.side[pairs].sum(1) != 3)

    def _graph(self, node: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.ptr, node, side="right") - 1

    def _replaced(self, rows: np.ndarray, end: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the pairs [P, 2] with one node replaced by a random node of its graph."""
        if self.side is None:
            graph = self._graph(rows[:, 0])
            nodes = rng.integers(self.ptr[graph], self.ptr[graph + 1])
        else:
            sides = self.side[rows[np.arange(len(rows)), end]]
            nodes = np.zeros(len(rows), np.int64)
            for number, members in enumerate(self.members):
                of_side = sides == number
                nodes[of_side] = members[rng.integers(len(members), size=of_side.sum())] if of_side.any() else 0
        pairs = rows.copy()
        pairs[np.arange(len(rows)), end] = nodes
        return pairs

    def _draw_listed(
        self, rows: np.ndarray, end: np.ndarray, drawn: np.ndarray, open_rows: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draws from the list of possible nodes into `drawn`, or replaces the other node if the list is empty.

        Returns:
            Which of `open_rows` have a negative, bool.
        """
        free: dict[tuple[int, int], np.ndarray] = {}

        def possible(row: int, replaced: int) -> np.ndarray:
            stays = int(rows[row, 1 - replaced])
            if (stays, replaced) not in free:
                graph = int(self._graph(np.array(stays)))
                nodes = np.arange(self.ptr[graph], self.ptr[graph + 1])
                pairs = np.full((len(nodes), 2), stays)
                pairs[:, replaced] = nodes
                free[stays, replaced] = nodes[~self._is_taken(pairs)]
            return free[stays, replaced]

        exists = np.zeros(len(open_rows), bool)
        for i, row in enumerate(open_rows.tolist()):
            for replaced in (int(end[row]), 1 - int(end[row])):
                if len(nodes := possible(row, replaced)):
                    drawn[row] = rows[row]
                    drawn[row, replaced] = nodes[rng.integers(len(nodes))]
                    exists[i] = True
                    break
        return exists


class LinkLoader(EdgeLoader):
    """Batches of edges and negatives with the training graph of a split.

    Args:
        data: a split of a dataset. Its encodings are not used.
        encodings: `encodings:` of the recipe, computed on the training graph.

    Raises:
        ValueError, RecipeError: as `EdgeLoader`; or `batch.negatives` is missing.
    """

    def __init__(self, data: SplitData, *, encodings: Mapping[str, Mapping[str, Any]]):
        super().__init__(data)
        if not data.section.negatives:
            problem = "the task link-prediction requires the number of negatives per edge in training"
            raise RecipeError(problem, place="batch.negatives")
        self.encodings = encodings
        self.links = self.pairs.T.numpy()  # [L, 2]
        held = torch.cat([self.ids["val"], self.ids["test"]])
        self.is_held = torch.zeros(len(self.links), dtype=torch.bool).index_fill(0, held, True)
        self.ptr = np.concatenate([[0], self.packed.sizes.numpy().cumsum()])
        self.symmetric = is_symmetric(self.packed)
        self.count, self.data_seed = (int(value) for value in self.packed.array("protocol")[:2])
        has_sides = "side" in self.packed.header.extras
        self.side = self.packed.array("side").numpy().astype(np.int64) if has_sides else None
        self._train_negatives = Negatives(self.links[~self.is_held.numpy()], self.ptr, self.symmetric, self.side)

    @property
    def whole(self) -> GraphBatch:
        """All graphs without the edges of validation and test, with encodings, on the device."""
        if self._whole is None:
            graphs = torch.arange(self.packed.num_graphs)
            batch = self.packed.batch(graphs)
            link = batch.extras["link"].long()
            seen = (link < 0) | ~self.is_held[link.clamp(min=0)]
            attributes = None if batch.edge_attr is None else batch.edge_attr[seen]
            batch = replace(batch, edge_index=batch.edge_index[:, seen], edge_attr=attributes, y=None, extras={})
            batch = batch.to(self.device)
            for name, arguments in self.encodings.items():
                batch.encodings |= compute(name, batch, graphs=graphs, **arguments)
            self._whole = batch.to(self.device, self.dtype)
        return self._whole

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, None]]:
        """Yields the training edges of an epoch in random order, each batch followed by its negatives."""
        rng = np.random.default_rng(seed_of("links", self.seed, epoch))
        for ids in self._steps(torch.from_numpy(rng.permutation(self.ids["train"].numpy()))):
            links = self.links[ids.numpy()]
            negatives, exists = self._train_negatives.draw(links, self.section.negatives, rng)
            pairs = np.concatenate([links, negatives[exists]])
            y = torch.zeros(len(pairs), dtype=self.dtype)
            y[: len(links)] = 1
            yield self._with_pairs(torch.from_numpy(pairs.T.copy()), y), None

    def _labelled(self, ids: Tensor) -> GraphBatch:
        """Returns the training graph with the edges of an evaluated part, each followed by its negatives.

        `y`, [P, 1 + negatives], is 1 in the first column, otherwise 0.
        """
        part = next(name for name in ("val", "test") if ids is self.ids[name])
        rng = np.random.default_rng(seed_of("negatives", self.data_seed, self.split, part))
        links = self.links[ids.numpy()]
        negatives, exists = Negatives(self.links, self.ptr, self.symmetric, self.side).draw(links, self.count, rng)
        assert exists.all()  # checked when the data are read
        pairs = np.concatenate([links[:, None], negatives], axis=1)  # [P, 1 + negatives, 2]
        y = torch.zeros(pairs.shape[:2], dtype=self.dtype)
        y[:, 0] = 1
        return self._with_pairs(torch.from_numpy(pairs.reshape(-1, 2).T.copy()), y)


def ranks(scores: Tensor) -> Tensor:
    """Returns the rank of the first column of scores [P, 1 + negatives] in each row, float64 [P].

    An equal score counts one half.
    """
    first, others = scores[:, :1], scores[:, 1:]
    return 1.0 + (others > first).sum(1).double() + (others == first).sum(1).double() / 2


def mean_reciprocal_rank(scores: Tensor) -> float:
    """Mean of 1 / rank, of scores [P, 1 + negatives]."""
    return (1 / ranks(scores)).mean().item()


def hits(scores: Tensor, k: int) -> float:
    """Fraction of edges with a rank of at most `k`, of scores [P, 1 + negatives].

    Raises:
        ValueError: there are fewer than `k` negatives, so that each edge is a hit.
    """
    if k > scores.size(1) - 1:
        raise ValueError(f"hits@{k} is always 1 with {scores.size(1) - 1} negatives per edge; use a smaller k")
    return (ranks(scores) <= k).double().mean().item()


class LinkPrediction(Task):
    """Edges among their negatives. Metrics are computed from scores [P, 1 + negatives] of a part.

    The first column has the scores of the edges. "roc-auc" and "ap" are those of all edges and all negatives together;
    "ap" depends on the number of negatives per edge.
    """

    accepts_custom = True
    computes_encodings = True
    default_loss = "bce"
    losses: Mapping[str, Callable[..., Tensor]] = {
        "bce": lambda output, target: F.binary_cross_entropy_with_logits(output, target.to(output.dtype))
    }
    directions: Mapping[str, str] = dict.fromkeys(METRICS[LINK], "max")
    loader = LinkLoader

    def output_shape(self, batch: GraphBatch, header: PackedHeader) -> tuple[int, ...]:
        """Returns [P, 1]: a score per pair."""
        return (batch.extras["edge_label_index"].size(1), 1)

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns scores and labels: [P] in training, [P, 1 + negatives] in evaluation."""
        assert batch.y is not None
        return model(batch).view(batch.y.shape), batch.y

    def score(self, name: str, output: Tensor, target: Tensor) -> float:
        """Computes one metric of scores and labels [P, 1 + negatives]; see `Task.score`."""
        if name in self.custom:
            return super().score(name, output, target)
        if name == "mrr":
            return mean_reciprocal_rank(output)
        if name.startswith("hits@"):
            return hits(output, int(name.removeprefix("hits@")))
        from sklearn.metrics import average_precision_score, roc_auc_score

        of = {"roc-auc": roc_auc_score, "ap": average_precision_score}[name]
        return float(of(target.flatten().numpy(), output.double().flatten().numpy()))
