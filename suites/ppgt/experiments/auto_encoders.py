"""PPGT, Appendix C.2 and Figure 5: do auto-encoders y = FC(Norm(FC(x))) of points in the plane (equation 11) recover how long a point is?

As printed: magnitudes from 0.5 to 1.5, 5,000 epochs, full batch, AdamW. Unprinted: the number of points (100), the width (2, 8 and 64 are tried), whether the layers have
a bias (both), the learning rate (1e-2). What counts is the error of |y| over the spread of |x|: 0 recovers the magnitude, 1 is as good as a constant.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gt_models.ppgt.norms import make_norm

NORMS, WIDTHS, POINTS, EPOCHS, RATE = ("batch", "rms", "adarms"), (2, 8, 64), 100, 5000, 1e-2
SETTINGS = {
    f"width {width}, {'with' if bias else 'without'} bias": (width, bias) for width in WIDTHS for bias in (True, False)
}
CASES = [f"{norm}, {setting}" for norm in NORMS for setting in SETTINGS]
QUICK: list[str] = []  # 5,000 steps; tests/gt_bench/claims/experiments checks a bound that holds without training


def compute(case: str, data: Path) -> dict[str, Any]:
    """`magnitude`: root mean square error of |y| over the standard deviation of |x|; `loss`: the mean squared error at the end."""
    norm, setting = case.split(", ", 1)
    width, bias = SETTINGS[setting]
    x = points(POINTS)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, width, bias=bias), make_norm(norm, width), nn.Linear(width, 2, bias=bias)
    ).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
    # batch norm by the statistics of this one batch, which is all that it was trained on
    with torch.no_grad():
        return {"magnitude": unexplained(model(x), x), "loss": loss.item()}


def points(count: int) -> torch.Tensor:
    """In the disc of radius 0.5, float64 [count, 2], always the same: angle and length are drawn uniformly."""
    rng = torch.Generator().manual_seed(0)
    angle, length = (
        2 * torch.pi * torch.rand(count, generator=rng, dtype=torch.float64),
        0.5 + torch.rand(count, generator=rng, dtype=torch.float64),
    )
    return length[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def unexplained(y: torch.Tensor, x: torch.Tensor) -> float:
    """Root mean square error of |y| over the standard deviation of |x|."""
    length = x.norm(dim=1)
    return ((y.norm(dim=1) - length).square().mean().sqrt() / length.std(unbiased=False)).item()
