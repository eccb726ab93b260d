"""Random-walk encodings: probabilities of all pairs (RRWP) and their diagonal (RWSE).

Ma et al. 2023, GRIT; PPGT, Section 3.3.

M = D^-1 A with D the out-degrees, so M[i, j] is the chance to step from i to j. A repeated edge counts once; a node
without outgoing edges has a zero row in M (and keeps its 1 in the identity channel).
"""

import warnings
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.blocks import Block, blocks
from gt_models.encodings.encoding import Encoding, EncodingError
from gt_models.kernels.walk_powers import walk_powers

# above this side, a graph's powers are taken by its sparse matrix
_SPARSE_SIZE = 512
# batches above this have enough graphs of each size to need no padding
_MANY_GRAPHS = 256


def rrwp(
    batch: GraphBatch,
    *,
    steps: int,
    identity: bool = True,
    squaring: bool = False,
    dual: bool = False,
    normalization: Literal["rw", "sym"] = "rw",
    edges: Literal["all", "bonds", "both-ways"] = "all",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """{"rrwp": [sum n_b^2, channels]}, row i n_b + j of graph b holding the pair (i, j).

    Args:
        batch: graphs with E edges.
        steps: K, the number of powers M^1 .. M^K. (GRIT's "K = 21" counts the identity: steps 20.)
        identity: whether channel 0 is the identity.
        squaring: powers M^1, M^2, M^4, M^8 .. instead, as the Edge Transformer's authors compute them (their form:
            identity False).
        dual: after the K powers along the edges, K against them (M of the reversed graph): for directed graphs.
        normalization: "rw" D^-1 A; "sym" D_out^-1/2 A D_in^-1/2 (what PPGT's authors use on PCQM4Mv2).
        edges: which edges are walked along: all; where graphs were completed those that `extras["bond"]` marks (qm9);
            or all "both-ways", as PPGT's authors walk on the directed graphs of superpixels.
        dtype: of the result; powers are taken in it.

    Raises:
        EncodingError: bonds are requested and not marked.
    """
    if edges == "bonds":
        batch = _along_bonds(batch)
    elif edges == "both-ways":
        batch = GraphBatch(batch.x, torch.cat([batch.edge_index, batch.edge_index.flip(0)], 1), batch.ptr)
    channels = int(identity) + steps * (1 + dual)
    shape, device = (int(batch.pair_ptr[-1]), channels), batch.ptr.device
    if device.type == "cpu" and not squaring and dtype in (torch.float32, torch.float64):
        # numpy asks the system for large pages: first touching 45 MB page by page took four times as long as computing
        # them
        out = torch.from_numpy(np.empty(shape, np.float32 if dtype == torch.float32 else np.float64))
        walk_powers(out, batch.ptr, *_compressed_transition(batch, False, normalization, dtype), 0, steps, identity)
        if dual:
            walk_powers(
                out,
                batch.ptr,
                *_compressed_transition(batch, True, normalization, dtype),
                int(identity) + steps,
                steps,
                False,
            )
    else:
        out = torch.empty(shape, dtype=dtype, device=device)
        _write_products(out, batch, steps, identity, squaring, dual, normalization)
    return {"rrwp": out}


def _compressed_transition(
    batch: GraphBatch, reverse: bool, normalization: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """M of all graphs in compressed rows: offsets long [N + 1], columns long [E] and values [E].

    Of the reversed graphs if `reverse`.
    """
    source, target = batch.edge_index.flip(0).numpy() if reverse else batch.edge_index.numpy()
    n = batch.num_nodes
    rows = sparse.csr_array((np.ones(len(source), np.float32), (source, target)), shape=(n, n))
    degree = np.diff(rows.indptr)
    scale = np.repeat(degree, degree).astype(np.float64)
    if normalization == "sym":
        scale = np.sqrt(scale * np.bincount(rows.indices, minlength=n)[rows.indices])
    return (
        torch.from_numpy(rows.indptr).long(),
        torch.from_numpy(rows.indices).long(),
        torch.from_numpy(1 / scale).to(dtype),
    )


def _along_bonds(batch: GraphBatch) -> GraphBatch:
    if "bond" not in batch.extras:
        raise EncodingError(
            "rrwp: edges 'bonds' is for graphs whose extras mark the edges that are bonds (\"bond\"); these do not"
        )
    bonds = batch.extras["bond"].bool()
    return GraphBatch(batch.x, batch.edge_index[:, bonds], batch.ptr)


def _write_products(
    out: Tensor, batch: GraphBatch, steps: int, identity: bool, squaring: bool, dual: bool, normalization: str
) -> None:
    """The same by products of dense matrices: for GPUs and for squaring."""
    channels = out.size(1)
    buffer, scratch = out.new_empty(0), out.new_empty(0)
    for block in _walk_blocks(batch, channels):
        adjacency = block.adjacency(out.dtype)  # (G, n, n)
        if buffer.numel() < adjacency.numel() * channels:
            # one piece of memory for all blocks: fresh pages would cost as much as the products
            buffer, scratch = (out.new_empty(adjacency.numel() * width) for width in (channels, steps))
        values = buffer[: adjacency.numel() * channels].view(
            len(adjacency), block.n, channels, block.n
        )  # (g, i, channel, j)
        if identity:
            values[:, :, 0] = torch.eye(block.n, dtype=out.dtype, device=out.device)
        for i, direction in enumerate((adjacency, adjacency.mT) if dual else (adjacency,)):
            start = int(identity) + i * steps
            _fill_powers(values[:, :, start : start + steps], _transition(direction, normalization), squaring, scratch)
        block.put_pairs(out, values.transpose(2, 3))


def rwse(batch: GraphBatch, *, steps: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"rwse": [N, steps]}: chance to be back at the start after 1 ..

    K steps (Dwivedi et al. 2022, LSPE), the diagonals of M^1 .. M^K.
    """
    out = torch.zeros(batch.num_nodes, steps, dtype=dtype, device=batch.ptr.device)
    for block in _walk_blocks(batch, steps):
        if block.n > _SPARSE_SIZE:
            block.put_nodes(out, _return_chances(block, steps, dtype))
        else:
            adjacency = block.adjacency(dtype)
            values = adjacency.new_empty(len(adjacency), block.n, steps, block.n)
            _fill_powers(values, _transition(adjacency, "rw"), False, adjacency.new_empty(values.numel()))
            block.put_nodes(out, values.diagonal(dim1=1, dim2=3).mT)  # (G, n, K)
    return {"rwse": out}


def _walk_blocks(batch: GraphBatch, channels: int) -> Iterator[Block]:
    """On a GPU few large products win over many exact ones; on a CPU, blocks of a few megabytes."""
    if batch.ptr.is_cuda:
        return blocks(batch, 0.5, entries=2**26 // channels + 1)
    return blocks(batch, 1.0 if batch.num_graphs > _MANY_GRAPHS else 0.8, entries=2**19 // channels + 1)


def _transition(adjacency: Tensor, normalization: str) -> Tensor:
    """[G, n, n] -> M of the same shape."""
    out_degree = adjacency.sum(2, keepdim=True).clamp(min=1)
    if normalization == "rw":
        return adjacency / out_degree
    return adjacency / (out_degree * adjacency.sum(1, keepdim=True).clamp(min=1)).sqrt()


def _fill_powers(out: Tensor, m: Tensor, squaring: bool, scratch: Tensor) -> None:
    """Writes M^1 ..

    M^K (or M^1, M^2, M^4 ..) of [G, n, n] into `out` [G, n, K, n], entry (g, i, k, j); `scratch` has as many entries.
    """
    n, steps = m.size(1), out.size(2)
    out[:, :, 0] = m
    if squaring:
        for k in range(1, steps):
            m = torch.bmm(m, m)
            out[:, :, k] = m
    elif len(m) == 1 and n > _SPARSE_SIZE and int(m.count_nonzero()) * 16 < n * n:
        sparse = _compressed(m[0])
        for k in range(1, steps):
            out[0, :, k] = sparse @ out[0, :, k - 1]
    else:
        # M^c times [M^1 .. M^c] is [M^(c+1) .. M^2c]: log2 K wide products instead of K narrow ones
        known = 1
        while known < steps:
            more = min(known, steps - known)
            product = scratch[: m.numel() * more].view(len(m), n, more * n)  # (G, n, more n)
            torch.bmm(out[:, :, known - 1], out[:, :, :more].flatten(2), out=product)
            out[:, :, known : known + more] = product.view(len(m), n, more, n)
            known += more


def _return_chances(block: Block, steps: int, dtype: torch.dtype, columns: int = 1024) -> Tensor:
    """Diagonals of the powers of one large graph as [1, n, K], without ever holding an n x n matrix."""
    n, device = block.n, block.graphs.device
    source, target = block.batch.edge_index[:, block.edges] - block.batch.ptr[block.graphs]
    pairs = torch.unique(source * n + target)
    source, target = pairs // n, pairs % n
    degree = torch.bincount(source, minlength=n).clamp(min=1)
    m = torch.sparse_coo_tensor(
        torch.stack([source, target]), 1 / degree[source].to(dtype), (n, n), check_invariants=False
    )
    m = _compressed(m)
    out = torch.zeros(n, steps, dtype=dtype, device=device)
    for start in range(0, n, columns):
        nodes = torch.arange(start, min(start + columns, n), device=device)
        walk = torch.zeros(n, len(nodes), dtype=dtype, device=device)
        walk[nodes, nodes - start] = 1
        for k in range(steps):
            walk = m @ walk
            out[nodes, k] = walk[nodes, nodes - start]
    return out[None]


def _compressed(matrix: Tensor) -> Tensor:
    """As sparse rows, whose products are several times faster, without torch's notice that the format is young."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return matrix.to_sparse_csr()


def _widths(steps: int, identity: bool, squaring: bool, dual: bool, normalization: str, edges: str) -> dict[str, int]:
    return {"rrwp": int(identity) + steps * (1 + dual)}


RRWP = Encoding("rrwp", rrwp, ("rrwp",), _widths, on_the_fly=True)
RWSE = Encoding("rwse", rwse, ("rwse",), lambda steps: {"rwse": steps})
