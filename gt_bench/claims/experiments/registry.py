"""Experiments behind the claims of papers, and what they found.

suites/PAPER/experiments/NAME.py computes what takes too long to compute at every look; suites/PAPER/findings/NAME.json keeps it. The
module has

  CASES                names, in the order in which they are computed
  QUICK                those of them that a test computes again
  ROUNDING             (optional) keys of a value that are rounding itself, or that code may change without changing what is found: not compared
  TOLERANCE            (optional) how far the numbers of two computations may differ, relative
  NEEDS                (optional) datasets that it needs
  VERSION              (optional, 1) raised by a change of code that alters a value
  OPEN                 (optional) true where a case takes an hour, or a trained run, so that some may be missing
  compute(case, data)  a JSON value that the case, the code and the packed data in `data` decide; nothing is drawn without a fixed seed

The checks of claims (gt_bench/claims/checks/) judge the values, so that a changed judgement leaves the findings as they are. The file keeps
for each case the command, commit, date and version that made it, and has a checksum: nobody types a number there.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from gt_bench.config.recipe import digest_of
from gt_bench.config.schema import nearest
from gt_bench.runtime.module_loader import imported
from gt_bench.schemas import Json
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_json
from gt_bench.utils.paths import suite_folders
from gt_bench.utils.versions import version_in

# how far two computations of one value may lie apart: processors round differently
TOLERANCE = 1e-6


class FindingError(UserError, RuntimeError):
    """A finding that is missing, damaged or edited; the message names the file and the command that computes it again."""


class Kept(TypedDict):
    """A case of a finding as its file keeps it: the value, and what made it, when (ISO 8601), and by which version of the finding's module."""

    value: Json
    command: str
    commit: str
    date: str
    version: int


def experiments() -> dict[str, Path]:
    """The file of each experiment, by name. Raises FindingError for two of one name."""
    found: dict[str, Path] = {}
    for folder in suite_folders().values():
        for path in sorted(folder.glob("experiments/*.py")):
            if path.stem in found:
                raise FindingError(f"{found[path.stem]} and {path}: two experiments of one name; rename one of them")
            found[path.stem] = path
    return found


def source_of(name: str) -> Path:
    """The file of an experiment. Raises FindingError for one that does not exist."""
    known = experiments()
    if name not in known:
        raise FindingError(f"no finding {name!r}{nearest(name, list(known))}; there are: {', '.join(known)}")
    return known[name]


def module_of(name: str) -> Any:
    """The module of an experiment. Raises FindingError for one that does not exist."""
    path = source_of(name)
    return imported(path.resolve(), str(path))


def file_of(name: str, folder: Path | None = None) -> Path:
    """The file of a finding, in the suite of its experiment unless another folder is given."""
    return (folder or source_of(name).parents[1] / "findings") / f"{name}.json"


def command(name: str) -> str:
    """The command that computes the finding again."""
    return f"gt-bench claims --recompute {name}"


def load(name: str, folder: Path | None = None) -> dict[str, Kept]:
    """By case. Raises FindingError."""
    path, module = file_of(name, folder), module_of(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cases, seal = content["cases"], content["sha256"]
    except FileNotFoundError:
        raise FindingError(f"{path} is not there; `{command(name)}` makes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FindingError(f"{path}: cannot be read ({error}); `{command(name)}` makes it again") from None
    if seal != sealed(cases):
        raise FindingError(
            f"{path}: was changed since it was computed; get it again by git, or `{command(name)}` makes it again"
        )
    if strange := sorted(cases.keys() - set(module.CASES)):
        raise FindingError(
            f"{path}: has a case {strange[0]!r} that {module.__name__} does not compute; `{command(name)}` makes it again"
        )
    return cases


def values(name: str, folder: Path | None = None) -> dict[str, Json]:
    """{case: value} of all cases. Raises FindingError, also where a case has not been computed."""
    cases = load(name, folder)
    if missing := [case for case in module_of(name).CASES if case not in cases]:
        raise FindingError(f"{file_of(name, folder)}: lacks the case {missing[0]!r}; `{command(name)}` computes it")
    return {case: found["value"] for case, found in cases.items()}


def partial(name: str, folder: Path | None = None) -> dict[str, Json]:
    """{case: value} of the cases that are there, of a finding that may lack some. Raises FindingError for a damaged file."""
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
    """Computes `cases` (all) anew and keeps each as soon as it is there. True where every value is the one that was kept before; says which is not.
    Raises FindingError for a case that does not exist, and what `compute` raises."""
    from gt_bench.runtime.environment import commit

    module = module_of(name)
    wanted = list(cases) or module.CASES
    if unknown := [case for case in wanted if case not in module.CASES]:
        raise FindingError(f"finding {name!r} has no case {unknown[0]!r}{nearest(unknown[0], module.CASES)}")
    path, made = file_of(name, folder), commit() or "none"
    alike, version = True, version_in(source_of(name))
    for case in wanted:
        value = json.loads(json.dumps(module.compute(case, data)))
        try:  # now: another process may have kept other cases meanwhile
            kept = load(name, folder)
        except FindingError:
            kept = {}
        before = kept[case]["value"] if case in kept else None
        known = case in kept and agree(name, value, before)
        alike &= known
        say(
            f"{name}, {case}: {json.dumps(value)}: {'as kept' if known else f'was {json.dumps(before)}' if case in kept else 'new'}"
        )
        if not known or kept[case]["version"] != version:
            date = f"{datetime.now(UTC):%Y-%m-%d}"
            now: Kept = {"value": value, "command": command(name), "commit": made, "date": date, "version": version}
            kept = {c: now if c == case else kept[c] for c in module.CASES if c in {*kept, case}}
            write_json(path, {"finding": name, "cases": kept, "sha256": sealed(kept)})
    return alike


def stale(name: str, folder: Path | None = None) -> list[str]:
    """The cases that another version of the finding computed; none where nothing is kept. Raises FindingError."""
    if not file_of(name, folder).exists():
        return []
    return [case for case, found in load(name, folder).items() if found["version"] != version_in(source_of(name))]


def sealed(cases: Mapping[str, object]) -> str:
    """sha256 of the cases; a file whose content was changed by hand has another."""
    return digest_of(cases)


def agree(name: str, value: object, other: object) -> bool:
    """Two values of a finding are the same but for what is rounding."""
    module = module_of(name)
    rounding, tolerance = getattr(module, "ROUNDING", ()), getattr(module, "TOLERANCE", TOLERANCE)
    first, second = (
        {k: v for k, v in one.items() if k not in rounding} if isinstance(one, dict) else one for one in (value, other)
    )
    return same(first, second, tolerance)


def same(value: object, other: object, tolerance: float = TOLERANCE) -> bool:
    """Two JSON values are equal, numbers up to `tolerance` of the larger."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key], tolerance) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(same(a, b, tolerance) for a, b in zip(value, other, strict=True))
    if isinstance(value, float) and isinstance(other, float | int):
        return math.isclose(value, other, rel_tol=tolerance, abs_tol=1e-9) or (math.isnan(value) and math.isnan(other))
    return value == other
