"""Sections of the command, and how a time budget is shared among them.

Sections run one after the other, each in a process of its own. A section gets at most its share of the budget, and what
earlier sections leave unused goes to the last one, the queue. The end of the budget is reserved for the archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PACK_SECONDS = 40.0  # reserved for the archive, and for records of a queue that was cut or crashed
ARCHIVE_SECONDS = 5.0  # of these, for the archive alone
PACK_SHARE = 0.1  # of a short budget
GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL: runs finish their epoch and write a checkpoint


@dataclass(frozen=True)
class Section:
    """A part of the work.

    Attributes:
        name: of the section, its log and its results.
        what: one line for the user.
        share: part of the budget that it gets at most; None for all that is left.
        least: seconds below which it is not started.
    """

    name: str
    what: str
    share: float | None
    least: float


SECTIONS = (
    Section("checks", "fast forms and models on the device compared with their definitions", 0.2, 5.0),
    Section("steps", "time, launches, busy time and memory of a training step of each cell, by form", 0.27, 10.0),
    Section("queue", "the most valuable missing runs, several processes side by side", None, 15.0),
)


def reserve(total: float) -> float:
    """Return the seconds that are reserved for the archive."""
    return min(PACK_SECONDS, PACK_SHARE * total)


def collection(left: float) -> float:
    """Return the seconds in which records of a queue that was cut may be collected, if `left` of the budget are left.

    Then the collection ends, if it must, within the grace period, and the archive is written.
    """
    return max(1.0, left - GRACE_SECONDS - ARCHIVE_SECONDS)


def limit(section: Section, total: float, left: float) -> float:
    """Return the seconds that a section gets: 0 if it is not worth starting.

    Args:
        section: to start now.
        total: seconds of the whole budget.
        left: seconds of the budget that are left.
    """
    free = left - reserve(total)
    granted = free if section.share is None else min(free, section.share * total)
    return granted if granted >= section.least else 0.0


def forecast(sections: Sequence[Section], total: float) -> list[tuple[Section, float]]:
    """Return the seconds of each section if each uses all it gets."""
    left, found = total, []
    for section in sections:
        granted = limit(section, total, left)
        found.append((section, granted))
        left -= granted
    return found
