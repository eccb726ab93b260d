"""TokenGT, figures of attention maps (Section 5.1 and appendix): does each head, trained towards its equivariant basis tensor, show the pattern of that tensor and of no other?

The kept weights of a cell's best seed, on GRAPHS test graphs, without dropout. The 15 tensors share no entry, so that a map without its [null] column has a cosine with each. Per head:
  nearest   the tensor with the largest cosine
  cosine    with its own tensor, rows divided by their sums, over all entries of all graphs
  share     of attention that lies on the tensor's entries, over rows that have some; of a map that attends to all tokens alike it is `uniform`
Unprinted: which graphs, which of several runs. Orthogonal random features are drawn once, from a fixed seed. The stand-in is the embedded suite's cell, of an eighth of the width, with ORF on sparse graphs; it decides
nothing about the paper.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gt_bench.claims.experiments.kept import experiment, kept
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
# draws of identifiers go through a QR decomposition, whose last digits differ between libraries; a run trained elsewhere has others too
TOLERANCE = 1e-3
GRAPHS, BATCH = 64, 4


def compute(case: str, data: Path) -> dict[str, Any]:
    """`nearest`, `cosine`, `share` and `uniform` of the 15 heads, the number of `graphs`, and the digest of the `run`. Raises NoRun."""
    run = experiment(CELLS[case], data)
    model: Any
    record, model = kept(run, CELLS[case])
    loader = run.loader(record["deterministic"]["seed"])
    graphs = loader.ids["test"][:GRAPHS]
    torch.manual_seed(0)
    sums = Sums()
    with torch.no_grad():
        for some in graphs.split(BATCH):
            batch = loader.load(some).to("cpu", torch.float64)
            sums.add(model(batch), model.targets(batch))
    return sums.judged() | {"graphs": len(graphs), "run": record["digest"]}


class Sums:
    """What is summed over graphs."""

    def __init__(self) -> None:
        heads = bell(4)
        self.products = torch.zeros(heads, heads, dtype=torch.float64)  # of maps and tensors
        self.squares = torch.zeros(2, heads, dtype=torch.float64)  # of maps and of tensors
        self.shares = torch.zeros(
            3, heads, dtype=torch.float64
        )  # on the tensor's entries, of even attention, and rows with entries

    def add(self, attention: Tensor, targets: Tensor) -> None:
        """Attention and what it should be, [B, 15, T, 1 + T] each, column 0 [null], rows of padding zero."""
        tokens = (targets.sum(-1) > 0).any(1).sum(1)  # real ones, [B]
        maps, bases = attention[..., 1:], targets[..., 1:]
        self.products += torch.einsum("bhij,bgij->hg", maps, bases)
        self.squares += torch.stack([t.square().sum((0, 2, 3)) for t in (maps, bases)])
        entries = bases > 0
        rows = entries.any(-1)
        even = entries.sum(-1) / (1 + tokens)[:, None, None]
        self.shares += torch.stack([(maps * entries).sum((0, 2, 3)), (even * rows).sum((0, 2)), rows.sum((0, 2))])

    def judged(self) -> dict[str, list[Any]]:
        """See the top."""
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
