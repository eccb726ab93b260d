"""NodeFormer (Wu et al., NeurIPS 2022, https://arxiv.org/abs/2306.08385).

Kernelised attention among all nodes, sampled with Gumbel noise, and a loss by which it puts weight on the edges that
are there.
"""

# mypy: disable-error-code="arg-type, assignment"

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.added_loss import add_loss
from gt_models.layers.cached import outside_inference_mode
from gt_models.layers.csr import Edges, csr_edges, csr_of
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.performer import RandomFeatures, linear_attention
from gt_models.registry import register_model

VERSION = 2  # since gradients flow through the stabiliser of the random features


@register_model(
    "nodeformer",
    levels=("node",),
    cost="n d^2 + m d",
    paper="Wu et al.: NodeFormer: A Scalable Graph Structure Learning Transformer for Node Classification, NeurIPS "
    "2022. https://arxiv.org/abs/2306.08385",
    sparse_x=True,
)
class NodeFormer(GraphModel):
    """Node [N, out_dim]: Linear, LN, ELU, dropout, `num_layers` x [attention, + input, LN, (ELU,) dropout], Linear.

    Attention of node u in a
    head, with random features phi of queries and keys that are divided by sqrt(t) for the temperature t:

        z_u = mean_k sum_v w_uvk v_v / sum_v w_uvk + sum_i sigma(b_i) (A_i v)_u
        w_uvk = e^(g_vk / t) phi(q_u) phi(k_v)

    with g from the Gumbel distribution, drawn `samples` times in training; without noise in evaluation. A_i are the
    normalised adjacency with a self-loop each and the one of its pairs at most two steps apart. Heads are as wide as z,
    and a Linear joins them.

    In training the gradient of the loss has a further term (`gt_models.layers.added_loss`), the mean over layers of
    -lambda mean log(p_uv) / d_u over edges from v to u and heads; p are the weights of attention without noise, d_u
    counts the edges to u.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        hidden_dim: width of z and of each head.
        num_layers, num_heads: layers, and heads in each.
        num_features: random features of a head (M).
        redraw_interval: training steps after which they are drawn again; None: never.
        samples: of the noise (K); 0: no noise.
        temperature: t.
        bias_order: 0, 1 or 2 matrices A_i.
        bias_transform: sigma, "sigmoid" or "identity".
        edge_loss: lambda.
        activation: an ELU after each layer's norm.
        all_layers: the last Linear reads the input of the first layer and what each layer gives, side by side.
        dropout: after the first Linear and each layer.

    Raises:
        ValueError: another level, an order above 2, an unknown transform, no layer, head, feature or temperature.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        num_features: int = 30,
        redraw_interval: int | None = 1,
        samples: int = 10,
        temperature: float = 0.25,
        bias_order: Literal[0, 1, 2] = 1,
        bias_transform: Literal["sigmoid", "identity"] = "sigmoid",
        edge_loss: float = 0.1,
        activation: bool = False,
        all_layers: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"nodeformer cannot predict at level {level!r}; it predicts: node")
        if bias_order not in (0, 1, 2) or bias_transform not in ("sigmoid", "identity"):
            raise ValueError(
                f"bias_order {bias_order} and bias_transform {bias_transform!r}: known are 0, 1, 2; sigmoid, identity"
            )
        if min(num_layers, num_heads, num_features) < 1 or samples < 0 or temperature <= 0 or edge_loss < 0:
            raise ValueError(
                f"nodeformer needs layers, heads, features and a temperature, not {num_layers}, {num_heads}, "
                f"{num_features}, {temperature}; "
                f"and no negative samples ({samples}) or edge_loss ({edge_loss})"
            )
        self.edge_loss, self.bias_order, self.activation, self.all_layers = (
            edge_loss,
            bias_order,
            activation,
            all_layers,
        )
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_dim) for _ in range(num_layers + 1))
        self.attentions = nn.ModuleList(
            NodeFormerAttention(
                hidden_dim, num_heads, num_features, redraw_interval, samples, temperature, bias_order, bias_transform
            )
            for _ in range(num_layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_dim * (num_layers + 1 if all_layers else 1), out_dim)

    def reset_parameters(self) -> None:
        for module in [self.encoder, *self.norms, *self.attentions, self.head]:
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """What the head reads of the nodes: [N, d], or with `all_layers` [N, (1 + num_layers) d]."""
        near = csr_edges(batch)
        adjacencies = (
            [near, two_steps(batch, near)][: self.bias_order] if self.bias_order > 1 else [near][: self.bias_order]
        )
        with_loss = self.training and torch.is_grad_enabled() and self.edge_loss > 0
        states, logs = [self.dropout(F.elu(self.norms[0](self.encoder(batch.x))))], []  # [N, d]
        for attention, norm in zip(self.attentions, self.norms[1:], strict=True):
            update, log = attention(states[-1], batch, near, adjacencies, with_loss)
            x = norm(update + states[-1])
            states.append(self.dropout(F.elu(x) if self.activation else x))
            logs.append(log)
        features = torch.cat(states, 1) if self.all_layers else states[-1]
        return add_loss(features, -self.edge_loss * torch.stack(logs).mean()) if with_loss else features

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] or [N, (1 + num_layers) d] -> [N, out_dim]."""
        return self.head(features)


class NodeFormerAttention(nn.Module):
    """z [N, d] -> (what attention and the adjacencies give [N, d], mean of log(p_uv) / d_u over edges and heads).

    See `NodeFormer`.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_heads: int,
        num_features: int,
        redraw_interval: int | None,
        samples: int,
        temperature: float,
        bias_order: int,
        bias_transform: str,
    ):
        super().__init__()
        self.num_heads, self.samples, self.temperature, self.bias_transform = (
            num_heads,
            samples,
            temperature,
            bias_transform,
        )
        self.query, self.key, self.value = (nn.Linear(hidden_dim, hidden_dim * num_heads) for _ in range(3))
        self.out = nn.Linear(hidden_dim * num_heads, hidden_dim)
        # deviates: the implementation draws features again in evaluation too, with a seed from the sum of the queries;
        # here the last ones stay
        self.features = RandomFeatures(hidden_dim, num_features, redraw_interval, eps=1e-6)
        self.counts_forwards = True
        self.bias = nn.Parameter(torch.empty(bias_order, num_heads)) if bias_order else None
        self._reset_bias()

    def reset_parameters(self) -> None:
        for module in (self.query, self.key, self.value, self.out, self.features):
            module.reset_parameters()
        self._reset_bias()

    def _reset_bias(self) -> None:
        if self.bias is not None:
            nn.init.constant_(self.bias, 0.1 if self.bias_transform == "sigmoid" else 1.0)

    def forward(
        self, z: Tensor, batch: GraphBatch, near: Edges, adjacencies: list[Edges], with_log: bool
    ) -> tuple[Tensor, Tensor]:
        """`near`: the edges with self-loops.

        `adjacencies`: A_i; `with_log`: whether the second number is wanted (else it is 0).
        """
        self.features.step()
        dtype = torch.promote_types(z.dtype, torch.float32)  # exp of 8 bits of mantissa is no feature
        query, key, value = (part(z).to(dtype) for part in (self.query, self.key, self.value))
        with torch.autocast(z.device.type, enabled=False):
            mask, root = batch.node_mask[:, None], self.temperature**0.5  # [B, 1, n]
            q, k, v = (self._heads(t, batch) for t in (query, key, value))  # [B, H, n, d]
            q, k = self.features(q / root, True), self.features(k / root, False, mask)  # [B, H, n, M]
            received = batch.from_dense(self._attend(q, k, v, mask).transpose(1, 2))  # [N, H, d]
            for i, edges in enumerate(adjacencies):
                strength = self.bias[i].sigmoid() if self.bias_transform == "sigmoid" else self.bias[i]  # type: ignore[index]
                received = received + strength.to(dtype)[:, None] * normalised_sum(value, edges).unflatten(
                    1, (self.num_heads, -1)
                )
            log = self._log_weights(q, k, batch, near) if with_log else value.new_zeros(())
        return self.out(received.flatten(1).to(z.dtype)), log

    def _heads(self, t: Tensor, batch: GraphBatch) -> Tensor:
        return batch.to_dense(t).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """[B, H, n, d]; padding has no features of keys."""
        if not (self.training and self.samples) or not v.numel():
            return linear_attention(q, k, v)
        out = torch.zeros_like(v)
        for _ in range(self.samples):
            noise = -torch.empty_like(k[..., 0]).exponential_().log() / self.temperature  # [B, H, n]
            noise = noise - noise.masked_fill(~mask, -torch.inf).amax(2, keepdim=True)  # cancels
            out = out + linear_attention(q, k * noise.clamp(max=0).exp()[..., None], v)
        return out / self.samples

    def _log_weights(self, q: Tensor, k: Tensor, batch: GraphBatch, near: Edges) -> Tensor:
        """The mean of log(p_uv) / d_u over edges from v to u and heads."""
        below = batch.from_dense((q @ k.sum(2).unsqueeze(3)).transpose(1, 2)).squeeze(2)  # [N, H]
        q, k = (batch.from_dense(t.transpose(1, 2)) for t in (q, k))  # [N, H, M]
        ptr, source, target = near.csr[0], near.csr[1], near.target
        log = (q[target] * k[source]).sum(2).log() - below[target].log()  # [E + N, H]
        real = torch.arange(len(source), device=ptr.device) < ptr[-1]  # beyond are edges to the node that is none
        share = real / near.in_degree[target].clamp(min=1)
        return (log * share.to(log.dtype)[:, None]).sum() / (ptr[-1] * self.num_heads)


def normalised_sum(x: Tensor, edges: Edges) -> Tensor:
    """`sum` over edges from j to i of x_j / sqrt(d_in(i) d_out(j)), [N, C] -> [N, C]; every node has a self-loop."""
    arriving, leaving = edges.in_degree.to(x.dtype).rsqrt(), edges.out_degree.to(x.dtype).rsqrt()
    return neighbour_sum(x, arriving[edges.target] * leaving[edges.csr[1]], *edges.csr)


def two_steps(batch: GraphBatch, near: Edges) -> Edges:
    """The pairs of nodes that a path of two of `near` joins, each once.

    Cached on the batch while `near` is the same.
    """
    known, result = batch.__dict__.get("_two_steps", (None, None))
    if known is not near:
        result = outside_inference_mode(_two_steps, near, batch.num_nodes)
        batch.__dict__["_two_steps"] = (near, result)
    return result


def _two_steps(near: Edges, num_nodes: int) -> Edges:
    from scipy import sparse

    ptr, source = (t.cpu().numpy() for t in near.csr[:2])
    one = sparse.csr_array((np.ones(len(source), np.float32), source, ptr), shape=(num_nodes, num_nodes))
    two = (one @ one).tocoo()
    target, source = (torch.from_numpy(ends).long().to(near.target.device) for ends in (two.row, two.col))
    edges = csr_of(source, target, num_nodes)
    row = torch.repeat_interleave(torch.arange(num_nodes, device=target.device), edges[0].long().diff())
    return Edges(edges, row, edges[0].long().diff(), edges[2].long().diff())
