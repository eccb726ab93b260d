"""`match:` of a recipe: a width that follows from a number of parameters."""

import re
from typing import Any

from pydantic import Field, field_validator

from gt_bench.config.schema import Positive, Strict

UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def count_in(text: str) -> int:
    """Reads `500k`, `1.5M` or `500000`.

    Raises:
        ValueError: the text is no such number, or below 1.
    """
    match = re.fullmatch(r"(\d+(?:[._]\d+)*)\s*([kKmMbB]?)", text.strip())
    number = round(float(match[1].replace("_", "")) * UNITS[match[2].lower()]) if match else 0
    if number < 1:
        raise ValueError(f"expected a number of parameters such as 500k, 1.5M or 500000 (given: {text!r:.200})")
    return number


class MatchSection(Strict):
    """The model gets the width `by` with which it has about `parameters` parameters (`gt-bench match`).

    `load_recipe` resolves it: the width, not the rule, is part of a run's identity.
    """

    parameters: Positive
    by: str = Field("hidden_dim", pattern=r"^[A-Za-z_]\w*$")

    @field_validator("parameters", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        return count_in(value) if isinstance(value, str) else value
