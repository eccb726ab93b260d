"""A random regular graph on the nodes of each graph, for sparse attention (Exphormer, Shirzad et al., ICML 2023)."""

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding

# graphs up to this size are given all edges, or up to `degree`
_SMALL = 10
# graphs up to this size have their eigenvalues from LAPACK
_DENSE_SIZE = 1000
_DRAWS = 100


def expander(
    batch: GraphBatch, *, degree: int, seed: int = 0, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """{"expander": long [N, degree], "expander_gap": [B, 1]}: a random regular graph and its spectral gap.

    It consists of `degree` permutations of the nodes of each graph.

    Row i holds the nodes, counted within the graph, that node i has an edge to; each edge is meant in both directions,
    so that every node is at 2 * degree ends. -1: none.

    Args:
        batch: B graphs; their edges are not read.
        degree: permutations d.
        seed: of the draws, which depend on it and the graph's id.
        graphs: ids of the graphs, long [B]; 0 .. B - 1 if absent.
        dtype: of the gap, the second lowest eigenvalue of the regular graph's Laplacian D - A.

    Drawn until the gap is at least 2 d - 2 sqrt(2 d - 1) - 0.1, at most 100 times, of which the best stays
    (implementation). Graphs of at most ten nodes have node i joined to i + 1, ..., i + d modulo n, all of them once
    where d allows. The gap belongs to a whole graph: with it, one that is cut into parts is refused, whose nodes would
    not be those that the edges name.
    """
    ids = range(batch.num_graphs) if graphs is None else graphs.tolist()
    found = [_draw(size, degree, (seed, one)) for size, one in zip(batch.sizes.tolist(), ids, strict=True)]
    rows = np.concatenate([neighbours.T for neighbours, _ in found]) if found else np.zeros((0, degree), np.int64)
    gaps = torch.tensor([gap for _, gap in found], dtype=dtype)[:, None]
    return {"expander": torch.from_numpy(rows).to(batch.ptr.device), "expander_gap": gaps.to(batch.ptr.device)}


def _draw(n: int, degree: int, seed: tuple[int, int]) -> tuple[np.ndarray, float]:
    """Neighbours [degree, n] and the gap of one graph."""
    if n <= _SMALL:
        neighbours = _circulant(n, degree)
        return neighbours, _gap(neighbours)
    rng, enough = np.random.default_rng(seed), max(0.0, 2 * degree - 2 * (2 * degree - 1) ** 0.5 - 0.1)
    best, best_gap = np.empty((degree, 0), np.int64), -1.0
    for _ in range(_DRAWS):
        neighbours = np.stack([rng.permutation(n) for _ in range(degree)])
        gap = _gap(neighbours)
        if gap > best_gap:
            best, best_gap = neighbours, gap
        if gap >= enough:
            break
    return best, best_gap


def _circulant(n: int, degree: int) -> np.ndarray:
    """Each pair of nodes at most once."""
    node, step = np.arange(n), np.arange(1, degree + 1)[:, None]
    fresh = (2 * step < n) | ((2 * step == n) & (node < step))
    return np.where(fresh, (node + step) % max(n, 1), -1)


def _gap(neighbours: np.ndarray) -> float:
    """The second lowest eigenvalue of D - A; 0 for fewer than two nodes."""
    from scipy import sparse
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    degree, n = neighbours.shape
    if n < 2:
        return 0.0
    start, end = np.tile(np.arange(n), degree), neighbours.reshape(-1)
    start, end = start[end >= 0], end[end >= 0]
    half = sparse.csr_array((np.ones(len(start)), (start, end)), shape=(n, n))
    adjacency = half + half.T
    if n <= _DENSE_SIZE:
        dense = adjacency.toarray()
        return float(np.linalg.eigvalsh(np.diag(dense.sum(0)) - dense)[1])
    # regular: the second lowest of 2 d I - A is 2 d less the highest of A without the constant vector, whose 2 d is
    # taken away
    beside = LinearOperator((n, n), lambda x: adjacency @ x.ravel() - 2 * degree * x.mean(), dtype=np.float64)
    try:
        highest = eigsh(beside, 1, which="LA", v0=np.random.default_rng(0).standard_normal(n), tol=1e-3, maxiter=2000)[
            0
        ]
    except ArpackNoConvergence as error:
        raise ArithmeticError(f"the spectral gap of a random regular graph of {n} nodes was not found") from error
    return float(2 * degree - highest[0])


EXPANDER = Encoding(
    "expander",
    expander,
    ("expander", "expander_gap"),
    lambda degree, seed: {"expander": degree, "expander_gap": 1},
)
