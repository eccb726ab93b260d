"""The standard Transformer encoder (Vaswani et al. 2017; PreLN: Xiong et al. 2020) over graphs of unlike size, without padding.

Tokens of all graphs lie one after the other, [T, d]; every step but attention works on them row by row. Softmax attention on the CPU is a
compiled kernel that takes them as they lie. Elsewhere attention sees groups of graphs of nearly the same length (`Packing`), so little is
computed for padding, and nothing where lengths agree.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.nn.drop_path import DropPath
from gt_models.nn.dropout import Dropout
from gt_models.nn.packed_attention_cpu import packed_attention
from gt_models.nn.performer import RandomFeatures, performer_attention

ATTENTIONS = ("softmax", "performer")


class EncoderLayer(nn.Module):
    """PreLN layer: x += Attn(LN(x)), x += W2 gelu(W1 LN(x)), both branches under stochastic depth.

    Args:
        hidden_dim, num_heads: width d and heads; each head has d / num_heads channels.
        ffn_dim: width of the feed-forward layer.
        dropout: after attention and after the feed-forward layer.
        attn_dropout: on attention weights (softmax only).
        activation_dropout: after the GELU.
        drop_path: probability that a graph skips a branch in training.
        attention, num_features, redraw_interval: see `SelfAttention`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        ffn_dim: int,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        drop_path: float = 0.0,
        attention: str = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
    ):
        super().__init__()
        self.attn_norm = nn.LayerNorm(hidden_dim)
        self.attn = SelfAttention(hidden_dim, num_heads, attn_dropout, attention, num_features, redraw_interval)
        self.ffn_norm = nn.LayerNorm(hidden_dim)
        self.ffn_in = nn.Linear(hidden_dim, ffn_dim)
        self.ffn_out = nn.Linear(ffn_dim, hidden_dim)
        self.dropout, self.activation_dropout = Dropout(dropout), Dropout(activation_dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, packing: "Packing", first_only: bool = False) -> Tensor:
        """[T, d] -> [T, d]; or, with `first_only`, the first token of each graph alone, [B, d] in the order of `Packing.first`."""
        branch = self.dropout(self.attn(self.attn_norm(x), packing, first_only))  # [T, d]
        graph = None if first_only else packing.graph  # rows are graphs already
        x = (x.index_select(0, packing.first) if first_only else x) + self.drop_path(branch, graph, packing.num_graphs)
        branch = self.activation_dropout(F.gelu(self.ffn_in(self.ffn_norm(x))))  # [T, ffn_dim]
        branch = self.dropout(self.ffn_out(branch))  # [T, d]
        return x + self.drop_path(branch, graph, packing.num_graphs)


class SelfAttention(nn.Module):
    """Multihead self-attention among the tokens of each graph: [T, d] -> [T, d].

    Args:
        hidden_dim, num_heads: d and H; raises ValueError unless H divides d.
        attn_dropout: on attention weights; must be 0 for the Performer, which has no weights to drop.
        attention: "softmax", or "performer" for FAVOR+ (linear in tokens).
        num_features: random features per head (Performer); None is int(d_h ln d_h).
        redraw_interval: training forwards between two draws of the features (Performer); None keeps the first.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        attention: str = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
    ):
        super().__init__()
        if attention not in ATTENTIONS:
            raise ValueError(f"unknown attention {attention!r}; known: {', '.join(ATTENTIONS)}")
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads")
        if attention == "performer" and attn_dropout:
            raise ValueError(f"attn_dropout {attn_dropout} with Performer attention, which has no weights to drop: set attn_dropout to 0")
        self.num_heads, self.attn_dropout, self.dropout = num_heads, attn_dropout, Dropout(attn_dropout)
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        self.out = nn.Linear(hidden_dim, hidden_dim)
        head_dim = hidden_dim // num_heads
        self.features = RandomFeatures(head_dim, num_features, redraw_interval) if attention == "performer" else None

    def forward(self, x: Tensor, packing: "Packing", first_only: bool = False) -> Tensor:
        """[T, d] -> [T, d]; or, with `first_only`, what the first token of each graph receives, [B, d] in the order of `Packing.first`."""
        d, weight, bias, query = x.size(1), self.qkv.weight, self.qkv.bias, None
        if first_only:  # keys and values of all tokens, [T, 2d] below, and few queries
            query = F.linear(x.index_select(0, packing.first), weight[:d], bias[:d])  # [B, d]
            weight, bias = weight[d:], bias[d:]
        if x.device.type == "cpu" and self.features is None and not (self.training and self.attn_dropout):
            return self.out(self._packed(query, F.linear(x, weight), bias, packing))
        return self.out(self._grouped(query, F.linear(x, weight, bias), packing))  # [T, 3d]

    def _packed(self, query: Tensor | None, tokens: Tensor, bias: Tensor, packing: "Packing") -> Tensor:
        """Softmax attention without weights' dropout on the CPU: tokens + bias [T, 3d] -> [T, d], or [B, d] and [T, 2d] -> [B, d]."""
        # half precision is widened: the kernel's time is arithmetic, not memory
        wide = torch.float64 if tokens.dtype == torch.float64 else torch.float32
        query = None if query is None else query.to(wide)
        return packed_attention(query, tokens.to(wide), bias.to(wide), packing.lengths, self.num_heads)[0].to(tokens.dtype)

    def _grouped(self, query: Tensor | None, tokens: Tensor, packing: "Packing") -> Tensor:
        """The same of tokens that have their bias, group by group with torch's operations; and all other attention."""
        parts = tokens.split([g.num_tokens for g in packing.groups])
        queries = [None] * len(parts) if query is None else query.split([g.num_graphs for g in packing.groups])
        outs = [self._attend(q, t, group) for q, t, group in zip(queries, parts, packing.groups, strict=True)]
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _attend(self, query: Tensor | None, tokens: Tensor, group: "Group") -> Tensor:
        """One group: tokens [t, 3d] -> [t, d], or with a `query` [b, d] for each graph, tokens [t, 2d] -> [b, d]."""
        b, length = group.num_graphs, group.length
        if group.gather is not None:
            tokens = tokens.index_select(0, group.gather)  # [b * L, .], padding repeats some row
        # split by width and not by a view's dimension: backward is then one copy into the gradient of `tokens`
        parts = [t.unflatten(-1, (self.num_heads, -1)) for t in tokens.split(tokens.size(1) // (3 if query is None else 2), -1)]
        *q, k, v = [t.unflatten(0, (b, length)).transpose(1, 2) for t in parts]  # [b, H, L, d_h]
        q = q[0] if query is None else query.view(b, 1, self.num_heads, -1).transpose(1, 2)  # [b, H, L or 1, d_h]
        if self.features is None:  # Eq. (5): the scale d_h^-1/2 is on q with its bias
            rate = self.attn_dropout if self.training else 0.0
            if rate and q.device.type == "cpu":  # torch has no fused kernel with dropout there, and draws its numbers on one thread
                scores = (q * q.size(-1) ** -0.5) @ k.transpose(-1, -2)  # [b, H, L or 1, L]
                scores = scores if group.mask is None else scores.masked_fill(~group.mask, float("-inf"))
                out = self.dropout(scores.softmax(-1)) @ v
            else:
                out = F.scaled_dot_product_attention(q, k, v, attn_mask=group.mask, dropout_p=rate)
        else:
            # deviates: in the implementation padded keys take part in the keys' stabiliser, so that through eps a graph's output depends on
            # the longest graph beside it; here only a graph's own tokens do
            out = performer_attention(q, k, v, self.features, group.mask)
        out = out.transpose(1, 2).reshape(b * q.size(2), -1)  # [b * L, d]
        return out if group.scatter is None or query is not None else out.index_select(0, group.scatter)  # [t, d]


@dataclass
class Group:
    """Consecutive graphs whose attention is computed together, padded to `length`; without indices and mask where lengths agree.

    Attributes:
        num_graphs, length, num_tokens: b, L and the real tokens.
        gather: long [b * L], token of the group at each padded place (padding: any).
        scatter: long [num_tokens], padded place of each token.
        mask: bool [b, 1, 1, L], True at real keys.
    """

    num_graphs: int
    length: int
    num_tokens: int
    gather: Tensor | None = None
    scatter: Tensor | None = None
    mask: Tensor | None = None


@dataclass
class Packing:
    """How the tokens of B graphs lie in [T, d]: graphs by falling length, each graph's tokens together.

    Attributes:
        counts: tokens of each graph in the batch's order, long [B].
        start: first token of each graph, in the batch's order, long [B].
        first: the same by falling length, long [B], without graphs that have no token; rank: place there of each graph of the batch.
        graph: graph of each token (its place by falling length), long [T].
        lengths: tokens of each graph by falling length, without graphs that have none, long [B] on the CPU.
        groups: what attention works on; together they hold every token once, in order.
    """

    num_graphs: int
    num_tokens: int
    counts: Tensor
    start: Tensor
    first: Tensor
    rank: Tensor
    graph: Tensor
    lengths: Tensor
    groups: list[Group]

    @classmethod
    @torch.compiler.disable
    def of(cls, counts: Tensor, max_padding: float | None = None) -> "Packing":
        """The packing of graphs with `counts` tokens, long [B]; waits for the device once.

        `max_padding`: a group takes graphs as long as each needs at most this share of padding. None is no padding on the CPU where at most
        32 lengths occur (copies cost more there than calls), else a quarter.
        """
        sizes = counts.tolist()
        if max_padding is None:
            max_padding = 0.0 if counts.device.type == "cpu" and len(set(sizes)) <= 32 else 0.25
        order = sorted(range(len(sizes)), key=lambda b: -sizes[b])
        device = counts.device
        rank = torch.empty(len(sizes), dtype=torch.long)
        rank[order] = torch.arange(len(sizes))
        falling = torch.tensor([sizes[b] for b in order], dtype=torch.long)  # [B]
        begin = falling.cumsum(0) - falling
        num_tokens = int(falling.sum())
        groups, first, end = [], 0, int((falling > 0).sum())
        while first < end:
            longest, last = sizes[order[first]], first
            while last < end and sizes[order[last]] >= longest * (1.0 - max_padding):
                last += 1
            groups.append(_group(falling[first:last], device))
            first = last
        graph = torch.repeat_interleave(torch.arange(len(sizes)), falling)
        places = [t.to(device) for t in (begin[rank], begin[:end], rank, graph)]
        return cls(len(sizes), num_tokens, counts, *places, falling[:end], groups)


def _group(sizes: Tensor, device: torch.device) -> Group:
    """One group of graphs with falling `sizes` (on the CPU)."""
    b, length, total = sizes.numel(), int(sizes[0]), int(sizes.sum())
    if b * length == total:
        return Group(b, length, total)
    mask = torch.arange(length)[None] < sizes[:, None]  # [b, L]
    scatter = mask.flatten().nonzero().squeeze(1)  # [tokens]
    gather = torch.zeros(b * length, dtype=torch.long)
    gather[scatter] = torch.arange(total)
    return Group(b, length, total, gather.to(device), scatter.to(device), mask[:, None, None, :].to(device))
