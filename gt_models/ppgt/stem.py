"""The stem of pair encodings with sinusoidal enhancement (PPGT, Sections 3.3 and 3.4, Eq. 8 to 10)."""

# mypy: disable-error-code="arg-type, operator, union-attr"

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gt_models.kernels.gelu_mlp import feed_forward
from gt_models.kernels.sinusoids import sinusoids
from gt_models.ppgt.norms import make_norm

CHUNK = 2048  # pairs at a time: what they need fits into the cache
KEPT = 2**15  # pairs of which all that backward needs is kept, some 5 KiB each


class PreNormFFN(nn.Module):
    """x + W2 gelu(W1 norm(x)) (Eq. 7, right), [rows, dim] -> [rows, dim]."""

    def __init__(self, dim: int, expansion: int, norm: str):
        super().__init__()
        self.norm = make_norm(norm, dim)
        self.linear1 = nn.Linear(dim, expansion * dim)
        self.linear2 = nn.Linear(expansion * dim, dim)

    def branch(self, x: Tensor) -> Tensor:
        """W2 gelu(W1 norm(x)), [rows, dim] -> [rows, dim]."""
        return feed_forward(self.norm(x), self.linear1, self.linear2)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, dim] -> [rows, dim]."""
        return x + self.branch(x)


class PairStem(nn.Module):
    """Raw pair channels [P, in_dim] (+ what edges carry, [P, out_dim]) -> pair encodings [P, out_dim] (Eq. 10).

    The stem is by far the largest tensor work of the model: P = sum n^2 rows, where the backbone has sum n. Its rows do not know of each
    other, so it runs in chunks that stay in cache. Of many pairs it keeps in training only what went in; backward forms the rest again.

    Args:
        num_frequencies: S of Eq. 9; 0 leaves the sinusoids out.
        mlp_dim: hidden width of the MLP over the enhanced channels.

    Attributes:
        chunk: rows at a time on a CPU; None computes and keeps all at once, as batch norm needs it.
    """

    def __init__(
        self, in_dim: int, out_dim: int, mlp_dim: int, num_ffn: int, expansion: int, num_frequencies: int, norm: str
    ):
        super().__init__()
        self.num_frequencies, self.chunk = num_frequencies, None if norm == "batch" else CHUNK
        self.linear1 = nn.Linear(in_dim * (1 + 2 * num_frequencies), mlp_dim)
        self.linear2 = nn.Linear(mlp_dim, out_dim)
        self.blocks = nn.ModuleList([PreNormFFN(out_dim, expansion, norm) for _ in range(num_ffn)])
        self.norm = make_norm(norm, out_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Kaiming uniform (Appendix B.2)."""
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        for hidden, output in [(self.linear1, self.linear2), *((b.linear1, b.linear2) for b in self.blocks)]:
            stem_init(hidden, 0.0)
            stem_init(output, 1.0)

    def rows(self, raw: Tensor, edge: Tensor | None, keep: Tensor | None) -> Tensor:
        """The stem on some of the rows; `keep` [P, FFN blocks] scales the branches of the blocks (stochastic depth)."""
        p = self.embed(raw, edge)
        for i in range(len(self.blocks)):
            branch = self.branch(i, p)
            p = p + (branch if keep is None else keep[:, i : i + 1] * branch)
        return self.norm(p)

    def embed(self, raw: Tensor, edge: Tensor | None) -> Tensor:
        """Eqs. 8 and 9: an MLP on the enhanced channels, and what edges carry."""
        p = feed_forward(sinusoids(raw, self.num_frequencies), self.linear1, self.linear2)
        return p if edge is None else p + edge

    def branch(self, i: int, p: Tensor) -> Tensor:
        """What FFN block `i` adds to rows p, [rows, out_dim]."""
        return self.blocks[i].branch(p)

    def forward(self, raw: Tensor, edge: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """`raw` [P, in_dim], `edge` [P, out_dim] or None, `keep` [P, FFN blocks] or None (see `rows`) -> [P, out_dim]."""
        if self.chunk is None or raw.is_cuda or raw.size(0) <= self.chunk or torch.compiler.is_compiling():
            return self.rows(raw, edge, keep)
        if raw.size(0) <= KEPT or not torch.is_grad_enabled():
            return torch.cat([self.rows(*part) for part in _chunks((raw, edge, keep), self.chunk)])
        return _InChunks.apply(self, raw, edge, keep, *self.parameters())


class _InChunks(torch.autograd.Function):
    """`PairStem.rows` chunk by chunk; keeps its inputs alone and runs each chunk again, with its backward, while it is in cache.

    (What torch.utils.checkpoint does for each chunk, without its bookkeeping for each tensor, and with one gradient buffer.)
    """

    @staticmethod
    def forward(
        ctx, stem: PairStem, raw: Tensor, edge: Tensor | None, keep: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        ctx.stem, ctx.autocast = stem, (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
        ctx.save_for_backward(raw, edge, keep, *parameters)
        return torch.cat([stem.rows(*part) for part in _chunks((raw, edge, keep), stem.chunk)])

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor):
        raw, edge, keep, *parameters = ctx.saved_tensors
        trained = [p for p in parameters if p.requires_grad]
        totals = [torch.zeros_like(p) for p in trained]
        gradients = [
            torch.empty_like(t) if needed else None for t, needed in zip((raw, edge, keep), ctx.needs_input_grad[1:4])
        ]
        enabled, dtype = ctx.autocast
        for *chunk, dpart, place, edge_place, keep_place in _chunks((raw, edge, keep, dy, *gradients), ctx.stem.chunk):
            places = [place, edge_place, keep_place]
            with torch.enable_grad(), torch.autocast("cpu", dtype=dtype, enabled=enabled):
                part = [
                    None if t is None else t.detach().requires_grad_(to is not None)
                    for t, to in zip(chunk, places, strict=True)
                ]
                wanted = [*trained, *(t for t, to in zip(part, places, strict=True) if to is not None)]
                grads = torch.autograd.grad(ctx.stem.rows(*part), wanted, dpart)
            for to, gradient in zip((to for to in places if to is not None), grads[len(totals) :], strict=True):
                to.copy_(gradient)
            torch._foreach_add_(totals, list(grads[: len(totals)]))
        total = iter(totals)
        return None, *gradients, *[next(total) if p.requires_grad else None for p in parameters]


def _chunks(tensors: tuple[Tensor | None, ...], size: int) -> Iterator[list[Tensor | None]]:
    count = -(-tensors[0].size(0) // size)
    yield from map(list, zip(*([None] * count if t is None else t.split(size) for t in tensors), strict=True))


def stem_init(linear: nn.Linear, a: float) -> None:
    """Kaiming uniform with slope `a` (Appendix B.2), zero bias."""
    nn.init.kaiming_uniform_(linear.weight, a=a)
    # unstated: biases of the stems; zero, as the authors' implementation leaves them
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
