"""TokenGT, figures of attention maps (Section 5.1 and appendix): does each head match its equivariant basis tensor?

The heads of these cells are trained towards the 15 basis tensors. The experiment uses the stored weights of a cell's
best seed, on GRAPHS test graphs, without dropout. The 15 tensors have no common entry, so that a map without its [null]
column has a cosine with each. For each head:

    nearest   the tensor with the largest cosine
    cosine    with its own tensor, rows divided by their sums, over all entries of all graphs
    share     share of attention on the entries of the tensor, over rows that have some. `uniform` is the share of a map
        that attends to all tokens equally

Not published: the graphs, and which of several runs. Orthogonal random features are drawn once, with a fixed seed. The
stand-in is the embedded suite's cell, of one eighth of the width, with ORF on sparse graphs. It does not decide any
claim.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gt_bench.api.trained import best_run, experiment
from gt_models.layers.equivariant_basis import bell

CELLS = {
    f"{tokens}, {name}": f"tokengt/ba-equivariant-basis-{tokens}/tokengt-attention-{identifiers}-type"
    for tokens in ("sparse", "dense")
    for name, identifiers in (("ORF", "orf"), ("Lap", "lap"))
}
STAND_IN = "stand-in"
CELLS[STAND_IN] = "embedded/basis-small/tokengt-attention"
CASES = list(CELLS)
QUICK: list[str] = []
NEEDS = ("ba-equivariant-basis-sparse", "ba-equivariant-basis-dense", "basis-small")
OPEN = True
ROUNDING = ("run",)
# the last digits differ between machines: identifiers are drawn by a QR decomposition, and runs round differently
TOLERANCE = 1e-3
GRAPHS, BATCH = 64, 4


def compute(case: str, data: Path) -> dict[str, Any]:
    """Compares the attention maps of a trained run with the basis tensors.

    Returns:
        `nearest`, `cosine`, `share` and `uniform` of the 15 heads, the number of `graphs`, and the digest of the `run`.

    Raises:
        RunNotFound: the data or the run is missing.
    """
    run = experiment(CELLS[case], data)
    model: Any
    record, model = best_run(run, CELLS[case])
    loader = run.loader(record.run.seed)
    graphs = loader.ids["test"][:GRAPHS]
    torch.manual_seed(0)
    sums = Sums()
    with torch.no_grad():
        for some in graphs.split(BATCH):
            batch = loader.load(some).to("cpu", torch.float64)
            sums.add(model(batch), model.targets(batch))
    return sums.summary() | {"graphs": len(graphs), "run": record.digest}


class Sums:
    """Sums over graphs."""

    def __init__(self) -> None:
        heads = bell(4)
        self.products = torch.zeros(heads, heads, dtype=torch.float64)  # of maps with tensors
        self.squares = torch.zeros(2, heads, dtype=torch.float64)  # of maps and of tensors
        # attention on the tensor's entries, uniform attention on them, and rows with entries
        self.shares = torch.zeros(3, heads, dtype=torch.float64)

    def add(self, attention: Tensor, targets: Tensor) -> None:
        """Adds graphs.

        Args:
            attention: attention maps, [B, 15, T, 1 + T]. Column 0 is [null]; rows of padding are zero.
            targets: their targets, of the same shape.
        """
        tokens = (targets.sum(-1) > 0).any(1).sum(1)  # real ones, [B]
        maps, bases = attention[..., 1:], targets[..., 1:]
        self.products += torch.einsum("bhij,bgij->hg", maps, bases)
        self.squares += torch.stack([t.square().sum((0, 2, 3)) for t in (maps, bases)])
        entries = bases > 0
        rows = entries.any(-1)
        even = entries.sum(-1) / (1 + tokens)[:, None, None]
        self.shares += torch.stack([(maps * entries).sum((0, 2, 3)), (even * rows).sum((0, 2)), rows.sum((0, 2))])

    def summary(self) -> dict[str, list[Any]]:
        """Returns the measures of each head; see the module."""
        cosines = self.products / (self.squares[0][:, None] * self.squares[1]).sqrt().clamp(min=1e-300)
        share, uniform, rows = self.shares
        return {
            "nearest": cosines.argmax(1).tolist(),
            "cosine": _rounded(cosines.diagonal()),
            "share": _rounded(share / rows),
            "uniform": _rounded(uniform / rows),
        }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]
