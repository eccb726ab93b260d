"""PPGT, Appendix C.2 and Figure 5: do auto-encoders y = FC(Norm(FC(x))) recover the magnitude of points?

As published: points in the plane with magnitudes from 0.5 to 1.5, equation 11, 5,000 epochs, full batch, AdamW. Not
published: the number of points (100), the width (2, 8 and 64 are tried), whether the layers have a bias (both are
tried), the learning rate (1e-2). The result is the error of |y| divided by the standard deviation of |x|: 0 recovers
the magnitude, 1 is as good as a constant.
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
QUICK: list[str] = []  # 5,000 steps each; the tests check a bound that holds without training


def compute(case: str, data: Path) -> dict[str, Any]:
    """Trains an auto-encoder.

    Returns:
        `magnitude`: root mean square error of |y| divided by the standard deviation of |x|. `loss`: final mean squared
            error.
    """
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
    # batch norm uses the statistics of this batch, the only one that it was trained on
    with torch.no_grad():
        return {"magnitude": unexplained(model(x), x), "loss": loss.item()}


def points(count: int) -> torch.Tensor:
    """Returns points at magnitudes from 0.5 to 1.5, float64 [count, 2], always the same.

    Angle and magnitude are uniformly distributed.
    """
    rng = torch.Generator().manual_seed(0)
    angle, length = (
        2 * torch.pi * torch.rand(count, generator=rng, dtype=torch.float64),
        0.5 + torch.rand(count, generator=rng, dtype=torch.float64),
    )
    return length[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def unexplained(y: torch.Tensor, x: torch.Tensor) -> float:
    """Returns the root mean square error of |y| divided by the standard deviation of |x|."""
    length = x.norm(dim=1)
    return ((y.norm(dim=1) - length).square().mean().sqrt() / length.std(unbiased=False)).item()
