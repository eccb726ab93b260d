"""Polynormer, Section 4.4 and Figure 4: is global attention larger on nodes of the target's label, at any distance?

As published: 100 random nodes of minesweeper; (a) pairs of one label at most 5 hops apart, (b) pairs of one label, (c)
the attention between them in the last global layer. The measure is the AUC over ordered pairs of two nodes: the
probability that attention is larger on a pair of (a) or (b) than on another pair. The scaling of the figure does not
change it. Four of five nodes have the same label, so that attention to this label, whatever the target, has an AUC of
0.72. Targets of each label are therefore also ranked separately, where such attention has AUCs of 1 and 0. The verdict
uses the worse one.

Not published: the nodes (DRAWS draws), how heads are combined (mean), the run (the best on validation with stored
weights). The untrained network is reported for comparison.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gt_bench.api.trained import RunNotFound, best_run, experiment
from gt_bench.data.packed import DatasetUnavailable, PackedDataset
from gt_models.batch import GraphBatch

DATASET, CELL = "minesweeper", "polynormer/minesweeper/polynormer"
PAIRS, ATTENTION = CASES = ["labels and hops", "attention"]
QUICK = [PAIRS]
NEEDS = (DATASET,)
OPEN = True
ROUNDING = ("run",)
# a run on another machine differs in the last digits, so that pairs of similar attention change their order
TOLERANCE = 1e-4
NODES, HOPS, DRAWS = 100, 5, 10


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts pairs of one label, or measures the attention on them.

    Returns:
        For `labels and hops`: number of ordered pairs of one label in each draw, and of those within HOPS. For
            `attention`, trained and untrained: the AUC of each draw for (b), for (b) by the label of the target (the
            worse one) and for (a), the ratio of mean attention on pairs of one label to that on other pairs, and the
            digest of the `run`.

    Raises:
        RunNotFound: the data or the run is missing.
    """
    if case == PAIRS:
        pairs = [drawn(_packed(data), draw) for draw in range(DRAWS)]
        return {
            "same label": [int(same.sum()) for _, same, _ in pairs],
            "within 5 hops": [int((same & near).sum()) for _, same, near in pairs],
        }
    run = experiment(CELL, data)
    record, model = best_run(run, CELL)
    pairs = [drawn(run.packed, draw) for draw in range(DRAWS)]
    torch.manual_seed(0)
    untrained = run.build().double().eval()
    batch = next(run.loader(record.run.seed).evaluation("test"))[0].to("cpu", torch.float64)
    found: dict[str, Any] = {}
    for name, network in (("trained", model), ("untrained", untrained)):
        query, key = features(network, batch)
        scores = []
        for nodes, same, near in pairs:
            weights = attention(query, key, torch.from_numpy(nodes)).mean(0).numpy()
            scores.append(summary(weights, same, near, run.packed.array("y").view(-1).numpy()[nodes]))
        found[name] = {key: [score[key] for score in scores] for key in scores[0]}
    return found | {"run": record.digest}


def drawn(packed: PackedDataset, draw: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws NODES nodes of the graph.

    Returns:
        The nodes [n], whether two of them have one label, and whether they are at most HOPS apart, both bool [n, n].
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    total = packed.num_nodes
    nodes = np.sort(np.random.default_rng(draw).choice(total, NODES, replace=False))
    source, target = (packed.array(key).numpy().astype(np.int64) for key in ("source", "target"))
    graph = coo_matrix((np.ones(len(source)), (source, target)), (total, total)).tocsr()
    hops = dijkstra(graph, directed=False, indices=nodes, unweighted=True, limit=HOPS)[:, nodes]
    labels = packed.array("y").view(-1).numpy()[nodes]
    apart = ~np.eye(NODES, dtype=bool)
    return nodes, (labels[:, None] == labels) & apart, np.isfinite(hops) & apart


def features(model: nn.Module, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Returns sigma(Q) and sigma(K) of equation 6 in the last global layer of a Polynormer, [N, H, C] each."""
    taken: list[Tensor] = []
    layer: Any = list(model.get_submodule("global_layers").children())[-1]
    hook = layer.register_forward_pre_hook(lambda module, given: taken.append(given[0]))
    with torch.no_grad():
        try:
            model(batch)
        finally:
            hook.remove()
        of = layer.attention
        key = torch.sigmoid(of.key(taken[0])).unflatten(1, (-1, of.num_heads)).mT  # head last
        return key if of.query is None else torch.sigmoid(of.query(taken[0])).unflatten(1, (-1, of.num_heads)).mT, key


def attention(query: Tensor, key: Tensor, nodes: Tensor) -> Tensor:
    """Returns the weights of equation 6 between `nodes`, [H, n, n].

    Entry [h, i, j] is the weight of nodes[j] in the sum over all nodes for nodes[i], in head h.
    """
    scores = torch.einsum("ihc,jhc->hij", query[nodes], key[nodes])
    return scores / torch.einsum("ihc,hc->hi", query[nodes], key.sum(0))[..., None]


def summary(weights: np.ndarray, same: np.ndarray, near: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns the scores of one draw, by its attention [n, n]; see `compute`."""
    others = ~np.eye(len(weights), dtype=bool)
    by_label = [auc(weights, same, others & (labels == label)[:, None]) for label in np.unique(labels)]
    return {
        "same label": auc(weights, same, others),
        "of the worse label": min(by_label),
        "same label within 5 hops": auc(weights, same & near, others),
        "ratio": round(float(weights[same].mean() / weights[others & ~same].mean()), 6),
    }


def auc(weights: np.ndarray, important: np.ndarray, among: np.ndarray) -> float:
    """Returns the area under the ROC curve of `weights` for `important` pairs, among the pairs `among`."""
    from sklearn.metrics import roc_auc_score

    return round(float(roc_auc_score(important[among], weights[among])), 6)


def _packed(data: Path) -> PackedDataset:
    try:
        return PackedDataset.open(data / "packed" / DATASET)
    except DatasetUnavailable:
        raise RunNotFound(f"needs {data / 'packed' / DATASET}: `dvc repro download@{DATASET}`") from None
