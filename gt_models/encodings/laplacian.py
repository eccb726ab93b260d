"""Eigenvectors of the graph Laplacian (TokenGT, Section 2.1 and its appendix on identifiers; Polynormer-v2, appendix).

The adjacency is binary and symmetric (an edge in either direction counts; self-loops stay on the diagonal), degrees are
clipped at 1 (so an isolated node has eigenvalue 1 in the normalised form), the trivial eigenvector is included, missing
columns are zero. Eigenvectors have norm 1.

What is arbitrary is fixed, so that stored arrays depend on the graph alone: each vector's entry of largest magnitude is
positive (the first of several); the basis of a repeated eigenvalue's eigenspace is built by projecting unit vectors e_i
onto it, each time the one with the longest remaining projection (the first of several). For eigenvalue 0 of the
normalised form that gives one vector per component. The rules hold up to rounding: another LAPACK may give other last
digits. A basis by rule depends on the order of the nodes, so graphs with a repeated eigenvalue among the used ones are
reported (`laplacian_with_repeats`).
"""

# mypy: disable-error-code="assignment, var-annotated"

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.encodings.blocks import Block, blocks
from gt_models.encodings.encoding import Encoding

# graphs (or components) above this size use Lanczos; dense LAPACK needs seconds there
_DENSE_SIZE = 1500
# relative distances below which eigenvalues, or magnitudes, count as equal: far above rounding, far below what two
# graphs differ by
_SAME_EIGENVALUE = 1e-8
_SAME_MAGNITUDE = 1e-6

Normalization = Literal["sym", "none"]


def laplacian(
    batch: GraphBatch,
    *,
    k: int,
    normalization: Normalization = "sym",
    which: Literal["lowest", "highest", "both"] = "lowest",
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """{"laplacian_eigenvectors": [N, k], "laplacian_eigenvalues": [B, k]}, zero where a graph has fewer than k nodes.

    Args:
        batch: graphs.
        k: number of eigenvectors.
        normalization: "sym" I - D^-1/2 A D^-1/2, or "none" D - A.
        which: "lowest" in ascending order, "highest" in descending order, "both": the ceil(k/2) lowest, then the
            floor(k/2) highest (TokenGT on large graphs); no eigenvector occurs twice.
        dtype: of the result; all is computed in float64 on the CPU.

    Raises:
        ArithmeticError: Lanczos does not converge.
    """
    return laplacian_with_repeats(batch, k=k, normalization=normalization, which=which, dtype=dtype)[0]


def laplacian_with_repeats(
    batch: GraphBatch, *, k: int, normalization: Normalization, which: str, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, Tensor], Tensor]:
    """What `laplacian` returns, and for each graph whether an eigenvalue that it uses is repeated, bool [B]."""
    # unstated: how an odd k is halved; the lowest get one more
    low = {"lowest": k, "highest": 0, "both": k - k // 2}[which]
    work = batch if batch.ptr.device.type == "cpu" else batch.to("cpu")
    vectors = torch.zeros(work.num_nodes, k, dtype=dtype)
    values = torch.zeros(work.num_graphs, k, dtype=dtype)
    repeated = torch.zeros(work.num_graphs, dtype=torch.bool)
    small, large = _by_size(work)
    for block, block_values, block_vectors, block_repeated in _dense(small, normalization, low, k - low):
        values[block.graphs], repeated[block.graphs] = block_values.to(dtype), block_repeated.any(1)
        block.put_nodes(vectors, block_vectors)
    for block in large:
        graph = int(block.graphs)
        one_values, one_vectors, repeated[graph] = _large(_local_edges(block), block.n, normalization, low, k - low)
        values[graph] = torch.from_numpy(one_values).to(dtype)
        vectors[work.ptr[graph] : work.ptr[graph + 1]] = torch.from_numpy(one_vectors).to(dtype)
    arrays = {
        "laplacian_eigenvectors": vectors.to(batch.ptr.device),
        "laplacian_eigenvalues": values.to(batch.ptr.device),
    }
    return arrays, repeated.to(batch.ptr.device)


def second_eigenvector(batch: GraphBatch, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"second_eigenvector": [N, 1]}: v_2 of the normalised Laplacian (Polynormer-v2); zero in a graph of one node."""
    return second_eigenvector_with_repeats(batch, dtype=dtype)[0]


def second_eigenvector_with_repeats(
    batch: GraphBatch, *, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, Tensor], Tensor]:
    """What `second_eigenvector` returns, and for each graph whether the second eigenvalue is repeated, bool [B]."""
    # where the first eigenvalue is repeated, so is the second
    arrays, repeated = laplacian_with_repeats(batch, k=2, normalization="sym", which="lowest", dtype=dtype)
    return {"second_eigenvector": arrays["laplacian_eigenvectors"][:, 1:].contiguous()}, repeated


def _by_size(batch: GraphBatch) -> tuple[list[Block], list[Block]]:
    small, large = [], []
    for block in blocks(batch, entries=2**22):
        (large if block.n > _DENSE_SIZE else small).append(block)
    return small, [Block(batch, g[None], b.n, _edges_of(b, g), True) for b in large for g in b.graphs]


def _edges_of(block: Block, graph: Tensor) -> Tensor:
    return block.edges[block.batch.batch[block.batch.edge_index[0, block.edges]] == graph]


def _local_edges(block: Block) -> np.ndarray:
    return (block.batch.edge_index[:, block.edges] - block.batch.ptr[block.graphs]).numpy()


def _dense(small: Iterable[Block], normalization: str, low: int, high: int):
    """Yield eigenpairs of each block of graphs of equal size.

    Yields:     (block, values [G, low + high], vectors [G, n, low + high], repeated [G, low + high]).
    """
    small = list(small)
    solved = [torch.linalg.eigh(_matrix(block.adjacency(torch.float64), normalization)) for block in small]
    for block, found in zip(small, _select(solved, low, high), strict=True):
        yield block, *found


def _matrix(adjacency: Tensor, normalization: str) -> Tensor:
    """[G, n, n] adjacency -> Laplacian."""
    adjacency = torch.maximum(adjacency, adjacency.mT)
    degree = adjacency.sum(2)
    if normalization == "none":
        return torch.diag_embed(degree) - adjacency
    scale = degree.clamp(min=1).rsqrt()
    return torch.eye(adjacency.size(1), dtype=adjacency.dtype) - scale[:, :, None] * adjacency * scale[:, None]


def _select(solved: Sequence[tuple[Tensor, Tensor]], low: int, high: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """All m ascending eigenpairs [G, m], [G, n, m] -> those wanted, [G, low + high], [G, n, low + high], made unique.

    Third, bool [G, low + high]: whether the eigenvalue is repeated. Writes into `solved`.
    """
    _fix_bases(solved, low, high)
    for values, vectors in solved:
        count = values.size(1)
        first, last = _ends(count, low, high)
        columns = torch.cat([torch.arange(first), torch.arange(count - 1, count - 1 - last, -1)])
        out_values = values.new_zeros(len(values), low + high)
        out_vectors = vectors.new_zeros(len(values), vectors.size(1), low + high)
        places = torch.cat([torch.arange(first), torch.arange(low, low + last)])
        out_values[:, places] = values[:, columns]
        out_vectors[:, :, places] = _fix_signs(vectors[:, :, columns])
        repeated = torch.zeros(out_values.shape, dtype=torch.bool)
        repeated[:, places] = _repeated(values)[:, columns]
        yield out_values, out_vectors, repeated


def _fix_signs(vectors: Tensor) -> Tensor:
    """[G, n, c] with each column's entry of largest magnitude, the first of several, positive."""
    return vectors * vectors.gather(1, _first_largest(vectors.abs(), 1).unsqueeze(1)).sign()


def _first_largest(magnitudes: Tensor, dim: int) -> Tensor:
    largest = magnitudes.amax(dim, keepdim=True)
    return (magnitudes >= largest * (1 - _SAME_MAGNITUDE)).to(torch.uint8).argmax(dim)


def _ends(count: int, low: int, high: int) -> tuple[int, int]:
    """How many of `count` eigenpairs are taken at either end; none is taken twice."""
    return min(low, count), min(high, max(count - low, 0))


def _fix_bases(solved: Sequence[tuple[Tensor, Tensor]], low: int, high: int) -> None:
    """Replace the basis of every eigenspace of dimension > 1 that contains wanted columns.

    Eigenpairs are [G, m] and [G, n, m].

    Eigenspaces of equal dimension and similar n, padded by rows of zeros, are computed together.
    """
    groups: dict[tuple[int, int], list[tuple[Tensor, Tensor, Tensor]]] = {}
    for values, vectors in solved:
        for dimension, rows, columns in _eigenspaces(values, *_ends(values.size(1), low, high)):
            groups.setdefault((dimension, vectors.size(1).bit_length()), []).append((vectors, rows, columns))
    for group in groups.values():
        spaces = [vectors[rows, :, columns].mT for vectors, rows, columns in group]  # (S, n, dimension) each
        n = max(space.size(1) for space in spaces)
        bases = _projected_basis(
            torch.cat([nn.functional.pad(space, (0, 0, 0, n - space.size(1))) for space in spaces])
        )
        for (vectors, rows, columns), basis in zip(group, bases.split([len(space) for space in spaces]), strict=True):
            vectors[rows, :, columns] = basis[:, : vectors.size(1)].mT


def _eigenspaces(values: Tensor, first: int, last: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Eigenspaces of dimension d > 1 that contain one of the `first` or `last` columns, by d.

    `values` are ascending, [G, m]. An item is (d, graphs [S, 1], columns [S, d]).
    """
    num, count = values.shape
    if count < 2:
        return
    new = _differs_from_last(values)
    start = new.flatten().nonzero().squeeze(1)  # of each eigenspace, in graph-major order
    length = torch.cat([start[1:], start.new_tensor([num * count])]) - start
    graph, column = start // count, start % count
    wanted = (length > 1) & ((column < first) | (column + length > count - last))
    for dimension in length[wanted].unique().tolist():
        chosen = wanted & (length == dimension)
        yield dimension, graph[chosen][:, None], column[chosen][:, None] + torch.arange(dimension)


def _differs_from_last(values: Tensor) -> Tensor:
    """Of ascending values [G, m]: whether each differs from the one before it, bool [G, m]; the first does."""
    new = torch.ones(values.shape, dtype=torch.bool)
    if values.size(1) > 1:
        scale = values.abs().amax(1, keepdim=True).clamp(min=1)
        new[:, 1:] = values.diff(dim=1) > _SAME_EIGENVALUE * scale
    return new


def _repeated(values: Tensor) -> Tensor:
    """Of ascending values [G, m]: whether each equals a neighbour, bool [G, m]."""
    same = ~_differs_from_last(values)
    return same | nn.functional.pad(same[:, 1:], (0, 1))


def _projected_basis(space: Tensor) -> Tensor:
    """Basis of the span of orthonormal vectors [S, n, d] that depends on the span alone.

    It is pivoted Gram-Schmidt on the projections of e_1 .. e_n.
    """
    rest, basis = space.clone(), []
    for _ in range(space.size(2)):
        # row i of `rest` holds the coordinates of what is left of e_i
        pivot = _first_largest(rest.square().sum(2), 1)  # (S,)
        direction = rest.gather(1, pivot[:, None, None].expand(-1, 1, space.size(2)))  # (S, 1, d)
        direction = direction / direction.norm(dim=2, keepdim=True)
        basis.append((space * direction).sum(2))  # (S, n)
        rest = rest - (rest * direction).sum(2, keepdim=True) * direction
    return torch.stack(basis, 2)


def _large(edges: np.ndarray, n: int, normalization: str, low: int, high: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Eigenpairs of one large graph, component by component.

    Lanczos is unreliable for an eigenvalue that several components share.

    Returns values [low + high], vectors [n, low + high], and whether one of the values is repeated.
    """
    from scipy import sparse
    from scipy.sparse import csgraph

    adjacency = sparse.csr_array((np.ones(edges.shape[1]), edges), shape=(n, n))
    adjacency = adjacency.maximum(adjacency.T)
    adjacency.data[:] = 1.0
    num_components, member = csgraph.connected_components(adjacency, directed=False)
    sizes = np.bincount(member, minlength=num_components)
    nodes = np.argsort(member, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    found = []  # (value, nodes, vector, whether the value is repeated in its component)
    for component in np.flatnonzero(sizes > _DENSE_SIZE):
        own = nodes[offsets[component] : offsets[component + 1]]
        values, vectors, repeated = _lanczos(adjacency[own][:, own], normalization, low, high)
        found += [(value, own, vectors[:, i], repeated[i]) for i, value in enumerate(values)]
    found += _small_components(adjacency, nodes, offsets, sizes, normalization, low, high)
    order = np.argsort([value for value, *_ in found], kind="stable")
    picked = [*order[:low], *order[: min(low, len(order)) - 1 : -1][:high]] if low else [*order[::-1][:high]]
    values, vectors = np.zeros(low + high), np.zeros((n, low + high))
    for place, index in enumerate(picked):
        values[place], own, vectors[own, place], _ = found[index]
    across = _repeated(torch.tensor([[found[index][0] for index in order]]))[0]  # of several components
    repeated = across[np.argsort(order)[picked]].any() or any(found[index][3] for index in picked)
    return values, vectors, bool(repeated)


def _small_components(
    adjacency, nodes, offsets, sizes, normalization, low, high
) -> list[tuple[float, np.ndarray, np.ndarray, bool]]:
    """All components up to _DENSE_SIZE as one batch of graphs, solved densely."""
    chosen = np.flatnonzero(sizes <= _DENSE_SIZE)
    if not len(chosen):
        return []
    own = np.concatenate([nodes[offsets[c] : offsets[c + 1]] for c in chosen])
    edges = torch.from_numpy(np.stack(adjacency[own][:, own].nonzero())).long()
    ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes[chosen])]))
    batch = GraphBatch(torch.zeros(len(own), 0), edges, ptr)
    found = []
    for block, values, vectors, repeated in _dense(_by_size(batch)[0], normalization, low, high):
        size = vectors.size(1)
        real = [*range(min(low, size)), *range(low, low + min(high, max(size - low, 0)))]
        for g, graph in enumerate(block.graphs.tolist()):
            rows = own[int(ptr[graph]) : int(ptr[graph + 1])]
            found += [(float(values[g, i]), rows, vectors[g, :, i].numpy(), bool(repeated[g, i])) for i in real]
    return found


def _lanczos(adjacency, normalization: str, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `low` lowest and `high` highest eigenpairs of one connected graph, and which values are repeated.

    They ascend within each end.

    Raises ArithmeticError.
    """
    from scipy import sparse

    n = adjacency.shape[0]
    degree = adjacency.sum(0)
    if normalization == "none":
        matrix, top = sparse.diags_array(degree) - adjacency, 2 * degree.max()
    else:
        scale = sparse.diags_array(1 / np.sqrt(np.maximum(degree, 1)))
        matrix, top = sparse.eye_array(n) - scale @ adjacency @ scale, 2.0
    found = []
    for count, end in ((low, "lowest"), (high, "highest")):
        if count:
            found.append(_one_end(matrix.tocsc(), top, count, end))
    values, vectors, repeated = (np.concatenate([p[i] for p in found], -1) for i in range(3))
    residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max()
    if residual > 1e-6 * top:
        raise ArithmeticError(
            f"eigenvectors of a graph with {n} nodes were found with a residual of {residual:.1e} only"
        )
    return values, _fix_signs(torch.from_numpy(vectors)[None])[0].numpy(), repeated


def _one_end(matrix, top: float, count: int, end: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, vectors and repeated ones of the `count` lowest or highest eigenpairs, ascending.

    A few more are computed, so that no eigenspace is cut.
    """
    from scipy import sparse
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    n = matrix.shape[0]
    sought = min(count + 8, n - 2)
    start = np.random.default_rng(0).standard_normal(n)
    # The lowest of L are the highest of top I - L: no factorisation, which fills in on graphs without small separators.
    shifted = matrix if end == "highest" else top * sparse.eye_array(n) - matrix
    try:
        values, vectors = eigsh(shifted, sought, which="LA", v0=start, ncv=min(n, 4 * sought + 20), maxiter=40)
        values = values if end == "highest" else top - values
    except ArpackNoConvergence:
        # close eigenvalues at the end: the graph is like a grid or a road map, where a factorisation is cheap
        sigma = -1e-3 * top if end == "lowest" else 1.001 * top
        values, vectors = eigsh(matrix, sought, sigma=sigma, which="LM", v0=start, ncv=min(n, 4 * sought + 20))
    order = np.argsort(values)
    values, vectors = torch.from_numpy(values[order])[None], torch.from_numpy(vectors[:, order])[None]
    _fix_bases([(values, vectors)], *((count, 0) if end == "lowest" else (0, count)))
    cut = slice(0, count) if end == "lowest" else slice(values.size(1) - count, None)
    return values[0, cut].numpy(), vectors[0, :, cut].numpy(), _repeated(values)[0, cut].numpy()


LAPLACIAN = Encoding(
    "laplacian",
    laplacian,
    ("laplacian_eigenvectors", "laplacian_eigenvalues"),
    lambda k, normalization, which: {"laplacian_eigenvectors": k, "laplacian_eigenvalues": k},
)
SECOND_EIGENVECTOR = Encoding(
    "second-eigenvector", second_eigenvector, ("second_eigenvector",), lambda: {"second_eigenvector": 1}
)
