"""The stem of pair encodings with sinusoidal enhancement (PPGT, Sections 3.3 and 3.4, equations 8 to 10)."""

# mypy: disable-error-code="arg-type, operator"

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.layers.accelerated import accelerated
from gt_models.layers.precision import full_precision
from gt_models.ppgt.norms import make_norm


class PreNormFFN(nn.Module):
    """MLP(Norm(x)), the branch of a feed-forward network (equation 7), [rows, dim] -> [rows, dim].

    Args:
        dim: width of x.
        expansion: hidden width as a multiple of `dim`.
        norm: see `make_norm`.
    """

    def __init__(self, dim: int, expansion: int, norm: str):
        super().__init__()
        self.norm = make_norm(norm, dim)
        self.linear1, self.linear2 = nn.Linear(dim, expansion * dim), nn.Linear(expansion * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, dim] -> [rows, dim]."""
        return self.mlp(self.norm(x))

    @accelerated
    def mlp(self, x: Tensor) -> Tensor:
        """[rows, dim] -> [rows, dim]."""
        return self.linear2(F.gelu(self.linear1(x)))


class PairStem(nn.Module):
    """Pair encodings from the raw channels of the pairs (equation 10).

    Norm(FFN(... FFN(FC(e'_ij) + MLP(SPE(p'_ij)))))

    Args:
        in_dim: number of raw channels.
        out_dim: width of the pair encodings.
        mlp_dim: hidden width of the MLP.
        num_ffn: number of feed-forward networks.
        expansion: their hidden width as a multiple of `out_dim`.
        num_frequencies: S of equation 9. 0 for the stem of equation 8 with an MLP.
        norm: see `make_norm`.
    """

    def __init__(
        self, in_dim: int, out_dim: int, mlp_dim: int, num_ffn: int, expansion: int, num_frequencies: int, norm: str
    ):
        super().__init__()
        self.num_frequencies = num_frequencies
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

    @accelerated
    def forward(self, raw: Tensor, edge: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        """Equation 10.

        Args:
            raw: p', [P, in_dim].
            edge: FC(e'), zero for pairs without an edge, [P, out_dim]. None without edge features.
            keep: factors of the branches of the feed-forward networks, for stochastic depth, [P, num_ffn].

        Returns:
            p^0, [P, out_dim].
        """
        p = self.embed(raw, edge)
        for i in range(len(self.blocks)):
            branch = self.branch(i, p)
            p = p + (branch if keep is None else keep[:, i, None] * branch)
        return self.norm(p)

    def embed(self, raw: Tensor, edge: Tensor | None) -> Tensor:
        """Returns FC(e') + MLP(SPE(p')), [P, in_dim] -> [P, out_dim]."""
        p = self.mlp(self.enhance(raw).to(raw.dtype))
        return p if edge is None else p + edge

    @accelerated
    def mlp(self, x: Tensor) -> Tensor:
        """The MLP of equation 10, [P, in_dim (1 + 2 S)] -> [P, out_dim]."""
        return self.linear2(F.gelu(self.linear1(x)))

    @full_precision
    def enhance(self, raw: Tensor) -> Tensor:
        """Equation 9, [P, in_dim] -> [P, in_dim (1 + 2 S)]."""
        blocks = [raw]
        for s in range(self.num_frequencies):
            angle = raw * (2**s * math.pi)
            blocks += [torch.sin(angle), torch.cos(angle)]
        return torch.cat(blocks, 1)  # equation 9

    def branch(self, i: int, p: Tensor) -> Tensor:
        """Returns the branch of feed-forward network `i`, [P, out_dim] -> [P, out_dim]."""
        return self.blocks[i](p)


def stem_init(linear: nn.Linear, a: float) -> None:
    """Initialises weights by Kaiming uniform with slope `a` (Appendix B.2), and biases by zero."""
    nn.init.kaiming_uniform_(linear.weight, a=a)
    # unstated: biases of the stems; zero, as the authors' implementation leaves them
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
