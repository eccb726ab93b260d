"""Ranking of the configurations of a program by runtime: one score per (graph, configuration).

Sources: TpuGraphs (Phothilimthana et al. 2023); Polynormer, Appendix L. A row of a batch is a copy of a graph with one
configuration. Its node features are those of the operation (compressed), its one-hot operation code, and the
configuration, which belongs to some nodes (layouts) or to all nodes (tiles).
"""

# mypy: disable-error-code="arg-type, attr-defined, operator"

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gt_bench.config.schema import RecipeError
from gt_bench.data.families.tpugraphs import OPCODES, configurations, ordered_pair_accuracy, segments
from gt_bench.data.packed import PackedHeader
from gt_bench.tasks.base import Task
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader, seed_of
from gt_models.batch import GraphBatch

CONFIGURED = {"layout": 18, "tile": 24}
# maximum number of nodes in an evaluation batch; does not change any number
EVALUATED_NODES = 100_000
TOP = 5


@dataclass
class Runtimes:
    """Targets of a batch. Its length is the number of graphs.

    Attributes:
        runtimes: runtime of each configuration, float64 [R].
        graphs: index of its graph, long [R]. Rows of one graph are consecutive.
    """

    runtimes: Tensor
    graphs: Tensor

    def __len__(self) -> int:
        return int(self.graphs.unique_consecutive().numel())

    def lists(self) -> list[slice]:
        """Returns the rows of each graph."""
        ends = self.graphs.unique_consecutive(return_counts=True)[1].cumsum(0).tolist()
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def list_mle(scores: Tensor, target: Runtimes) -> Tensor:
    """ListMLE loss (Xia et al. 2008): mean over graphs of the negative log-likelihood of the true order, slowest first.

    Args:
        scores: predicted scores, [R].
        target: runtimes.
    """
    losses = []
    for rows in target.lists():
        ordered = scores[rows][target.runtimes[rows].argsort(descending=True, stable=True)]  # [C]
        rest = ordered.flip(0).logcumsumexp(0).flip(0)  # log of the sum over the remaining configurations
        losses.append((rest - ordered).sum())
    return torch.stack(losses).mean()


def pairwise_hinge(scores: Tensor, target: Runtimes) -> Tensor:
    """Pairwise hinge loss: mean over graphs and pairs of max(0, 1 - (score of the slower - score of the faster)).

    Args:
        scores: predicted scores, [R].
        target: runtimes.
    """
    losses = []
    for rows in target.lists():
        slower = target.runtimes[rows][:, None] > target.runtimes[rows][None]  # [C, C]
        gaps = (1 - (scores[rows][:, None] - scores[rows][None])).clamp(min=0)
        losses.append((gaps * slower).sum() / slower.sum().clamp(min=1))
    return torch.stack(losses).mean()


def best_of_top(scores: np.ndarray, runtimes: np.ndarray, top: int = TOP) -> float:
    """Returns 1 - slowdown, where slowdown = (best runtime of the top configurations) / (best runtime of all) - 1.

    Args:
        scores: predicted scores, [C].
        runtimes: runtimes, [C].
        top: number of configurations with the lowest scores that are considered.
    """
    chosen = runtimes[np.argsort(scores, kind="stable")[:top]].min()
    return float(2.0 - chosen / runtimes.min())


class RankingLoader(Loader):
    """Batches of `batch.graphs` graphs with `batch.configurations` random configurations each.

    Validation and test use all configurations of a graph, or `batch.evaluated` evenly spaced ones. A training graph
    with more than `batch.segment` nodes has `extras["segment"]`: the nodes through which gradients flow.

    Args:
        data: a split of a dataset.

    Raises:
        RecipeError: `batch.graphs` or `batch.configurations` is missing, or the recipe has encodings.
    """

    JOINS_LAST = False

    def __init__(self, data: SplitData):
        super().__init__(data)
        if not data.section.graphs or not data.section.configurations:
            raise RecipeError("the task configuration-ranking requires graphs and configurations", place="batch")
        if data.encoded.digests:
            problem = "the task configuration-ranking does not support encodings"
            raise RecipeError(problem, place="encodings", remedy=f"remove {', '.join(data.encoded.digests)}")

    def training(self, epoch: int) -> Iterator[tuple[GraphBatch, None]]:
        """Yields each program with configurations that are drawn again in every epoch."""
        rng = torch.Generator().manual_seed(seed_of("batches", self.seed, epoch))
        counts = self.packed.array("config_count")
        for graphs in self._plan(self.ids["train"], rng):
            drawn = [
                torch.randperm(int(counts[g]), generator=rng)[: self.section.configurations].numpy() for g in graphs
            ]
            yield self._copies(graphs, drawn, rng), None

    def order(self, part: str) -> None:
        """Returns None: an id has several rows, or none."""

    def evaluation(self, part: str) -> Iterator[tuple[GraphBatch, None]]:
        """Yields all configurations of each program, or `batch.evaluated` evenly spaced ones."""
        for graph in self.ids[part]:
            count = int(self.packed.array("config_count")[graph])
            evaluated = min(count, self.section.evaluated or count)
            chosen = np.arange(evaluated) * count // evaluated
            size = max(1, EVALUATED_NODES // int(self.packed.sizes[graph]))
            for start in range(0, evaluated, size):
                yield self._copies(graph[None], [chosen[start : start + size]]), None

    def _copies(self, graphs: Tensor, chosen: list[np.ndarray], rng: torch.Generator | None = None) -> GraphBatch:
        """Creates a batch with one copy of a graph per chosen configuration.

        Args:
            graphs: ids of the graphs.
            chosen: indices of configurations of each graph.
            rng: draws the segment of large graphs, for training.
        """
        xs, edges, sizes, runtimes, owners, trained, offset = [], [], [], [], [], [], 0
        segmented = False
        for graph, configs in zip(graphs, chosen, strict=True):
            single, copies = self.packed.batch(graph[None]), len(configs)
            n = single.num_nodes
            times, features, nodes = configurations(self.packed, int(graph))
            op = torch.nn.functional.one_hot(single.extras["opcode"].long().clamp(max=OPCODES - 1), OPCODES).to(
                single.x.dtype
            )
            fixed = torch.cat([compress(single.x), op], 1)  # [n, F + 120]
            configured = torch.from_numpy(np.ascontiguousarray(features[configs]))  # [C, k, f], or [C, f]
            spread = fixed.new_zeros(copies, n, configured.size(-1))
            if nodes is None:
                spread += configured[:, None]
            else:
                spread[:, torch.from_numpy(nodes.astype(np.int64))] = configured
            xs.append(torch.cat([fixed.expand(copies, -1, -1), spread], 2).flatten(0, 1))  # [C n, D]
            both = undirected(single.edge_index, n)
            shift = offset + n * torch.arange(copies)[:, None]
            edges.append((both[:, None] + shift[None]).flatten(1))  # [2, C e]
            piece = torch.arange(n)
            if rng is not None and self.section.segment and n > self.section.segment:
                pieces = segments(n, self.section.segment)
                piece = piece[pieces[int(torch.randint(len(pieces), (), generator=rng))]]
                segmented = True
            trained.append((piece[None] + shift).flatten())
            sizes += [n] * copies
            runtimes.append(torch.from_numpy(times[configs].astype(np.float64)))
            owners.append(torch.full((copies,), int(graph)))
            offset += n * copies
        extras = {"graph": torch.cat(owners)} | ({"segment": torch.cat(trained)} if segmented else {})
        ptr = torch.tensor([0, *sizes]).cumsum(0)
        # runtimes remain float64, because rounding could change their order
        batch = GraphBatch(torch.cat(xs), torch.cat(edges, 1), ptr, extras=extras).to(self.device, self.dtype)
        batch.y = torch.cat(runtimes).to(self.device)
        return batch


class ConfigurationRanking(Task):
    """Scores of configurations. The model returns one number per graph of a batch.

    The metric "ordered-pair-accuracy" is averaged over graphs. "accuracy" is the mean of `best_of_top`.

    If a batch has a segment, gradients flow only through its nodes (graph segment training, as in the baseline of the
    data's authors). Features of the other nodes come from a forward pass over the whole graph without gradients. This
    requires a model whose `forward_features` returns one row per node.
    """

    # unstated: the paper's Table 9 prints an "averaged runtime prediction accuracy"; here 1 - slowdown of the best of
    # the top 5, the tile measure of the data's authors, on tiles alone
    target_type = Runtimes
    default_loss = "list-mle"
    losses: Mapping[str, Callable[..., Tensor]] = {"list-mle": list_mle, "pairwise-hinge": pairwise_hinge}
    directions: Mapping[str, str] = {"ordered-pair-accuracy": "max", "accuracy": "max"}
    loader = RankingLoader

    def in_dim(self, header: PackedHeader) -> int:
        """Returns the number of node features, operation codes and configuration values together."""
        return header.in_dim + OPCODES + CONFIGURED["layout" if "config_node" in header.extras else "tile"]

    def predict(self, model: nn.Module, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Runtimes]:
        """Returns scores [R] and their targets.

        Raises:
            ValueError: the batch has a segment, and the features of the model do not have one row per node.
        """
        target = Runtimes(batch.y, batch.extras["graph"])
        if "segment" not in batch.extras:
            return model(batch).squeeze(1), target
        nodes = batch.extras["segment"]
        with torch.no_grad():
            features = model.forward_features(batch)  # [N, d]
        if features.size(0) != batch.num_nodes:
            problem = f"{type(model).__name__} does not return one row of features per node"
            raise RecipeError(problem, place="batch.segment", remedy="remove batch.segment")
        features = features.index_copy(0, nodes, model.forward_features(part_of(batch, nodes)))
        return model.forward_head(features, batch).squeeze(1), target

    def evaluate(self, outputs: list[Tensor], targets: list[Runtimes]) -> dict[str, float]:
        """Computes means over graphs. Graphs whose runtimes are all equal are left out of "ordered-pair-accuracy"."""
        scores = torch.cat([o.detach().double().cpu() for o in outputs])
        target = Runtimes(torch.cat([t.runtimes.cpu() for t in targets]), torch.cat([t.graphs.cpu() for t in targets]))
        pairs, tops = [], []
        for rows in target.lists():
            mine, times = scores[rows].numpy(), target.runtimes[rows].numpy()
            tops.append(best_of_top(mine, times))
            if times.min() < times.max():
                pairs.append(ordered_pair_accuracy(mine, times))
        if not pairs:
            raise ValueError("no graph of this part has two different runtimes: ordered-pair-accuracy is undefined")
        by_metric = {"ordered-pair-accuracy": float(np.mean(pairs)), "accuracy": float(np.mean(tops))}
        return {
            "loss": float(self.loss(scores, target)),
            **{name: by_metric[name] for name in (self.metric, *self.also)},
        }


def compress(x: Tensor) -> Tensor:
    """Returns sign(x) log(1 + |x|). Features are sizes and counts of up to ten digits."""
    # unstated: the paper does not say; the baseline of the data's authors scales by minimum and maximum over the
    # training graphs
    return x.sign() * x.abs().log1p()


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Returns both directions of every edge once, without self-loops, [2, E]."""
    # unstated: operands and users alike, as the baseline of the data's authors and as this paper on its other directed
    # graphs
    source, target = edge_index
    codes = torch.cat([source * num_nodes + target, target * num_nodes + source])[(source != target).repeat(2)].unique()
    return torch.stack([codes // num_nodes, codes % num_nodes])


def part_of(batch: GraphBatch, nodes: Tensor) -> GraphBatch:
    """Returns the subgraphs of a batch that are induced by `nodes`, ascending long [n]."""
    position = torch.full((batch.num_nodes,), -1, device=nodes.device).index_copy(
        0, nodes, torch.arange(len(nodes), device=nodes.device)
    )
    edges = position[batch.edge_index]
    sizes = torch.bincount(batch.batch[nodes], minlength=batch.num_graphs)
    ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return GraphBatch(batch.x[nodes], edges[:, (edges >= 0).all(0)], ptr)
