"""TokenGT, Section 5.2, figure of attention distance: how far does each head attend, layer by layer?

As published: the distances of pairs of tokens on the graph, averaged with the attention scores as weights, over tokens
and graphs. Not published, and chosen here: the distance of an edge is that of its nearer end, so that a node and its
edges have distance 0. Tokens without a place ([graph], [null]) and pairs without a path are excluded, and the remaining
attention of a token is scaled to 1. GRAPHS test graphs are used; the paper uses all.

The paper's runs are on PCQM4Mv2 (3.7 million molecules). The stand-in is the embedded suite's TokenGT: two layers, on
chains. It shows that the computation works. It does not decide any claim.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_bench.api.trained import best_run, experiment
from gt_models.batch import GraphBatch

STAND_IN = "stand-in"
CELLS = {
    "PCQM4Mv2, ORF": "tokengt/pcqm4mv2/tokengt-orf",
    "PCQM4Mv2, Lap": "tokengt/pcqm4mv2/tokengt-lap",
    STAND_IN: "embedded/chains/tokengt",
}
CASES = list(CELLS)
QUICK: list[str] = []
NEEDS = ("pcqm4mv2", "chains")
OPEN = True
ROUNDING = ("run",)
# a run on another machine differs in the last digits
TOLERANCE = 1e-3
GRAPHS = 64


def compute(case: str, data: Path) -> dict[str, Any]:
    """Measures the distances of attention of a trained run.

    Returns:
        In hops, means over `graphs`: `distance` of each head [L, H], and `uniform`, the distance of uniform attention;
            the digest of the `run`.

    Raises:
        RunNotFound: the data or the run is missing.
    """
    run = experiment(CELLS[case], data)
    record, model = best_run(run, CELLS[case])
    loader = run.loader(record.run.seed)
    graphs = loader.ids["test"][:GRAPHS]
    torch.manual_seed(0)  # for orthogonal random features
    found = []
    for graph in graphs:
        batch = loader.load(graph[None]).to("cpu", torch.float64)
        hops = token_distances(batch)
        found.append(
            [
                weighted(weights, hops)
                for weights in [torch.ones(1, *hops.shape, dtype=torch.float64), *attention(model, batch)]
            ]
        )
    uniform, *layers = (torch.stack(values).mean(0) for values in zip(*found, strict=True))
    return {
        "distance": [[round(value, 4) for value in layer.tolist()] for layer in layers],
        "uniform": round(uniform.item(), 4),
        "graphs": len(graphs),
        "run": record.digest,
    }


def attention(model: nn.Module, batch: GraphBatch) -> list[Tensor]:
    """Returns the softmax attention of each layer of a TokenGT among all tokens of one graph, [H, T, T].

    Tokens are in their order: special tokens, nodes, edges.
    """
    taken: list[tuple[Any, Tensor]] = []
    layers: list[Any] = list(model.get_submodule("layers").children())
    hooks = [
        layer.attn.register_forward_pre_hook(lambda module, given: taken.append((module, given[0]))) for layer in layers
    ]
    try:
        with torch.no_grad():
            model(batch)
            found = []
            for of, x in taken:
                query, key, _ = (
                    t.unflatten(1, (of.num_heads, -1)).transpose(0, 1)
                    for t in F.linear(x, of.qkv.weight, of.qkv.bias).chunk(3, 1)
                )
                found.append((query @ key.mT / math.sqrt(query.size(-1))).softmax(-1))
            return found
    finally:
        for hook in hooks:
            hook.remove()


def token_distances(batch: GraphBatch) -> Tensor:
    """Returns hops between the nodes and edges of one graph, measured between nearer ends, [n + m, n + m].

    The distance is infinite if there is none.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import shortest_path

    n, edges = batch.num_nodes, batch.edge_index.numpy()
    graph = coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), (n, n)).tocsr()
    hops = torch.from_numpy(shortest_path(graph, directed=False, unweighted=True))
    ends = torch.cat([torch.arange(n).expand(2, n), batch.edge_index], 1)  # of each token
    return torch.stack([hops[a][:, b] for a in ends for b in ends]).amin(0)


def weighted(weights: Tensor, hops: Tensor) -> Tensor:
    """Returns the mean distance of each head, [H].

    Args:
        weights: attention, special tokens first, [H, T, T].
        hops: distances of the other tokens.
    """
    specials = weights.size(1) - len(hops)
    reachable = hops.isfinite()
    used = weights[:, specials:, specials:] * reachable
    distance = (used * hops.where(reachable, 0.0)).sum(-1) / used.sum(-1)
    return distance.mean(1)
