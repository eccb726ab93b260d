"""Small mistakes in code that decides numbers, each with a cell whose golden values must detect it: mutations.yaml.

gt_bench/experiment/golden_values.py compares golden values.

Mistakes in dataset families have a dataset instead, whose values in tests/gt_bench/data/families.json must differ.
`old` occurs exactly once in `file`. After a change of that line, write the same mistake for the new line.
Cells are the cheapest that run the line, and their run differs in more than rounding.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Mutation:
    """Replaces `old` by `new` in `file`; the golden values of `cell`, or of a dataset, must differ."""

    group: str
    file: str
    old: str
    new: str
    cell: str
    what: str = ""


TABLE: dict[str, list[dict[str, str]]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
MUTATIONS = [Mutation(group, **mistake) for group, mistakes in TABLE.items() for mistake in mistakes]
