"""The result of a check, and all checks by name: those of this package, and those of suites/NAME/checks.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pydantic import validate_call

from gt_bench.runtime.module_loader import imported
from gt_bench.utils.paths import INSTALLED, SuiteError, packaged_suites, suite_folders

Place = tuple[str, ...]


class RivalComparison(NamedTuple):
    """One comparison of published numbers that our runs may decide.

    Attributes:
        ours: place of the number that should be better (`Published.place`).
        rivals: places of the numbers that it is compared with.
        rank: the number should be among the `rank` best. It may lose to `rank - 1` of its rivals.
    """

    ours: Place
    rivals: tuple[Place, ...]
    rank: int = 1


@dataclass(frozen=True)
class CheckResult:
    """The result of the check of a claim.

    Attributes:
        holds: whether the claim holds. None if the check is not conclusive.
        reason: the reason, with numbers.
        confirmed: whether the result is based on data or a computation, and not on published numbers alone.
        comparisons: comparisons by which our runs confirm or contradict the published numbers.
        min_wins: number of comparisons that must be won. None for all of them.
        max_wins: number of comparisons that may be won, for a claim that something is not better. Excludes `min_wins`.
        internal: whether the check compares two statements of the same paper. If they differ, the paper contradicts
            itself.
        computed: False if the required experiment or run does not exist yet. `reason` then contains the command.
    """

    holds: bool | None
    reason: str
    confirmed: bool = False
    comparisons: tuple[RivalComparison, ...] = field(default=())
    min_wins: int | None = None
    max_wins: int | None = None
    internal: bool = False
    computed: bool = True


# modules of this package that contain checks
GENERAL = ("brec", "figures", "growth", "homophily", "our_runs", "tables")
SUITE_CHECKS = "checks.py"  # checks of a suite, in its folder
_trusted = False
_CHECKS: dict[str, dict[str, Callable[..., CheckResult]]] = {}  # {module: {name: check}}


def register_check(function: Callable[..., CheckResult]) -> Callable[..., CheckResult]:
    """Registers a check under the name of the function. It validates the types of its arguments when it is called."""
    _CHECKS.setdefault(function.__module__, {})[function.__name__] = validate_call(function)
    return function


def trust_suites() -> None:
    """Let this process run the checks.py of all suites: of the benchmark, of installed packages, and of any folder."""
    global _trusted
    _trusted = True


def is_withheld(folder: Path) -> bool:
    """Returns whether a suite has a checks.py that is not run, because it is code of neither of the first two."""
    known = folder in packaged_suites().values() or folder.resolve().is_relative_to(INSTALLED.resolve())
    return not (known or _trusted) and (folder / SUITE_CHECKS).exists()


def all_checks() -> Mapping[str, Callable[..., CheckResult]]:
    """Returns all checks by name: the general ones, and those of suites that are not withheld.

    Raises:
        SuiteError: two checks have the same name.
        ImportFails: the checks.py of a suite cannot be imported.
    """
    paths = (folder / SUITE_CHECKS for folder in suite_folders().values() if not is_withheld(folder))
    return _checks_of(tuple((path, path.resolve(), path.stat().st_mtime_ns) for path in paths if path.exists()))


@cache
def _checks_of(suites: tuple[tuple[Path, Path, int], ...]) -> Mapping[str, Callable[..., CheckResult]]:
    modules = [import_module(f"{__package__}.{name}") for name in GENERAL]
    modules += [imported(resolved, str(path)) for path, resolved, _ in suites]
    checks: dict[str, Callable[..., CheckResult]] = {}
    place: dict[str, str | None] = {}
    for module in modules:
        for name, check in _CHECKS.get(module.__name__, {}).items():
            if name in checks:
                problem = f"two checks are named {name!r}, in {place[name]} and {module.__file__}"
                raise SuiteError(problem, value=name, remedy="rename one")
            checks[name], place[name] = check, module.__file__
    return checks


def find_check(kind: str) -> Callable[..., CheckResult]:
    """Returns the check of this name.

    Raises:
        KeyError: there is none.
        SuiteError, ImportFails: as for `all_checks`.
    """
    return all_checks()[kind]
