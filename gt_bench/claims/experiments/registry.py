"""Experiments behind the claims of papers, and their stored results.

suites/PAPER/experiments/NAME.py computes values that take too long to compute on every use. They are stored in
suites/PAPER/findings/NAME.json, with the command, commit, date and version of each case, and a checksum. An experiment
defines

    CASES                names, in the order in which they are computed
    QUICK                cases that a test computes again
    ROUNDING             (optional) keys of a value that are not compared, because they are rounding errors or details
    TOLERANCE            (optional) relative difference that two computations may have
    NEEDS                (optional) required datasets
    VERSION              (optional, default 1) raised by a change of code that alters a value
    OPEN                 (optional) true if cases may be missing, because each takes an hour or a trained run
    compute(case, data)  returns a JSON value. It must be deterministic, given the packed data in the folder `data`

The checks of claims (gt_bench/claims/checks/, suites/PAPER/checks.py) interpret the values.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from gt_bench.config.schema import nearest
from gt_bench.runtime.module_loader import imported
from gt_bench.schemas import Json
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_json
from gt_bench.utils.paths import suite_folders
from gt_bench.utils.versions import version_in

# relative difference of two computations of one value: processors round differently
TOLERANCE = 1e-6


class FindingError(UserError, RuntimeError):
    """A finding is missing, damaged or edited; the message names the file and the command that computes it again."""


class StoredCase(TypedDict):
    """A case of a finding in its file.

    Attributes:
        value: the computed value.
        command: command that computed it.
        commit: commit of the code.
        date: in ISO 8601.
        version: version of the experiment's module.
    """

    value: Json
    command: str
    commit: str
    date: str
    version: int


def experiments() -> dict[str, Path]:
    """Returns the file of each experiment by its name.

    Raises:
        FindingError: two experiments have the same name.
    """
    found: dict[str, Path] = {}
    for folder in suite_folders().values():
        for path in sorted(folder.glob("experiments/*.py")):
            if path.stem in found:
                raise FindingError(f"{found[path.stem]} and {path}: two experiments have the same name; rename one")
            found[path.stem] = path
    return found


def source_of(name: str) -> Path:
    """Returns the file of an experiment.

    Raises:
        FindingError: there is no such experiment.
    """
    known = experiments()
    if name not in known:
        raise FindingError(f"no finding {name!r}{nearest(name, list(known))}; known: {', '.join(known)}")
    return known[name]


def module_of(name: str) -> Any:
    """Returns the module of an experiment.

    Raises:
        FindingError: there is no such experiment.
    """
    path = source_of(name)
    return imported(path.resolve(), str(path))


def file_of(name: str, folder: Path | None = None) -> Path:
    """Returns the file of a finding, in the suite of its experiment unless another folder is given."""
    return (folder or source_of(name).parents[1] / "findings") / f"{name}.json"


def command(name: str) -> str:
    """Returns the command that computes the finding again."""
    return f"gt-bench claims --recompute {name}"


def load(name: str, folder: Path | None = None) -> dict[str, StoredCase]:
    """Returns the stored cases of a finding.

    Raises:
        FindingError: the file is missing, damaged or edited, or has unknown cases.
    """
    path, module = file_of(name, folder), module_of(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cases, seal = content["cases"], content["sha256"]
    except FileNotFoundError:
        raise FindingError(f"{path}: no such file; compute it by `{command(name)}`") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FindingError(f"{path}: cannot be read ({error}); compute it again by `{command(name)}`") from None
    if seal != sealed(cases):
        raise FindingError(
            f"{path}: was edited after it was computed; restore it by git, or compute it again by `{command(name)}`"
        )
    if strange := sorted(cases.keys() - set(module.CASES)):
        raise FindingError(
            f"{path}: unknown case {strange[0]!r}, which {module.__name__} does not compute; compute the file again by "
            f"`{command(name)}`"
        )
    return cases


def values(name: str, folder: Path | None = None) -> dict[str, Json]:
    """Returns {case: value} of all cases.

    Raises:
        FindingError: as for `load`, or a case has not been computed.
    """
    cases = load(name, folder)
    if missing := [case for case in module_of(name).CASES if case not in cases]:
        raise FindingError(f"{file_of(name, folder)}: missing case {missing[0]!r}; compute it by `{command(name)}`")
    return {case: found["value"] for case, found in cases.items()}


def partial(name: str, folder: Path | None = None) -> dict[str, Json]:
    """Returns {case: value} of the cases that have been computed, none if the file does not exist.

    Raises:
        FindingError: the file is damaged.
    """
    return (
        {case: found["value"] for case, found in load(name, folder).items()} if file_of(name, folder).exists() else {}
    )


def recompute(
    name: str,
    cases: Iterable[str] = (),
    data: Path = Path("data"),
    say: Callable[[str], None] = print,
    folder: Path | None = None,
) -> bool:
    """Computes cases again and stores each as soon as it is computed.

    Args:
        name: the finding.
        cases: cases to compute. All if empty.
        data: folder that contains packed/.
        say: called with a line per case.
        folder: folder of findings, for tests.

    Returns:
        Whether every value agrees with the stored one.

    Raises:
        FindingError: there is no such case. Also the errors of `compute`.
    """
    from gt_bench.runtime.environment import commit

    module = module_of(name)
    wanted = list(cases) or module.CASES
    if unknown := [case for case in wanted if case not in module.CASES]:
        raise FindingError(f"finding {name!r} has no case {unknown[0]!r}{nearest(unknown[0], module.CASES)}")
    path, made = file_of(name, folder), commit() or "none"
    alike, version = True, version_in(source_of(name))
    for case in wanted:
        value = json.loads(json.dumps(module.compute(case, data)))
        try:  # read again: another process may have stored other cases meanwhile
            stored = load(name, folder)
        except FindingError:
            stored = {}
        before = stored[case]["value"] if case in stored else None
        known = case in stored and agree(name, value, before)
        alike &= known
        say(
            f"{name}, {case}: {json.dumps(value)}: "
            f"{'unchanged' if known else f'was {json.dumps(before)}' if case in stored else 'new'}"
        )
        if not known or stored[case]["version"] != version:
            date = f"{datetime.now(UTC):%Y-%m-%d}"
            now: StoredCase = {
                "value": value,
                "command": command(name),
                "commit": made,
                "date": date,
                "version": version,
            }
            stored = {c: now if c == case else stored[c] for c in module.CASES if c in {*stored, case}}
            write_json(path, {"finding": name, "cases": stored, "sha256": sealed(stored)})
    return alike


def stale(name: str, folder: Path | None = None) -> list[str]:
    """Returns the cases that another version of the experiment computed, none if there is no file.

    Raises:
        FindingError: the file is damaged.
    """
    if not file_of(name, folder).exists():
        return []
    return [case for case, found in load(name, folder).items() if found["version"] != version_in(source_of(name))]


def sealed(cases: Mapping[str, object]) -> str:
    """Returns the sha256 of the cases. It reveals edits of the file."""
    return digest_of(cases)


def agree(name: str, value: object, other: object) -> bool:
    """Returns whether two values of a finding are equal up to rounding."""
    module = module_of(name)
    rounding, tolerance = getattr(module, "ROUNDING", ()), getattr(module, "TOLERANCE", TOLERANCE)
    first, second = (
        {k: v for k, v in one.items() if k not in rounding} if isinstance(one, dict) else one for one in (value, other)
    )
    return same(first, second, tolerance)


def same(value: object, other: object, tolerance: float = TOLERANCE) -> bool:
    """Returns whether two JSON values are equal. Numbers may differ by `tolerance`, relative to the larger one."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key], tolerance) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(same(a, b, tolerance) for a, b in zip(value, other, strict=True))
    if isinstance(value, float) and isinstance(other, float | int):
        return math.isclose(value, other, rel_tol=tolerance, abs_tol=1e-9) or (math.isnan(value) and math.isnan(other))
    return value == other
