"""The edges of a batch as compressed rows, one block per attention head, so that attention over neighbours is a sparse matrix product.

Row (i, h) = i * num_heads + h holds the incoming edges of node i for head h. The same entries sorted by source serve the backward pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.nn.cached import build_to_keep


@dataclass(frozen=True)
class Neighbourhood:
    """A sparse [N * H, N * H] pattern with E * H entries, by target and by source.

    Attributes:
        row: row (target, head) of each entry, [E * H].
        ptr, col: compressed rows by target: offsets [N * H + 1], and column (source, head) of each entry [E * H].
        ptr_t, col_t: the transposed pattern: by source, columns are targets.
        perm_t: entry of the first form that is entry i of the transposed one, [E * H].
        num_heads: H.
        in_degree, out_degree: edges per node that arrive and leave, long [N].
    """

    row: Tensor
    ptr: Tensor
    col: Tensor
    ptr_t: Tensor
    col_t: Tensor
    perm_t: Tensor
    num_heads: int
    in_degree: Tensor
    out_degree: Tensor


@torch.compiler.disable  # sorts by data and keeps the result: outside of compiled graphs
def neighbourhood(batch: GraphBatch, num_heads: int = 1, self_loops: bool = True) -> Neighbourhood:
    """The pattern of `batch.edge_index`.

    Args:
        self_loops: True drops the self-loops that are there and gives each node exactly one, as torch_geometric's GATConv does with
            `add_self_loops`; False takes the edges as they are. Parallel edges each count once, here as there.

    Sorting costs O(E log E); the result is kept on the GraphBatch for as long as its edge_index is the same, unchanged tensor
    (not where it was made in torch's inference mode).
    """
    cache = batch.__dict__.setdefault("_neighbourhoods", {})
    edge_index, key = batch.edge_index, (num_heads, self_loops)
    if edge_index.is_inference():  # has no version by which a change would be seen
        return _build(edge_index, batch.num_nodes, num_heads, self_loops)
    if key in cache:
        known, version, result = cache[key]
        if known is edge_index and version == edge_index._version:
            return result
    result = build_to_keep(_build, edge_index, batch.num_nodes, num_heads, self_loops)
    cache[key] = (edge_index, edge_index._version, result)
    return result


def _build(edge_index: Tensor, num_nodes: int, num_heads: int, self_loops: bool) -> Neighbourhood:
    source, target = edge_index
    if self_loops:
        proper = source != target
        nodes = torch.arange(num_nodes, device=edge_index.device)
        source, target = torch.cat([source[proper], nodes]), torch.cat([target[proper], nodes])
    target, order = torch.sort(target, stable=True)
    source = source[order]  # [E], by target
    in_degree, out_degree = torch.bincount(target, minlength=num_nodes), torch.bincount(source, minlength=num_nodes)
    entry, ptr = _blocks(target, in_degree, num_heads)  # entry of (edge, head)
    source_t, order_t = torch.sort(source, stable=True)
    entry_t, ptr_t = _blocks(source_t, out_degree, num_heads)
    heads = torch.arange(num_heads, device=target.device)
    total = target.numel() * num_heads
    # the sparse kernels read 32-bit indices without a conversion
    small = torch.int32 if max(total, num_nodes * num_heads) < 2**31 - 1 else torch.int64
    row, col, col_t, perm_t = (torch.empty(total, dtype=small, device=target.device) for _ in range(4))
    row[entry.flatten()] = (target[:, None] * num_heads + heads).flatten().to(small)
    col[entry.flatten()] = (source[:, None] * num_heads + heads).flatten().to(small)
    col_t[entry_t.flatten()] = (target[order_t][:, None] * num_heads + heads).flatten().to(small)
    perm_t[entry_t.flatten()] = entry[order_t].flatten().to(small)
    return Neighbourhood(row, ptr.to(small), col, ptr_t.to(small), col_t, perm_t, num_heads, in_degree, out_degree)


def _blocks(nodes: Tensor, degree: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    """Where entry (edge, head) stands when each node's edges are listed once per head, long [E, H]; and the row offsets [N * H + 1]."""
    start = degree.cumsum(0) - degree
    heads = torch.arange(num_heads, device=nodes.device)
    place = torch.arange(nodes.numel(), device=nodes.device) + (num_heads - 1) * start[nodes]
    entry = place[:, None] + heads * degree[nodes][:, None]
    rows = degree.repeat_interleave(num_heads).cumsum(0)
    return entry, torch.cat([rows.new_zeros(1), rows])
