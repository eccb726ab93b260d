"""Random node identifiers that are drawn once and stored (TokenGT, Section 2.1).

See its appendix "Transductive Node Classification on Large Graphs".

TokenGT, Appendix "Transductive Node Classification on Large Graphs".

The draws of a graph depend on `seed` and the graph's id alone, not on the batch it is in, the machine or the device:
they come from a counter-based generator. (TokenGT itself draws again in every forward: `gt_models.layers.identifiers`.)
"""

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.blocks import blocks
from gt_models.encodings.encoding import Encoding


def orthogonal(
    batch: GraphBatch, *, k: int, seed: int = 0, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """{"node_identifiers": [N, k]}: k random columns of a uniform random orthogonal n x n matrix per graph.

    They are zero-padded if n < k.

    Rows are orthonormal where n <= k, columns where n >= k. The columns of a uniform orthogonal matrix are
    exchangeable, so the QR decomposition of n x min(n, k) normal numbers is the paper's n x n one, cut.
    """
    normals = _normals(batch, graphs, k, seed)
    out = torch.zeros(batch.num_nodes, k, dtype=dtype)
    for block in blocks(batch):
        columns = min(block.n, k)
        gaussian = normals[block.node_rows().cpu(), :columns].view(-1, block.n, columns)  # (G, n, c)
        q, r = torch.linalg.qr(gaussian)
        # R with a positive diagonal makes Q uniform over the orthogonal matrices, and unique
        q = q * r.diagonal(dim1=1, dim2=2).sign()[:, None]
        out[block.node_rows().cpu(), :columns] = q.flatten(0, 1).to(dtype)
    return {"node_identifiers": out.to(batch.ptr.device)}


def near_orthogonal(
    batch: GraphBatch, *, k: int, seed: int = 0, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """{"node_identifiers": [N, k]}: entries +1/k or -1/k by coin toss, as printed (so rows have length k^-1/2)."""
    heads = _hashed(batch, graphs, k, seed) >> np.uint64(63)
    return {"node_identifiers": torch.from_numpy((heads.astype(np.float64) * 2 - 1) / k).to(batch.ptr.device, dtype)}


def random(
    batch: GraphBatch, *, k: int, seed: int = 0, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """{"node_identifiers": [N, k]}: independent standard normal numbers."""
    return {"node_identifiers": _normals(batch, graphs, k, seed).to(batch.ptr.device, dtype)}


def _normals(batch: GraphBatch, graphs: Tensor | None, k: int, seed: int) -> Tensor:
    """Standard normal numbers float64 [N, k] by the Box-Muller transform of two uniform ones."""
    bits = _hashed(batch, graphs, 2 * k, seed)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1)
    return torch.from_numpy(np.sqrt(-2 * np.log(uniform[:, :k])) * np.cos(2 * np.pi * uniform[:, k:]))


def _hashed(batch: GraphBatch, graphs: Tensor | None, columns: int, seed: int) -> np.ndarray:
    """64 random bits for each (node, column), [N, columns].

    They depend on the seed, the graph id, the place of the node in its graph, and the column.
    """
    ids = np.arange(batch.num_graphs) if graphs is None else graphs.cpu().numpy()
    of_graph = _mix(_mix(np.uint64(seed)) ^ ids.astype(np.uint64))
    of_node = _mix(of_graph[batch.batch.cpu().numpy()] ^ batch.local.cpu().numpy().astype(np.uint64))
    return _mix(of_node[:, None] ^ np.arange(columns, dtype=np.uint64))


def _mix(bits):
    """SplitMix64 (Steele, Lea and Flood 2014): one step of the counter and its finalizer."""
    with np.errstate(over="ignore"):
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _widths(k: int, seed: int) -> dict[str, int]:
    return {"node_identifiers": k}


ORTHOGONAL = Encoding("orthogonal", orthogonal, ("node_identifiers",), _widths)
NEAR_ORTHOGONAL = Encoding("near-orthogonal", near_orthogonal, ("node_identifiers",), _widths)
RANDOM = Encoding("random", random, ("node_identifiers",), _widths)
