"""Which run of a cell stands for it where there can be only one: the best on validation, never on test."""

import math
from collections.abc import Sequence

from stages.contents import Record


def best_run(records: Sequence[Record]) -> Record | None:
    """The first of the runs that ended well and are best on validation; the first that ended well where nothing validates."""
    good = [r for r in records if r["deterministic"]["status"] == "ok"]
    validated = [r for r in good if r["deterministic"]["val"] is not None and math.isfinite(r["deterministic"]["val"])]
    if not validated:
        return good[0] if good else None
    better = max if validated[0]["deterministic"]["direction"] == "max" else min
    return better(validated, key=lambda r: r["deterministic"]["val"])
