"""FAVOR+ (Choromanski et al. 2021, "Rethinking Attention with Performers").

Attention through positive random features, linear in tokens.

Softmax attention is softmax(q k^T / sqrt(d)) v; its kernel exp(q k^T / sqrt(d)) equals E[phi(q) phi(k)^T] over Gaussian
projections, so attention becomes phi(q) (phi(k)^T v) / (phi(q) phi(k)^T 1) without an L x L matrix. Orthogonal
projections lower the variance.
"""

# mypy: disable-error-code="arg-type, assignment, operator"

import contextlib
import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class RandomFeatures(nn.Module):
    """Holds one projection and maps queries and keys through it.

    The projection and the count of training forwards since it was drawn are buffers: a resumed run continues with the
    same features.

    Args:
        head_dim: width d of queries and keys.
        num_features: rows m of the projection; None is int(d ln d).
        redraw_interval: `step()` draws a new projection before every `redraw_interval` training forwards; None: never.
        kernel: "softmax" (`softmax_kernel`) or "relu" (`relu_kernel`).
        eps: the constant added to each feature; None is the kernel's own (1e-4 softmax, 1e-3 relu).
        detach: whether no gradient flows through the stabiliser, see `softmax_kernel`.
    """

    projection: Tensor

    def __init__(
        self,
        head_dim: int,
        num_features: int | None = None,
        redraw_interval: int | None = 1000,
        kernel: str = "softmax",
        eps: float | None = None,
        detach: bool = False,
    ):
        super().__init__()
        if kernel not in ("softmax", "relu"):
            raise ValueError(f"unknown kernel {kernel!r}; known: softmax, relu")
        if redraw_interval is not None and redraw_interval < 1:
            raise ValueError(
                f"redraw_interval {redraw_interval}: give a positive number of training forwards, or None for never"
            )
        self.head_dim, self.redraw_interval, self.kernel, self.detach = head_dim, redraw_interval, kernel, detach
        self.num_features = num_features_default(head_dim) if num_features is None else num_features
        self.eps = {"softmax": 1e-4, "relu": 1e-3}[kernel] if eps is None else eps
        self.register_buffer("projection", torch.empty(self.num_features, head_dim))
        self.register_buffer("forwards", torch.zeros((), dtype=torch.long))
        self._forwards: int | None = 0  # the buffer's value where it is known without waiting for the device
        self.register_load_state_dict_post_hook(_forget_forwards)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a projection and starts the count again."""
        self.redraw()
        self.forwards.zero_()
        self._forwards = 0

    @torch.no_grad()
    def redraw(self) -> None:
        """Draw a new projection from torch's global CPU generator: a seed means the same on every device."""
        if self.projection.is_meta:
            return
        drawn = gaussian_orthogonal_matrix(self.num_features, self.head_dim, dtype=self.projection.dtype)
        # a new tensor: the graph of an earlier forward keeps the features that it used
        self.projection = drawn.to(self.projection.device)

    def step(self) -> None:
        """Counts a training forward and redraws when it is due; no effect in evaluation.

        Compiled, it draws each time and keeps what is due.
        """
        if not self.training or self.redraw_interval is None:
            return
        if torch.compiler.is_compiling():
            self._step_without_branches(self.redraw_interval)
            return
        with _outside_of_transforms(self.forwards):
            if self._forwards is None:
                self._forwards = int(self.forwards)
            if self._forwards == self.redraw_interval:
                self.redraw()
                self.forwards.zero_()
                self._forwards = 0
            self._forwards += 1
            self.forwards += 1

    @torch.no_grad()
    def _step_without_branches(self, interval: int) -> None:
        due = self.forwards == interval
        drawn = gaussian_orthogonal_matrix(self.num_features, self.head_dim, dtype=self.projection.dtype).to(
            self.projection.device
        )
        self.projection.copy_(torch.where(due, drawn, self.projection))
        self.forwards.copy_(torch.where(due, 0, self.forwards) + 1)
        self._forwards = None

    def forward(
        self,
        u: Tensor,
        is_query: bool,
        mask: Tensor | None = None,
        stabilizer: Tensor | None = None,
        projection: Tensor | None = None,
    ) -> Tensor:
        """`u` [..., L, d] -> [..., L, m]; `mask` [..., L], True at real tokens.

        `stabilizer`: see `softmax_kernel`. `projection`: that of the forward pass, for what is computed again
        in the backward pass; None: the current one.
        """
        projection = self.projection if projection is None else projection
        if self.kernel == "relu":
            return relu_kernel(u, projection, self.eps, mask=mask)
        return softmax_kernel(u, projection, is_query, self.eps, mask=mask, stabilizer=stabilizer, detach=self.detach)


def softmax_kernel(
    u: Tensor,
    projection: Tensor,
    is_query: bool,
    eps: float = 1e-4,
    *,
    mask: Tensor | None = None,
    stabilizer: Tensor | None = None,
    detach: bool = False,
) -> Tensor:
    """Positive features of the softmax kernel (FAVOR+, Lemma 1).

        phi(u) = m^-1/2 (exp(c P u - c^2 |u|^2 / 2 - s) + eps),  c = d^-1/4.

    The stabiliser s cancels in attention, but for eps: for queries the maximum of c P u over features, one per token;
    for keys one maximum over tokens and features.

    Args:
        u: queries or keys [..., L, d], not scaled by d^-1/2.
        projection: [m, d].
        is_query: which stabiliser.
        eps: added to every feature, so that no denominator is zero.
        mask: bool, broadcastable to [..., L]; False tokens get zero features and take no part in the keys' maximum.
        stabilizer: the stabiliser itself where it is known already, broadcastable to [..., L, m].
        detach: whether no gradient flows through the stabiliser. It cancels but for eps, so gradients are those of the
            output except for terms with eps. Each model's docstring says what its authors do.

    Returns:
        features [..., L, m].
    """
    c = u.size(-1) ** -0.25
    projected = (u * c) @ projection.to(u.dtype).T  # [..., L, m]
    half_norm = u.square().sum(-1, keepdim=True) * (0.5 * c * c)  # [..., L, 1]
    if stabilizer is None:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            stabilizer = projected.amax(-1, keepdim=True) if is_query else _maximum(projected, mask)
    phi = (projected - (half_norm + stabilizer)).exp() + eps
    phi = phi * projection.size(0) ** -0.5  # [..., L, m]
    return phi if mask is None else phi.masked_fill(~mask[..., None], 0.0)


def key_maximum(u: Tensor, projection: Tensor, mask: Tensor | None = None) -> Tensor:
    """The keys' stabiliser: the maximum of c P u over tokens and features, [..., 1, 1]. 0 if no token is real."""
    return _maximum((u * u.size(-1) ** -0.25) @ projection.to(u.dtype).T, mask)


def relu_kernel(u: Tensor, projection: Tensor, eps: float = 1e-3, *, mask: Tensor | None = None) -> Tensor:
    """Features of the generalized kernel, relu(c P u) + eps with c = d^-1/4: u [..., L, d] -> [..., L, m].

    Zero where `mask` is False.
    """
    phi = ((u * u.size(-1) ** -0.25) @ projection.to(u.dtype).T).relu() + eps
    return phi if mask is None else phi.masked_fill(~mask[..., None], 0.0)


def _maximum(projected: Tensor, mask: Tensor | None) -> Tensor:
    if not projected.size(-2):  # torch has no maximum of no keys
        return projected.sum((-2, -1), keepdim=True)
    if mask is None:
        return projected.amax((-2, -1), keepdim=True)
    stabilizer = projected.masked_fill(~mask[..., None], -math.inf).amax((-2, -1), keepdim=True)
    return stabilizer.masked_fill(stabilizer == -math.inf, 0.0)


def linear_attention(q_features: Tensor, k_features: Tensor, v: Tensor) -> Tensor:
    """phi(q) (phi(k)^T v) / (phi(q) sum phi(k)).

    [..., L, m], [..., S, m], [..., S, d_v] -> [..., L, d_v]; never an L x S matrix.

    A key with zero features has no weight. If all keys have zero features, the result is zero.
    """
    context = k_features.transpose(-1, -2) @ v  # [..., m, d_v]
    total = q_features @ k_features.sum(-2).unsqueeze(-1)  # [..., L, 1]
    return (q_features @ context) / total.masked_fill(total == 0, 1.0)


def performer_attention(
    q: Tensor, k: Tensor, v: Tensor, features: RandomFeatures, mask: Tensor | None = None, chunk: int = 16384
) -> Tensor:
    """Kernel attention [..., L, d], [..., L, d], [..., L, d_v] -> [..., L, d_v], in float32 at least.

    Beyond `chunk` tokens the features, m numbers per token and head, are computed `chunk` tokens at a time and again in
    the backward pass.

    Args:
        q: queries [..., L, d].
        k: keys [..., L, d].
        v: values [..., L, d_v].
        features: the random features.
        mask: bool, broadcastable to [..., 1, L]; False keys take no part. Queries there give numbers of no meaning.
        chunk: largest number of tokens at a time.
    """
    dtype = v.dtype
    mask = None if mask is None else mask.squeeze(-2)  # [..., L]
    with torch.autocast(q.device.type, enabled=False):
        if dtype in (torch.float16, torch.bfloat16):  # exp of 8 bits of mantissa is no feature
            q, k, v = q.float(), k.float(), v.float()
        if k.size(-2) > chunk:
            return _performer_in_chunks(q, k, v, features, mask, chunk).to(dtype)
        return linear_attention(features(q, True), features(k, False, mask), v).to(dtype)


def _performer_in_chunks(
    q: Tensor, k: Tensor, v: Tensor, features: RandomFeatures, mask: Tensor | None, chunk: int
) -> Tensor:
    places = [slice(i, min(i + chunk, k.size(-2))) for i in range(0, k.size(-2), chunk)]
    masks = [None if mask is None else mask[..., s] for s in places]
    stabilizer, projection = None, features.projection
    if features.kernel == "softmax":  # the maximum over all keys, before any of their features
        with torch.set_grad_enabled(torch.is_grad_enabled() and not features.detach):
            seen = [
                checkpoint(key_maximum, k[..., s, :], projection, m, use_reentrant=False)
                for s, m in zip(places, masks, strict=True)
            ]
            stabilizer = torch.stack(seen).amax(0)  # [..., 1, 1]

    def keys(k_part: Tensor, v_part: Tensor, m: Tensor | None) -> tuple[Tensor, Tensor]:
        phi = features(k_part, False, m, stabilizer, projection)  # [..., C, m]
        return phi.transpose(-1, -2) @ v_part, phi.sum(-2)  # [..., m, d_v], [..., m]

    def queries(q_part: Tensor, context: Tensor, total: Tensor) -> Tensor:
        phi = features(q_part, True, projection=projection)  # [..., C, m]
        below = phi @ total.unsqueeze(-1)  # [..., C, 1]
        return (phi @ context) / below.masked_fill(below == 0, 1.0)

    sums = [
        checkpoint(keys, k[..., s, :], v[..., s, :], m, use_reentrant=False) for s, m in zip(places, masks, strict=True)
    ]
    context, total = sum(s[0] for s in sums), sum(s[1] for s in sums)
    return torch.cat([checkpoint(queries, q[..., s, :], context, total, use_reentrant=False) for s in places], -2)


def gaussian_orthogonal_matrix(num_rows: int, num_columns: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Orthogonal Gaussian rows (FAVOR+, Section 2.4).

    Blocks of at most `num_columns` orthogonal rows, each as long as a Gaussian vector.

    Returns:
        [num_rows, num_columns]; every row alone is distributed as N(0, I).
    """
    if num_rows < 1 or num_columns < 1:
        raise ValueError(f"a projection of {num_rows} x {num_columns}: give at least one row and one column")
    dtype = dtype or torch.get_default_dtype()
    wide = torch.promote_types(dtype, torch.float32)  # torch decomposes no half precision
    blocks = -(-num_rows // num_columns)
    q, r = torch.linalg.qr(torch.randn(blocks, num_columns, num_columns, dtype=wide))
    # deviates: HOT's kernel (hot_pytorch/models/common/kernel.py) keeps the raw Householder Q, as performer-pytorch
    # does by default, from which TokenGT's kernel comes too. The diagonal of that Q has a mean (-0.20 to -0.13 at d =
    # 16, its last entry +0.13), the rest has none; no effect seen on gps. Here the sign makes q uniform over orthogonal
    # matrices
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    directions = q.transpose(-1, -2).reshape(-1, num_columns)[:num_rows]  # [num_rows, num_columns]
    norms = torch.randn(num_rows, num_columns, dtype=wide).norm(dim=1, keepdim=True)  # chi, num_columns deg. of freedom
    return (directions * norms).to(dtype)


def num_features_default(head_dim: int) -> int:
    """int(d ln d), and at least one: the number of random features that FAVOR+ recommends."""
    return max(1, int(head_dim * math.log(head_dim)))


def _outside_of_transforms(state: Tensor) -> contextlib.AbstractContextManager:
    """Update the state of a module as if no transform of torch.func was active, unless the transform maps over it.

    A transform does not allow to change a tensor that it does not have as an argument, and a tensor made inside of it
    is of no use after it.
    """
    if torch._C._functorch.is_functorch_wrapped_tensor(state):
        return contextlib.nullcontext()
    return torch._C._DisableFuncTorch()


def _forget_forwards(module: RandomFeatures, incompatible_keys) -> None:
    module._forwards = None


def load_softmax_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load the weights of the same model with softmax attention into this Performer `model`, to fine-tune it.

    TokenGT, appendix on PCQM4Mv2.

    Random features keep what the model drew; everything else must be there, and nothing more.

    Raises:
        ValueError: where `model` has softmax attention, or names or shapes differ.
    """
    own = model.state_dict()
    features = [name for name, module in model.named_modules() if isinstance(module, RandomFeatures)]
    drawn = {f"{name}.{buffer}" for name in features for buffer in ("projection", "forwards")}
    if not drawn:
        raise ValueError(
            "this model has softmax attention: build it with attention='performer', or use load_state_dict"
        )
    missing, unknown = sorted(own.keys() - drawn - state.keys()), sorted(state.keys() - (own.keys() - drawn))
    shared = own.keys() & state.keys()
    shapes = [
        f"{k} {tuple(state[k].shape)} for {tuple(own[k].shape)}" for k in shared if state[k].shape != own[k].shape
    ]
    if missing or unknown or shapes:
        raise ValueError(
            f"not the weights of this model with softmax attention: missing {missing}, unknown {unknown}, shapes "
            f"{shapes}"
        )
    model.load_state_dict({**state, **{name: own[name] for name in drawn}})
