"""Which pairs of nodes attend, and how per-pair and per-node values are laid out for it, padded or listed; built once a forward."""

from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.nn.cached import cached_property
from gt_models.nn.sl2_attention import MASKED, AttentionForm
from gt_models.nn.sl2_attention_cpu import attention_units


class PairContext:
    """P attending pairs of a batch: all ordered pairs of each graph, or its edges and the diagonal.

    An edge belongs to the pair whose query is its source and whose key is its target; with `query_end` "target" the other way round.

    Attributes:
        query, key: nodes of each pair, long [P]; row-major within a graph.
        dense: whether attention runs padded ([B, n, n]) or on the list.
    """

    def __init__(self, batch: GraphBatch, dense: bool, edges_only: bool, query_end: Literal["source", "target"] = "source"):
        self.batch, self.dense, self.edges_only = batch, dense, edges_only
        self._units: dict[int, Tensor] = {}
        sizes = batch.sizes
        # first flat pair of each node's row: pairs of earlier graphs, then local * n
        self._row_start = batch.pair_ptr[batch.batch] + batch.local * sizes[batch.batch]  # [N]
        first, second = batch.edge_index if query_end == "source" else batch.edge_index.flip(0)
        if edges_only:
            flat = torch.cat([self._row_start[first] + batch.local[second], self.diagonal])
            self._flat, inverse = flat.unique(return_inverse=True)  # sorted: row-major
            self.edge_rows = inverse[: first.numel()]
            nodes = torch.arange(batch.num_nodes, device=flat.device)
            self.query = torch.empty_like(self._flat).index_copy_(0, inverse, torch.cat([first, nodes]))
            self.key = torch.empty_like(self._flat).index_copy_(0, inverse, torch.cat([second, nodes]))
        else:
            self._flat = None
            row_length = sizes[batch.batch]
            nodes = torch.arange(batch.num_nodes, device=sizes.device)
            self.query = torch.repeat_interleave(nodes, row_length, output_size=batch.num_pairs)  # [P]
            self.key = torch.arange(self.query.numel(), device=sizes.device) - (self._row_start - batch.ptr[batch.batch])[self.query]
            self.edge_rows = self._row_start[first] + batch.local[second]  # [E]

    @cached_property
    def num_complete(self) -> int:
        """Ordered pairs in all, sum n^2."""
        return self.batch.num_pairs

    @cached_property
    def diagonal(self) -> Tensor:
        """Flat pair (i, i) of each node, long [N]."""
        return self._row_start + self.batch.local

    @cached_property
    def degree(self) -> Tensor:
        """Edges that leave each node, as the random walk counts them (a self-loop once), float [N]."""
        ones = torch.ones(self.batch.num_edges, device=self.batch.ptr.device)
        return ones.new_zeros(self.batch.num_nodes).index_add(0, self.batch.edge_index[0], ones)

    @cached_property
    def num_neighbours(self) -> Tensor:
        """Nodes that an edge joins to each node, either way (a self-loop to itself), float [N]."""
        nodes = self.batch.num_nodes
        first, second = torch.cat([self.batch.edge_index, self.batch.edge_index.flip(0)], 1)
        return torch.bincount((first * nodes + second).unique() // max(1, nodes), minlength=nodes).float()

    def select(self, values: Tensor) -> Tensor:
        """Values of all flat pairs [sum n^2, C] -> of the attending ones [P, C]."""
        return values if self._flat is None else values[self._flat]

    def project(
        self, p: Tensor, weight: Tensor, bias: Tensor, num_layers: int, num_heads: int, form: AttentionForm
    ) -> list[tuple[Tensor, Tensor | None]]:
        """Pair encodings [P, C] through the pair layers of all layers at once -> (theta, phi or None) of each layer.

        weight [L G H, C], rows by layer, then theta before phi, then head. Dense: [H, B, n, n] each, listed: [P, H] each. In
        place and compiled, each term belongs to whoever reads it, who may overwrite it and hand its gradient back in the same memory;
        compiled: [H, P] each.
        """
        if form == "compiled":
            terms = _OwnedTerms.apply(p, weight, bias, (weight.size(0) // num_heads, num_heads, p.size(0)))
        elif self.dense:
            graphs, n = self.batch.num_graphs, self.batch.max_nodes
            padded = p.new_zeros(graphs * n * n, p.size(1)).index_copy_(0, self._slots, p)  # [B n n, C]
            shape = (weight.size(0) // num_heads, num_heads, graphs, n, n)  # heads outside, as attention wants them
            if form == "in place":
                terms = _OwnedTerms.apply(padded, weight, bias, shape)
            else:
                terms = torch.addmm(bias[:, None], weight, padded.t()).view(shape).unbind(0)
        else:
            terms = F.linear(p, weight, bias).view(p.size(0), -1, num_heads).unbind(1)
        if len(terms) == num_layers:
            return [(theta, None) for theta in terms]
        return list(zip(terms[::2], terms[1::2], strict=True))

    def units(self, num_heads: int) -> Tensor:
        """Heads of graphs as the compiled attention walks over them."""
        if num_heads not in self._units:
            self._units[num_heads] = attention_units(self.batch.ptr, self.batch.pair_ptr, self.batch.sizes, num_heads)
        return self._units[num_heads]

    def pad_heads(self, qkv: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of nodes [N, 3 d] -> [H, B, n, d / H] each, zero at padding."""
        graphs, n = self.batch.num_graphs, self.batch.max_nodes
        padded = qkv.new_zeros(graphs * n, qkv.size(1)).index_copy_(0, self._node_slots, qkv)
        return padded.view(graphs, n, 3, num_heads, -1).permute(2, 3, 0, 1, 4).contiguous().unbind(0)

    def unpad_heads(self, y: Tensor) -> Tensor:
        """[H, B, n, d / H] -> [N, d]."""
        return y.permute(1, 2, 0, 3).flatten(2).flatten(0, 1).index_select(0, self._node_slots)

    @cached_property
    def mask(self) -> Tensor:
        """Float [B, 1 or n, n]: 0 where a query may see a key, MASKED elsewhere."""
        if not self.edges_only:
            return self.mask_keys(self.batch)
        n = self.batch.max_nodes
        allowed = torch.full((self.batch.num_graphs * n * n,), MASKED, device=self.query.device)
        return allowed.index_fill(0, self._slots, 0.0).view(-1, n, n)

    @staticmethod
    def mask_keys(batch: GraphBatch) -> Tensor:
        """Float [B, 1, n]: 0 at nodes, MASKED at padding."""
        return torch.zeros(batch.num_graphs, 1, batch.max_nodes, device=batch.ptr.device).masked_fill(~batch.node_mask[:, None], MASKED)

    @cached_property
    def _node_slots(self) -> Tensor:
        return self.batch.batch * self.batch.max_nodes + self.batch.local

    @cached_property
    def _slots(self) -> Tensor:
        return self._node_slots[self.query] * self.batch.max_nodes + self.batch.local[self.key]


class _OwnedTerms(torch.autograd.Function):
    """rows @ weight^T + bias, transposed and cut into terms that their readers may overwrite; backward takes gradients where they lie.

    Plain autograd would hold the terms, one gradient for each and their concatenation: three times the largest tensor of the backbone.
    """

    @staticmethod
    def forward(ctx, rows: Tensor, weight: Tensor, bias: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.save_for_backward(rows, weight)
        ctx.buffer = torch.addmm(bias[:, None], weight, rows.t()).view(shape)
        # .data: terms do not share a version counter, so that one layer's writes do not void what another has saved
        return tuple(ctx.buffer[i].data for i in range(shape[0]))

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):
        rows, weight = ctx.saved_tensors
        for place, grad in zip(ctx.buffer, grads, strict=True):
            if grad.data_ptr() != place.data_ptr():
                place.copy_(grad)
        dterms = ctx.buffer.view(weight.size(0), -1)  # [L G H, B n n]
        return torch.mm(dterms.t(), weight), torch.mm(dterms, rows), dterms.sum(1), None
