"""NAGphormer (Chen et al., ICLR 2023, https://arxiv.org/abs/2206.04910).

A node is represented by the sequence of its neighbourhoods, which are the tokens of a Transformer.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.packing import Packing
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.layers.transformer import SelfAttention
from gt_models.registry import register_model

# nodes that are computed together without gradients: each is independent, and all of a large graph do not fit
_TOGETHER = 8192


@register_model(
    "nagphormer",
    levels=("node",),
    cost="k n d^2 + k^2 n d for k hops",
    encodings=("hops",),
    paper="Chen et al.: NAGphormer: A Tokenized Graph Transformer for Node Classification in Large Graphs, ICLR 2023. "
    "https://arxiv.org/abs/2206.04910",
)
class NAGphormer(GraphModel):
    """Node [N, out_dim].

    The tokens of a node are the features of the whole graph multiplied by the powers 0 .. K of the adjacency matrix:
    the encoding "hops", the only input (`x` is not read). They pass a Linear, `num_layers` PreLN Transformer layers and
    an LN. Then, with z_k for the token of hop k,

        z = z_0 + sum_k softmax_k([z_0, z_k] w) z_k,  k = 1 .. K

    and Linear, ReLU, Linear. Nodes are independent of each other, so parts of a graph (`batch.parts`) are mini-batches
    of its nodes.

    Args:
        in_dim: width of the node features, which are continuous.
        out_dim: classes.
        level: "node".
        hidden_dim, num_layers, num_heads: width d, which `num_heads` must divide, and which the head halves;
            feed-forward layers are 2 d wide.
        hops: K, at most the `steps` of the encoding.
        laplacian_dim: `eigenvectors` of the encoding.
        dropout: after attention and after the feed-forward layer.
        attn_dropout: on attention weights.

    Raises:
        ValueError: for another level, categorical features, no hop or layer, heads that do not divide the width.
        MissingEncoding: in forward, where the encoding is absent or too narrow.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 512,
        num_layers: int = 1,
        num_heads: int = 8,
        hops: int = 3,
        laplacian_dim: int = 0,
        dropout: float = 0.1,
        attn_dropout: float = 0.1,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"nagphormer cannot predict at level {level!r}; it predicts: node")
        if not isinstance(in_dim, int):
            raise ValueError("nagphormer averages node features over neighbourhoods: it needs continuous ones")
        if min(hops, num_layers) < 1 or hidden_dim < 2:
            raise ValueError(
                f"nagphormer needs a hop, a layer and a width to halve, not {hops}, {num_layers} and {hidden_dim}"
            )
        at_least(1, in_dim=in_dim)
        at_least(0, laplacian_dim=laplacian_dim)
        self.tokens, self.width = hops + 1, in_dim + laplacian_dim
        self.encoder = nn.Linear(self.width, hidden_dim)
        self.layers = nn.ModuleList(
            NAGphormerLayer(hidden_dim, num_heads, dropout, attn_dropout) for _ in range(num_layers)
        )
        self.final_norm, self.readout = nn.LayerNorm(hidden_dim), nn.Linear(2 * hidden_dim, 1)
        self.head_in, self.head_out = nn.Linear(hidden_dim, hidden_dim // 2), nn.Linear(hidden_dim // 2, out_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal(0, 0.02 / sqrt(layers)) matrices, zero biases, norms at one."""
        # unstated: initialisation; the implementation's
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02 / len(self.layers) ** 0.5)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """`z` of each node, [N, d].

        Raises:
            ValueError: the encoding is not of the features that the model was built for.
        """
        hops = batch.encoding("hops", self.tokens * self.width)
        if (whole := batch.encodings["hops"].size(1) if "hops" in batch.encodings else 0) % self.width:
            raise ValueError(
                f"encoding 'hops' has {whole} channels, which are no steps of {self.width}: the node features and "
                "`laplacian_dim` of the model; "
                "make the encoding's `eigenvectors` the same"
            )
        tokens = hops.to(dtype_of(self.encoder)).unflatten(1, (self.tokens, self.width))  # [N, K + 1, F]
        if torch.is_grad_enabled() or len(tokens) <= _TOGETHER:
            return self._read(tokens)
        return torch.cat([self._read(some) for some in tokens.split(_TOGETHER)])

    def _read(self, tokens: Tensor) -> Tensor:
        """[n, K + 1, F] -> [n, d]."""
        n, length = tokens.shape[:2]
        counts = torch.full((n,), length, device=tokens.device)
        packing = Packing.of(counts, n * length, length if needs_static_shapes(counts) else None)
        x = self.encoder(tokens).flatten(0, 1)
        for layer in self.layers:
            x = layer(x, packing)
        x = self.final_norm(x).unflatten(0, (n, length))
        own, others = x[:, :1], x[:, 1:]  # [n, 1, d], [n, K, d]
        weight = self.readout(torch.cat([own.expand_as(others), others], 2)).softmax(1)  # [n, K, 1]
        return own[:, 0] + (weight * others).sum(1)

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        return self.head_out(self.head_in(features).relu())


class NAGphormerLayer(nn.Module):
    """x + attention(LN(x)), then x + feed-forward(LN(x)) with a GELU: [n (K + 1), d] -> the same."""

    def __init__(self, hidden_dim: int, num_heads: int, dropout: float, attn_dropout: float):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.LayerNorm(hidden_dim), nn.LayerNorm(hidden_dim)
        self.attention = SelfAttention(hidden_dim, num_heads, attn_dropout)
        self.ffn_in, self.ffn_out = nn.Linear(hidden_dim, 2 * hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        """[n (K + 1), d] -> the same."""
        x = x + self.dropout(self.attention(self.attn_norm(x), packing))
        return x + self.dropout(self.ffn_out(F.gelu(self.ffn_in(self.ffn_norm(x)))))
