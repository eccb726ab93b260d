"""What a test of a claim returns, and the kinds of test by name: those of this package, and those of suites/NAME/checks.py."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from pydantic import validate_call

from gt_bench.runtime.module_loader import imported
from gt_bench.utils.paths import SuiteError, suite_folders

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


GENERAL = ("brec", "growth", "homophily", "our_runs", "printed")  # modules of this package with kinds of test
SUITE_CHECKS = "checks.py"  # in the folder of a suite: kinds of test of its own
_TESTS: dict[str, Callable[..., Found]] = {}


def test(function: Callable[..., Found]) -> Callable[..., Found]:
    """Registers a kind of test under the function's name. Called by that name, it checks the types of its arguments.

    Raises:
        SuiteError: two modules have a test of this name.
    """
    name, known = function.__name__, _TESTS.get(function.__name__)
    if known is not None and known.__module__ != function.__module__:
        raise SuiteError(
            f"two tests of claims are named {name!r}, in {known.__module__} and {function.__module__}; rename one"
        )
    _TESTS[name] = validate_call(function)
    return function


def all_tests() -> dict[str, Callable[..., Found]]:
    """Every kind of test by name.

    Raises:
        SuiteError: two have one name.
        ImportFails: the checks.py of a suite cannot be imported.
    """
    for name in GENERAL:
        import_module(f"{__package__}.{name}")
    for folder in suite_folders().values():
        if (path := folder / SUITE_CHECKS).exists():
            imported(path.resolve(), str(path))
    return dict(_TESTS)


def find_test(kind: str) -> Callable[..., Found]:
    """The test of this name. Raises KeyError, and as `all_tests`."""
    return _TESTS[kind] if kind in _TESTS else all_tests()[kind]
