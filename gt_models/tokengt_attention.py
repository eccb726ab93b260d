"""One attention layer of TokenGT whose heads learn the 15 equivariant basis tensors.

Section 5.1, and the appendix on basis approximation. `model(batch)` is the attention, `model.targets(batch)` are the
basis tensors, and `model.errors(batch)` are the squared distances by graph and basis, the loss. Features are not read.
"""

# mypy: disable-error-code="attr-defined"

from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers import identifiers as ids
from gt_models.layers.dropout import Dropout
from gt_models.layers.eigenvectors import laplacian_eigenvectors
from gt_models.layers.equivariant_basis import basis_targets, bell, equality_pattern
from gt_models.layers.settings import at_least
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.registry import register_model

GROUPS = 16  # of graphs of similar size
GROUPS_ON_GPU = 4  # padding costs less there than calls
NodeIdentifiers = Literal["none", "random", "orf", "laplacian", "random-first-order", "orf-first-order"]


@register_model(
    "tokengt-attention",
    levels=("attention",),
    cost="(n + m)^2 d, or n^4 d dense",
    encodings=("laplacian_eigenvectors",),
)
class TokenGTAttention(nn.Module):
    """Attention matrices over node and edge tokens and [null].

    The paper's ten configurations are `node_identifiers` x `type_identifiers`; each on sparse tokens (nodes and edges)
    and on dense ones (nodes and all ordered pairs).

    Args:
        in_dim: accepted for the common interface; features are not read.
        out_dim: must be 15, the number of basis tensors.
        level: "attention".
        node_identifiers, node_id_dim: as in `TokenGT`; d_p channels.
        type_identifiers: whether tokens carry a trainable vector of their kind.
        dense: tokens are all ordered pairs of nodes instead of nodes and edges.
        hidden_dim, num_heads, head_dim: d, H and d_H; the last 15 heads are supervised, so `num_heads` is 15 (paper) or
            more (16 in the implementation, whose first head is free).
        dropout: on the input.
        sign_flip: random signs of eigenvectors in training (paper); the implementation flips none.
        identifier_table: None draws identifiers for each graph (paper); a number n draws one table of n rows per
            forward, of which each graph takes a random choice (implementation: 20, and 128 or more for first-order
            identifiers).
        input_linear: biases in the identifiers' projection and one more Linear on all tokens (implementation).
        pre_norm: layer norm before queries and keys (implementation).
    """

    def __init__(
        self,
        in_dim: int = 0,
        out_dim: int = 15,
        level: Literal["attention"] = "attention",
        node_identifiers: NodeIdentifiers = "orf",
        node_id_dim: int = 24,
        type_identifiers: bool = True,
        dense: bool = False,
        hidden_dim: int = 1024,
        num_heads: int = 15,
        head_dim: int = 128,
        dropout: float = 0.1,
        sign_flip: bool = True,
        identifier_table: int | None = None,
        input_linear: bool = False,
        pre_norm: bool = False,
    ):
        super().__init__()
        if node_identifiers not in NodeIdentifiers.__args__:
            raise ValueError(
                f"unknown node identifiers {node_identifiers!r}; known: {', '.join(NodeIdentifiers.__args__)}"
            )
        if level != "attention" or out_dim != bell(4):
            raise ValueError(
                f"level {level!r}, out_dim {out_dim}: this model gives attention for the {bell(4)} basis tensors"
            )
        at_least(
            1, node_id_dim=node_id_dim, hidden_dim=hidden_dim, head_dim=head_dim, identifier_table=identifier_table
        )  # fmt: skip
        if num_heads < out_dim:
            raise ValueError(f"num_heads {num_heads}: one head for each of the {out_dim} basis tensors, or more")
        self.node_identifiers, self.node_id_dim, self.identifier_table = node_identifiers, node_id_dim, identifier_table
        self.dense, self.sign_flip, self.num_heads, self.head_dim, self.num_bases = (
            dense,
            sign_flip,
            num_heads,
            head_dim,
            out_dim,
        )
        copies = 1 if node_identifiers.endswith("first-order") else 2
        self.identifier_encoder = (
            None if node_identifiers == "none" else nn.Linear(copies * node_id_dim, hidden_dim, bias=input_linear)
        )
        self.type_encoder = nn.Embedding(2, hidden_dim) if type_identifiers else None
        self.null_token = nn.Parameter(torch.empty(hidden_dim))
        self.input_linear = nn.Linear(hidden_dim, hidden_dim) if input_linear else None
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(hidden_dim) if pre_norm else None
        self.query = nn.Linear(hidden_dim, num_heads * head_dim)
        self.key = nn.Linear(hidden_dim, num_heads * head_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Default initialisation of torch for Linear; [null] and type identifiers N(0, 1)."""
        # unstated: the paper names no initialisation; the implementation keeps torch's defaults
        for module in (self.identifier_encoder, self.type_encoder, self.input_linear, self.norm, self.query, self.key):
            if module is not None:
                module.reset_parameters()
        nn.init.normal_(self.null_token)

    def forward(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """Attention of the supervised heads, [B, 15, T, 1 + T], column 0 [null]; see `tokens` for T.

        Zero in rows of padding.

        `identifiers` [N, d_p]: node identifiers to use in place of drawn ones.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch, identifiers), batch)

    def forward_features(self, batch: GraphBatch, identifiers: Tensor | None = None) -> Tensor:
        """Input of the layer, [B + M, d]: [null] of each graph, then the real tokens of all graphs."""
        batch = GraphBatch.of(batch)
        identifiers = None if identifiers is None else identifiers.to(self.null_token.dtype)
        x = self.dropout(self.embed(batch, *self.tokens(batch), identifiers))  # [B + M, d]
        return x if self.norm is None else self.norm(x)

    def embed(self, batch: GraphBatch, tuples: Tensor, mask: Tensor, identifiers: Tensor | None) -> Tensor:
        """[null] of each graph, then the real tokens of all graphs, [B + M, d]. `tuples`, `mask`: see `tokens`."""
        owner, local = places_of(mask)
        pairs = tuples[owner, local]  # [M, 2], node ids of their graph
        x = self.null_token.new_zeros(owner.numel(), self.null_token.numel())  # [M, d]
        if self.identifier_encoder is not None:
            rows, nodes = self.identifiers(batch, pairs, mask, identifiers)
            ids_of_tokens = rows if nodes is None else torch.cat([rows.index_select(0, n) for n in nodes], 1)
            x = x + self.identifier_encoder(ids_of_tokens)  # [P_u, P_v] or a vector of the token's own
        if self.type_encoder is not None:
            x = x + self.type_encoder(equality_pattern(pairs))
        x = torch.cat([self.null_token.expand(batch.num_graphs, -1).to(x.dtype), x])  # [B + M, d]
        return x if self.input_linear is None else self.input_linear(x)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[B + M, d] -> attention [B, 15, T, 1 + T]; the [null] row is left out."""
        _, mask = self.tokens(batch)
        owner, local = places_of(mask)
        return self._attention(*self.queries_and_keys(*features.tensor_split([len(mask)])), owner, local, mask)

    def errors(self, batch: GraphBatch) -> Tensor:
        """`(model(batch) - model.targets(batch)).square().sum((-2, -1))`, [B, 15]: L2 of Table 1 by graph and basis.

        Graphs of similar size are computed together: for graphs of 10 to 20 nodes, two of three scores of
        `model(batch)` are of padding.
        """
        # unstated: whether L2 is summed or averaged over entries; the implementation sums
        batch = GraphBatch.of(batch)
        tuples, mask = self.tokens(batch)
        owner, local = places_of(mask)
        counts = mask.sum(1)
        order = counts.argsort(stable=True)  # of graphs
        keep = mask[owner, local].nonzero().squeeze(1)
        keep = keep[order.argsort()[owner[keep]].argsort(stable=True)]  # real tokens, those of the smallest graph first
        nulls, tokens = self.forward_features(batch).tensor_split([len(mask)])
        nulls, q, k = self.queries_and_keys(nulls, tokens.index_select(0, keep))
        rising = counts[order]
        groups = -(-len(rising) // (GROUPS if mask.is_cpu else GROUPS_ON_GPU))  # graphs in one
        sizes = rising.tolist()  # one synchronisation instead of one per group
        sizes = [sizes[i : i + groups] for i in range(0, len(sizes), groups)]
        chunks = [t.split([sum(group) for group in sizes]) for t in (q, k, tuples[owner[keep], local[keep]])]
        found = []
        for graphs, group, size, q, k, pairs in zip(
            order.split(groups), rising.split(groups), sizes, *chunks, strict=True
        ):
            real = torch.arange(size[-1], device=group.device) < group[:, None]  # [G, T]
            of = torch.repeat_interleave(group, output_size=sum(size))
            places = of, torch.arange(sum(size), device=group.device) - (group.cumsum(0) - group)[of]
            taken = pairs.new_zeros(*real.shape, 2).index_put_(places, pairs)
            attention = self._attention(nulls[graphs], q, k, *places, real)
            attention = (
                attention.float() if attention.dtype == torch.bfloat16 else attention
            )  # too coarse for a difference
            found.append((attention - basis_targets(taken, real, self.null_token.dtype)).square().sum((-2, -1)))
        return torch.cat(found)[order.argsort()]

    def queries_and_keys(self, nulls: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys of [null] [B, 15 d_H], queries and keys of the other tokens [M, 15 d_H].

        Args:
            nulls: inputs of [null], [B, d].
            tokens: inputs of the real tokens, [M, d].
        """
        free = self.num_free_channels
        return self.key(nulls)[:, free:], self.query(tokens)[:, free:], self.key(tokens)[:, free:]

    @property
    def num_free_channels(self) -> int:
        """Channels of the heads without a target, which come first."""
        return (self.num_heads - self.num_bases) * self.head_dim

    def _attention(self, nulls: Tensor, q: Tensor, k: Tensor, owner: Tensor, local: Tensor, mask: Tensor) -> Tensor:
        """Attention [B, 15, T, 1 + T].

        Args:
            nulls: keys of [null], [B, 15 d_H].
            q: queries of the real tokens, [M, 15 d_H].
            k: keys of the real tokens, [M, 15 d_H].
            owner: graph of each real token, long [M].
            local: place of each real token in its graph, long [M].
            mask: where tokens are real, bool [B, T].
        """
        graphs, length = mask.shape
        null = torch.arange(graphs, device=owner.device) * (length + 1)
        q = q.new_zeros(graphs * length, q.size(1)).index_copy(0, owner * length + local, q)
        places = torch.cat([null, owner * (length + 1) + local + 1])
        k = k.new_zeros(graphs * (length + 1), k.size(1)).index_copy(0, places, torch.cat([nulls, k]))
        q, k = (
            t.view(graphs, rows, self.num_bases, self.head_dim).transpose(1, 2)
            for t, rows in ((q, length), (k, length + 1))
        )  # [B, 15, T or 1 + T, d_H]
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)  # [B, 15, T, 1 + T], Eq. (5)
        padding = torch.cat([mask.new_zeros(graphs, 1), ~mask], 1)  # columns
        return scores.masked_fill(padding[:, None, None], float("-inf")).softmax(-1) * mask[:, None, :, None]

    def targets(self, batch: GraphBatch) -> Tensor:
        """Row-normalised basis tensors on the tokens of `batch`, [B, 15, T, 1 + T] (see `basis_targets`)."""
        return basis_targets(*self.tokens(GraphBatch.of(batch)), self.null_token.dtype)

    def tokens(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Node ids (of their graph) of each token, long [B, T, 2], and where they are real, bool [B, T].

        A graph's nodes come first, as (v, v); then its edges, or with `dense` all ordered pairs of two nodes, row by
        row.
        """
        n = batch.max_nodes
        nodes = torch.arange(n, device=batch.ptr.device)
        diagonal = nodes[:, None].expand(n, 2).expand(batch.num_graphs, n, 2)  # [B, n_max, 2]
        if self.dense:
            first, other = torch.cartesian_prod(nodes, nodes[1:]).view(-1, 2).T
            pairs = torch.stack([first, other - (other <= first).long()], 1).expand(
                batch.num_graphs, -1, 2
            )  # [B, n_max (n_max - 1), 2]
            return torch.cat([diagonal, pairs], 1), torch.cat(
                [batch.node_mask, (pairs < batch.sizes[:, None, None]).all(-1)], 1
            )
        owner, source, target = batch.edge_slots()
        counts = torch.zeros_like(batch.sizes).index_add_(0, owner, torch.ones_like(owner))  # [B]
        order = owner.argsort(stable=True)
        rank = torch.arange(owner.numel(), device=owner.device) - (counts.cumsum(0) - counts)[owner[order]]
        longest = batch.max_edges
        edges = owner.new_zeros(batch.num_graphs, longest, 2)
        edges[owner[order], rank] = torch.stack([source, target], 1)[order]
        real = torch.arange(longest, device=owner.device) < counts[:, None]
        return torch.cat([diagonal, edges], 1), torch.cat([batch.node_mask, real], 1)

    def identifiers(
        self, batch: GraphBatch, pairs: Tensor, mask: Tensor, identifiers: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Identifiers of nodes [N, d_p] and the nodes of each token [2, M].

        Or a vector for each token [M, d_p] and None (first order).
        """
        owner, local = places_of(mask)
        if not self.node_identifiers.endswith("first-order"):
            drawn = self._draw_for_nodes(batch) if identifiers is None else identifiers
            nodes = (pairs + batch.ptr[owner][:, None]).clamp(max=batch.num_nodes - 1)  # padding has no nodes
            return drawn.to(self.null_token.dtype), nodes.T
        position = mask.long().cumsum(1)[owner, local] - 1  # among the real tokens of its graph
        counts = mask.sum(1)
        return self._draw(counts, owner, position, int(counts.max())), None

    def _draw_for_nodes(self, batch: GraphBatch) -> Tensor:
        if self.node_identifiers != "laplacian":
            return self._draw(batch.sizes, batch.batch, batch.local, batch.max_nodes)
        return laplacian_eigenvectors(batch, self.node_id_dim, flip=self.training and self.sign_flip)

    def _draw(self, sizes: Tensor, owner: Tensor, local: Tensor, largest: int) -> Tensor:
        """Random identifiers of rows `local` of graphs `owner`, [M, d_p]; `largest` of the `sizes`."""
        width, dtype, device = self.node_id_dim, self.null_token.dtype, owner.device
        orthogonal = self.node_identifiers.startswith("orf")
        if self.identifier_table is None:
            if orthogonal:
                return ids.orthogonal_rows(sizes, owner, local, largest, width, dtype)
            return ids.random_rows(owner.numel(), width, dtype, device)
        if orthogonal and self.identifier_table > width:
            raise ValueError(
                f"a table of {self.identifier_table} orthonormal rows needs as many channels: raise node_id_dim from "
                f"{width}"
            )
        rows = torch.arange(self.identifier_table, device=device)
        if orthogonal:
            wide = torch.promote_types(dtype, torch.float32)  # torch decomposes no matrix of half precision
            table = torch.linalg.qr(torch.randn(width, rows.numel(), dtype=wide, device=device))[0].T.to(dtype)
        else:
            table = ids.random_rows(rows.numel(), width, dtype, device)
        return ids.rows_of_table(table, sizes.numel(), owner, local, largest)


def places_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(graph, place there) of each real token, [M] each.

    Of every token, padding too, where shapes must not depend on data: for a compiler, and on a device that would have
    to be waited for.
    """
    if not needs_static_shapes(mask):
        owner, local = mask.nonzero().T
        return owner, local
    graphs, length = mask.shape
    places = torch.arange(graphs * length, device=mask.device)
    return places // max(length, 1), places % max(length, 1)
