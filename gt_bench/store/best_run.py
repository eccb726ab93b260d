"""Which run represents a cell where there can be only one: the best on validation, never on test."""

import math
from collections.abc import Sequence

from gt_bench.schemas import Record


def best_run(records: Sequence[Record]) -> Record | None:
    """The first of the runs that ended well and are best on validation; the first that ended well where nothing validates."""
    good = [r for r in records if r["deterministic"]["status"] == "ok"]
    validated = [(val, r) for r in good if (val := r["deterministic"]["val"]) is not None and math.isfinite(val)]
    if not validated:
        return good[0] if good else None
    better = max if good[0]["deterministic"]["direction"] == "max" else min
    return better(validated, key=lambda scored: scored[0])[1]
