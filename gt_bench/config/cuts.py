"""Cuts of a result, as its `reduced` lists them: "3 of 10 seeds", or a number of parts of a task's protocol."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from gt_bench.config.params import Limits
from gt_bench.config.protocols import PROTOCOLS

SEEDS, EPOCHS = "seeds", "epochs"
PARTS = frozenset(protocol.UNIT for protocol in PROTOCOLS.values())


class Cut(NamedTuple):
    """A limit: `left` of `full`, counted in `unit`: SEEDS, EPOCHS, or one of PARTS."""

    left: int
    full: int
    unit: str

    def __str__(self) -> str:
        return f"{self.left} of {self.full} {self.unit}"


def cut_in(line: str) -> Cut | None:
    """Returns the limit that a line of a result's `reduced` describes, None if it describes something else."""
    found = re.fullmatch(r"(\d+) of (\d+) (\w+)", line)
    return Cut(int(found[1]), int(found[2]), found[3]) if found and found[3] in {SEEDS, EPOCHS, *PARTS} else None


def seeds_in(line: str) -> Cut | None:
    """Returns the same for a limit of seeds, else None."""
    cut = cut_in(line)
    return cut if cut and cut.unit == SEEDS else None


def limits_in(reduced: Iterable[str]) -> Limits:
    """Returns the limits that a result's `reduced` describes."""
    return Limits.model_validate({cut.unit: cut.left for line in reduced if (cut := cut_in(line))})
