"""Suggestions in error messages about unknown names."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the known name that is most similar; empty if none is similar."""
    known = list(known)
    swapped = [other for other in known if sorted(other) == sorted(name)]  # gnc: difflib prefers gin to gcn
    near = swapped or difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""
