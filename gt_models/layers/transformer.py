"""The standard Transformer encoder over graphs of different sizes, without padding.

Vaswani et al. 2017; PreLN: Xiong et al. 2020.

Tokens of all graphs lie one after the other, [T, d] (`Packing`); every step but attention works on them row by row.
"""

# mypy: disable-error-code="arg-type, assignment, misc, union-attr"

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gt_models.layers.accelerated import accelerated, differs
from gt_models.layers.drop_path import DropPath
from gt_models.layers.dropout import Dropout
from gt_models.layers.packing import Group, Packing, by_groups
from gt_models.layers.performer import RandomFeatures, key_maximum, performer_attention
from gt_models.layers.settings import at_least
from gt_models.layers.softmax_attention import SoftmaxAttention, fused_attention

ATTENTIONS = ("softmax", "performer")
# number of tokens of one graph above which a Performer layer is computed by rows, and how many rows at a time
LONG, ROWS = 16384, 4096


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
        """[T, d] -> [T, d].

        Or, with `first_only`, the first token of each graph alone, [B, d] in the order of `Packing.first`.
        """
        # above this number of tokens only a layer's input is stored, and rows are computed in chunks: only the
        # Performer's sums need all of them
        if len(x) > LONG and not first_only and self._can_go_by_rows(packing):
            return self._by_rows(x)
        branch = self.dropout(self.attn(self.attn_norm(x), packing, first_only))  # [T, d]
        graph = None if first_only else packing.graph  # rows are graphs already
        x = (x.index_select(0, packing.first) if first_only else x) + self.drop_path(branch, graph, packing.num_graphs)
        return x + self.drop_path(self.feed_forward(x), graph, packing.num_graphs)

    @accelerated
    def feed_forward(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 LN(x)) with its dropouts, [T, d] -> [T, d]."""
        branch = self.activation_dropout(F.gelu(self.ffn_in(self.ffn_norm(x))))  # [T, ffn_dim]
        return self.dropout(self.ffn_out(branch))

    def _can_go_by_rows(self, packing: "Packing") -> bool:
        if torch.compiler.is_compiling() or torch.is_autocast_enabled(packing.ptr.device.type):
            return False
        if self.attn.features is None or packing.num_graphs > 1 or self.drop_path.rate:
            return False
        return differs("attn", self.attn, SelfAttention) is None  # its parts are called, and not itself

    def _by_rows(self, x: Tensor) -> Tensor:
        """The layer for one graph, `ROWS` tokens at a time. The backward pass computes intermediates again."""
        chunks, attn, projection = x.split(ROWS), self.attn, self.attn.features.projection

        def keys(rows: Tensor, stabilizer: Tensor) -> tuple[Tensor, Tensor]:
            return attn.sums(self.attn_norm(rows), stabilizer, projection)

        def rest(rows: Tensor, context: Tensor, total: Tensor) -> Tensor:
            rows = rows + self.dropout(attn.read(self.attn_norm(rows), context, total, projection))
            return rows + self.feed_forward(rows)

        with torch.no_grad():
            stabilizer = torch.stack([attn.key_maximum(self.attn_norm(rows)) for rows in chunks]).amax(0)
        context, total = 0, 0
        for rows in chunks:
            one, another = checkpoint(keys, rows, stabilizer, use_reentrant=False)
            context, total = context + one, total + another
        return torch.cat([checkpoint(rest, rows, context, total, use_reentrant=False) for rows in chunks])


class SelfAttention(nn.Module):
    """Multihead self-attention among the tokens of each graph: [T, d] -> [T, d].

    Args:
        hidden_dim, num_heads: d and H; raises ValueError unless H divides d.
        attn_dropout: on attention weights; must be 0 for the Performer, which has no weights to drop.
        attention: "softmax", or "performer" for FAVOR+ (linear in tokens).
        num_features: random features per head (Performer); None is int(d_h ln d_h).
        redraw_interval: training forwards between two draws of the features (Performer); None keeps the first.
        detach: whether no gradient flows through the stabiliser of the features (Performer), as in performer-pytorch's
            `softmax_kernel`, which TokenGT's code calls.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        attn_dropout: float = 0.0,
        attention: str = "softmax",
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
        detach: bool = True,
    ):
        super().__init__()
        if attention not in ATTENTIONS:
            raise ValueError(f"unknown attention {attention!r}; known: {', '.join(ATTENTIONS)}")
        at_least(1, num_features=num_features, redraw_interval=redraw_interval)
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        if attention == "performer" and attn_dropout:
            raise ValueError(
                f"attn_dropout {attn_dropout} with Performer attention, which has no weights to drop: set "
                "attn_dropout to 0"
            )
        self.num_heads = num_heads
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        self.out = nn.Linear(hidden_dim, hidden_dim)
        head_dim = hidden_dim // num_heads
        self.features = (
            RandomFeatures(head_dim, num_features, redraw_interval, detach=detach) if attention == "performer" else None
        )
        self.softmax = SoftmaxAttention(num_heads, attn_dropout) if attention == "softmax" else None

    def forward(self, x: Tensor, packing: Packing, first_only: bool = False) -> Tensor:
        """[T, d] -> [T, d].

        Or, with `first_only`, what the first token of each graph receives, [B, d] in the order of `Packing.first`.
        """
        query, tokens = self.project(x, packing, first_only)
        attend = self._softmax if self.features is None else self._performer
        return self.out(attend(query, tokens, packing))

    @accelerated
    def project(self, x: Tensor, packing: Packing, first_only: bool) -> tuple[Tensor | None, Tensor]:
        """None and queries, keys and values [T, 3d].

        With `first_only`, queries of first tokens [B, d] and keys and values of all [T, 2d].
        """
        tokens = self.qkv(x)
        if not first_only:
            return None, tokens
        return tokens[:, : x.size(1)].index_select(0, packing.first), tokens[:, x.size(1) :].contiguous()

    def key_maximum(self, x: Tensor) -> Tensor:
        """The keys' stabiliser of these tokens [T, d], [H, 1, 1] (Performer)."""
        return key_maximum(self._heads(self.project_one(x, 1)), self.features.projection)

    def sums(self, x: Tensor, stabilizer: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
        """What tokens [T, d] add to phi(K)^T V, [H, m, d_h], and to the sum of phi(K), [H, m] (Performer)."""
        phi = self.features(self._heads(self.project_one(x, 1)), False, None, stabilizer, projection)  # [H, T, m]
        return phi.transpose(-1, -2) @ self._heads(self.project_one(x, 2)), phi.sum(-2)

    def read(self, x: Tensor, context: Tensor, total: Tensor, projection: Tensor) -> Tensor:
        """What tokens [T, d] receive from those sums over all tokens, [T, d] (Performer)."""
        phi = self.features(self._heads(self.project_one(x, 0)), True, projection=projection)  # [H, T, m]
        out = (phi @ context) / (phi @ total.unsqueeze(-1))  # [H, T, d_h]
        return self.out(out.transpose(0, 1).flatten(1))

    @accelerated
    def project_one(self, x: Tensor, which: int) -> Tensor:
        """Queries (0), keys (1) or values (2) of tokens, [T, d] -> [T, d]."""
        return self.qkv(x).chunk(3, 1)[which]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.num_heads, -1)).transpose(0, 1)  # [H, T, d_h]

    def _softmax(self, query: Tensor | None, tokens: Tensor, packing: Packing) -> Tensor:
        dtype = tokens.dtype
        # half precision is widened on the CPU: the time there is arithmetic, not memory
        if tokens.device.type == "cpu" and dtype != torch.float64:
            query, tokens = None if query is None else query.float(), tokens.float()
        with torch.autocast(tokens.device.type, enabled=False):
            if tokens.is_cuda and torch.compiler.is_compiling():  # a compiled graph uses no attached form
                rate = self.softmax.dropout.active_rate
                return fused_attention(query, tokens, packing, self.num_heads, rate).to(dtype)
            return self.softmax(query, tokens, packing).to(dtype)

    def _performer(self, query: Tensor | None, tokens: Tensor, packing: Packing) -> Tensor:
        def attend(q: Tensor, k: Tensor, v: Tensor, group: Group, _: int) -> Tensor:
            # deviates: in the implementation padded keys take part in the keys' stabiliser, so that through eps a
            # graph's output depends on the longest graph of its batch; here only a graph's own tokens do
            return performer_attention(q, k, v, self.features, group.mask)

        return by_groups(query, tokens, packing, self.num_heads, attend)
