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
from gt_bench.runtime import checkout
from gt_bench.runtime.module_loader import imported
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_json
from gt_bench.utils.json_types import Json
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
    modules: dict[str, Path] = {}
    for folder in suite_folders().values():
        for path in sorted(folder.glob("experiments/*.py")):
            if path.stem in modules:
                files = f"{modules[path.stem]} and {path}"
                raise FindingError("two experiments have the same name", file=files, remedy="rename one")
            modules[path.stem] = path
    return modules


def source_of(name: str) -> Path:
    """Returns the file of an experiment.

    Raises:
        FindingError: there is no such experiment.
    """
    known = experiments()
    if name not in known:
        raise FindingError(f"no finding {name!r}{nearest(name, list(known))}; known: {', '.join(known)}", value=name)
    return known[name]


def module_of(name: str) -> Any:
    """Returns the module of an experiment.

    Raises:
        FindingError: there is no such experiment.
    """
    path = source_of(name)
    return imported(path.resolve(), str(path))


def file_of(name: str, folder: Path | None = None) -> Path:
    """Returns the file of a finding, in the suite of its experiment unless another folder is given.

    Raises:
        FindingError: there is no such experiment.
    """
    source = source_of(name)
    return (folder or source.parents[1] / "findings") / f"{name}.json"


def command(name: str) -> str:
    """Returns the command that computes the finding again."""
    return f"gt-bench claims --recompute {name}"


def load(name: str, folder: Path | None = None) -> dict[str, StoredCase]:
    """Returns the stored cases of a finding.

    Raises:
        FindingError: the file is missing, damaged or edited.
    """
    return _read(name, folder)[0]


def _read(name: str, folder: Path | None) -> tuple[dict[str, StoredCase], list[str]]:
    """Returns the stored cases, and those that were not computed when the file was written.

    The experiment is not imported: it loads torch, and what shows claims computes nothing.
    """
    path = file_of(name, folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cases, seal, missing = content["cases"], content["sha256"], content.get("missing", [])
    except FileNotFoundError:
        raise FindingError("no such file", file=path, remedy=f"compute it by `{command(name)}`") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"compute it again by `{command(name)}`"
        raise FindingError(f"cannot be read ({error})", file=path, remedy=remedy) from None
    if seal != sealed(cases):
        remedy = f"restore it by git, or compute it again by `{command(name)}`"
        raise FindingError("was edited after it was computed", file=path, remedy=remedy)
    return cases, missing


def values(name: str, folder: Path | None = None) -> dict[str, Json]:
    """Returns {case: value} of all cases.

    Raises:
        FindingError: as for `load`, or a case has not been computed.
    """
    cases, missing = _read(name, folder)
    if missing:
        remedy = f"compute it by `{command(name)}`"
        raise FindingError(f"missing case {missing[0]!r}", file=file_of(name, folder), value=missing[0], remedy=remedy)
    return {case: entry["value"] for case, entry in cases.items()}


def partial(name: str, folder: Path | None = None) -> dict[str, Json]:
    """Returns {case: value} of the cases that have been computed, none if the file does not exist.

    Raises:
        FindingError: the file is damaged.
    """
    return (
        {case: entry["value"] for case, entry in load(name, folder).items()} if file_of(name, folder).exists() else {}
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
    module = module_of(name)
    wanted = list(cases) or module.CASES
    if unknown := [case for case in wanted if case not in module.CASES]:
        problem = f"finding {name!r} has no case {unknown[0]!r}{nearest(unknown[0], module.CASES)}"
        raise FindingError(problem, value=unknown[0])
    path, made = file_of(name, folder), checkout.commit() or "none"
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
            missing = [c for c in module.CASES if c not in stored]
            content = {"finding": name, "cases": stored, "sha256": sealed(stored)}
            write_json(path, content | ({"missing": missing} if missing else {}))
    return alike


def stale(name: str, folder: Path | None = None) -> list[str]:
    """Returns the cases that another version of the experiment computed, none if there is no file.

    Raises:
        FindingError: the file is damaged.
    """
    if not file_of(name, folder).exists():
        return []
    return [case for case, entry in load(name, folder).items() if entry["version"] != version_in(source_of(name))]


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
