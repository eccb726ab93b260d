"""PPGT, equations 4 and 5: does the nearest key have the largest score?

Queries and keys are drawn from N(0, 1), as after a norm. The width of a head is 8 on ZINC (64 / 8); others are tried.
The scores are those of the layers of this library: as published, as in the authors' code (<q, k> undivided), and scaled
dot products (equation 2).
"""

from pathlib import Path
from typing import Any

import torch

from gt_models.ppgt import SL2Attention

FORMS = {"as printed": ("sl2", True), "as released": ("sl2", False), "scaled dot product": ("sdp", True)}
WIDTHS, KEYS, DRAWS = (8, 16, 64), (8, 32), 4_000
CASES = list(FORMS)
QUICK = CASES


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts draws for each (width, keys).

    Returns:
        The shares of draws in which the nearest key and the longest key have the largest score.
    """
    attention, scale_queries = FORMS[case]
    found = {}
    for width in WIDTHS:
        layer = SL2Attention(width, 1, attention, scale_queries, 0.0, 1, False)
        for keys in KEYS:
            rng = torch.Generator().manual_seed(0)
            q = torch.randn(DRAWS, 1, width, generator=rng, dtype=torch.float64)
            k = torch.randn(DRAWS, keys, width, generator=rng, dtype=torch.float64)
            squares = k.square().sum(-1)
            chosen = (layer.scale * (q * k).sum(-1) + layer.key_scale * squares).argmax(1)
            nearest = (q - k).square().sum(-1).argmin(1)
            found[f"width {width}, {keys} keys"] = {
                "nearest": (chosen == nearest).double().mean().item(),
                "longest": (chosen == squares.argmax(1)).double().mean().item(),
            }  # fmt: skip
    return found
