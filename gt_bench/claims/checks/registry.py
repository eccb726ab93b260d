"""What a test of a claim hands back, and the kinds of test by name."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import validate_call


@dataclass(frozen=True)
class Found:
    """What a test found: `true`, or None where it could not be made; `why` in figures; `shown`: by more than print (data, a computation);
    `columns`: the printed places whose claim to be best our own runs may decide; `pairs`: of printed places, the first better than the second, which they may decide too; `tried`: false where nothing was computed for it yet, and `why` says by which command it is."""

    true: bool | None
    why: str
    shown: bool = False
    columns: tuple[tuple[str, ...], ...] = field(default=())
    pairs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = field(default=())
    tried: bool = True


TESTS: dict[str, Callable[..., Found]] = {}


def test(function: Callable[..., Found]) -> Callable[..., Found]:
    """Registers a kind of test under the function's name. Called by that name it holds its arguments against their types, and raises ValidationError."""
    TESTS[function.__name__] = validate_call(function)
    return function
