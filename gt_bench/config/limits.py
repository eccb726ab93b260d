"""What a limit of params.yaml leaves of a cell, in the words that its result keeps: "3 of 10 seeds", or so many of the parts of a task's own protocol."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from gt_bench.config.grid import Limits
from gt_bench.config.protocols import PROTOCOLS

SEEDS, EPOCHS = "seeds", "epochs"
PARTS = frozenset(protocol.UNIT for protocol in PROTOCOLS.values())


class Cut(NamedTuple):
    """`left` of `full`, counted in `unit`: SEEDS, EPOCHS, or one of PARTS."""

    left: int
    full: int
    unit: str

    def __str__(self) -> str:
        return f"{self.left} of {self.full} {self.unit}"


def cut_in(line: str) -> Cut | None:
    """The cut that a line of a result's `reduced` says; None where it says anything else."""
    found = re.fullmatch(r"(\d+) of (\d+) (\w+)", line)
    return Cut(int(found[1]), int(found[2]), found[3]) if found and found[3] in {SEEDS, EPOCHS, *PARTS} else None


def seeds_in(line: str) -> Cut | None:
    """The same, of a cut in seeds alone."""
    cut = cut_in(line)
    return cut if cut and cut.unit == SEEDS else None


def limits_in(reduced: Iterable[str]) -> Limits:
    """The limits that leave what a result's `reduced` says."""
    return Limits.model_validate({cut.unit: cut.left for line in reduced if (cut := cut_in(line))})
