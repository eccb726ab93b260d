"""Digests of JSON content, by which recipes, runs, data and encodings are identified."""

import hashlib
import json
from collections.abc import Callable


def digest_of(content: object, *, spaced: bool = False, default: Callable[[object], object] | None = None) -> str:
    """Return the sha256 of the canonical JSON of `content`: keys are sorted.

    Args:
        content: the content.
        spaced: whether a space follows "," and ":". Digests of data and encodings have it, and stored files contain
            these digests, so it has to stay.
        default: as for `json.dumps`.
    """
    separators = None if spaced else (",", ":")
    text = json.dumps(content, sort_keys=True, separators=separators, default=default)
    return hashlib.sha256(text.encode()).hexdigest()
