"""Freshness of shipped records, as `gt_bench.provenance.staleness` finds it."""

from dataclasses import dataclass
from enum import StrEnum

from gt_bench.records.state import Stale


class Unknown(StrEnum):
    """What cannot be compared."""

    CODE = "code changed since the last check (`gt-bench check`)"
    START = "the run that it starts from"
    DATA = "data"
    ENCODINGS = "encodings"


@dataclass(frozen=True)
class Freshness:
    """Freshness of a shipped cell.

    Attributes:
        stale: parts that would be computed differently now.
        unknown: parts that cannot be compared.
        on_disk: whether there are data, which other code computed if they are unknown.
    """

    stale: list[Stale]
    unknown: list[Unknown]
    on_disk: bool = False

    @property
    def unknown_data(self) -> list[str]:
        """Data and encodings that cannot be compared, with the reason, as text."""
        why = "computed by other code" if self.on_disk else "not available"
        return [f"{one} ({why})" for one in self.unknown if one in (Unknown.DATA, Unknown.ENCODINGS)]

    @property
    def text(self) -> str:
        """The freshness as text."""
        parts = [f"stale: {', '.join(map(str, self.stale))}"] if self.stale else []
        rest = [one for one in self.unknown if one not in (Unknown.DATA, Unknown.ENCODINGS)] + self.unknown_data
        return "; ".join(parts + ([f"unknown: {', '.join(rest)}"] if rest else [])) or "up to date"
