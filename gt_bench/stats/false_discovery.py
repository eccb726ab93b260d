"""The false-discovery rate."""

from collections.abc import Sequence


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusts p values by the procedure of Benjamini and Hochberg. None values are left out and remain None."""
    ordered = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    smallest = 1.0
    for rank, (p, place) in reversed(list(enumerate(ordered, 1))):
        smallest = min(smallest, p * (len(ordered) / rank))
        adjusted[place] = smallest
    return adjusted
