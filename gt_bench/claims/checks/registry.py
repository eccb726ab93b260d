"""What a test of a claim hands back, and the kinds of test by name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import validate_call

Place = tuple[str, ...]


class Contest(NamedTuple):
    """One comparison of published numbers that our runs may decide.

    Attributes:
        ours: Place of the number that should be better (`Published.place`).
        rivals: Places of the numbers that it is compared with.
        rank: The number should be among so many best: it may lose to rank - 1 of its rivals.
    """

    ours: Place
    rivals: tuple[Place, ...]
    rank: int = 1


@dataclass(frozen=True)
class Found:
    """What a test of a claim found.

    Attributes:
        true: Whether the claim holds; None where the test cannot tell.
        why: The reason, with numbers.
        shown: The verdict rests on data or a computation, not on published numbers alone.
        contests: Comparisons by which our runs confirm or contradict what the published numbers say.
        least: How many contests must be won; None: all of them.
        most: How many contests may be won, for a claim that something is not better; excludes `least`.
        internal: The test compares two statements of the same paper. If they differ, the paper contradicts itself.
        tried: False where nothing was computed for it yet; `why` then names the command.
    """

    true: bool | None
    why: str
    shown: bool = False
    contests: tuple[Contest, ...] = field(default=())
    least: int | None = None
    most: int | None = None
    internal: bool = False
    tried: bool = True


TESTS: dict[str, Callable[..., Found]] = {}


def test(function: Callable[..., Found]) -> Callable[..., Found]:
    """Registers a kind of test under the function's name. Called by that name it holds its arguments against their types, and raises ValidationError."""
    TESTS[function.__name__] = validate_call(function)
    return function
