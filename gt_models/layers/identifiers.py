"""Node identifiers (TokenGT, Section 2 and the appendix on identifiers): vectors that distinguish the nodes of a graph.

Lemma 1 needs orthonormal rows. With more nodes than channels they are nearly orthonormal. Random identifiers are drawn
from torch's global generator in every forward pass.
"""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def node_tuples(batch: GraphBatch, order: int, hyperedges: bool) -> Tensor:
    """Node ids of each token, long [M, k]: nodes as (v, ..., v), then edges or hyperedges of `order` nodes.

    Raises:
        ValueError: no graph, or hyperedges that do not fit (`GraphBatch.hyperedges`).
    """
    if batch.num_graphs == 0:
        raise ValueError("the batch holds no graph: give at least one")
    nodes = torch.arange(batch.num_nodes, device=batch.x.device)[:, None].expand(-1, order)
    return torch.cat([nodes, batch.hyperedges(order) if hyperedges else batch.edge_index.T])


def orthogonal_rows(
    sizes: Tensor, owner: Tensor, local: Tensor, max_size: int, width: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Orthogonal random features: per graph the rows of a random orthogonal n x n matrix (QR of a Gaussian one).

    Where n < width the channels are zero-padded; where n > width a random choice of `width` columns is used: they are
    orthonormal, the rows no longer. Columns of a uniform orthogonal matrix are exchangeable, so QR of n x width numbers
    is that choice at a cost of n * width^2.

    Args:
        sizes: rows per graph, long [B].
        owner: graph of each row, long [M].
        local: place of each row in its graph, long [M].
        max_size: largest of `sizes`.
        width: channels d_p.
        dtype: of the result.

    Returns:
        [M, width].
    """
    columns = min(max_size, width)
    wide = torch.promote_types(dtype, torch.float32)  # torch decomposes no matrix of half precision
    gaussian = torch.randn(sizes.numel(), max_size, columns, dtype=wide, device=sizes.device)
    rows, channels = torch.arange(max_size, device=sizes.device), torch.arange(columns, device=sizes.device)
    inside = (rows[:, None] < sizes[:, None, None]) & (channels < sizes[:, None, None])  # [B, n_max, c]
    # outside a graph's own block is the identity, so its block of Q is orthogonal by itself
    gaussian = torch.where(inside, gaussian, (rows[:, None] == channels).to(wide))
    q, r = torch.linalg.qr(gaussian)  # [B, n_max, c]
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :] * inside
    out = q[owner, local]  # [M, c]
    return torch.nn.functional.pad(out, (0, width - columns)).to(dtype)


def orthogonal_rows_of_largest(
    num_graphs: int, owner: Tensor, local: Tensor, max_size: int, width: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """ORF as TokenGT's authors run them: per graph the first rows of a matrix of the batch's largest size.

    Returns:
        [M, width], from `rows_to_width`.
    """
    wide = torch.promote_types(dtype, torch.float32)  # torch decomposes no matrix of half precision
    q, _ = torch.linalg.qr(torch.randn(num_graphs, max_size, max_size, dtype=wide, device=owner.device))
    return rows_to_width(q[owner, local], width).to(dtype)


def rows_to_width(rows: Tensor, width: int) -> Tensor:
    """First `width` channels, or zeros after the last, and then rows of unit length: [M, n] -> [M, width]."""
    rows = torch.nn.functional.pad(rows[:, :width], (0, max(0, width - rows.size(1))))
    return torch.nn.functional.normalize(rows, dim=1)


def near_orthogonal_rows(
    count: int, width: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Tensor:
    """Near-ORF: each entry +1/d_p or -1/d_p at random, [count, width] (rows have length d_p^-1/2, as in the paper)."""
    return (torch.randint(0, 2, (count, width), device=device) * 2 - 1).to(dtype) / width


def random_rows(
    count: int, width: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Tensor:
    """Standard normal rows scaled to unit length, [count, width]: apart from each other, but not orthogonal."""
    return torch.nn.functional.normalize(torch.randn(count, width, dtype=dtype, device=device), dim=1)


def rows_of_table(table: Tensor, num_graphs: int, owner: Tensor, local: Tensor, max_size: int) -> Tensor:
    """Rows of one table [R, width], chosen and ordered at random for each graph: [M, width].

    Raises:
        ValueError: a graph needs more rows than the table has.
    """
    if max_size > table.size(0):
        raise ValueError(
            f"a graph needs {max_size} identifiers and the table has {table.size(0)} rows: raise identifier_table"
        )
    order = torch.rand(num_graphs, table.size(0), device=table.device).argsort(1)  # [B, R]
    return table[order[owner, local]]
