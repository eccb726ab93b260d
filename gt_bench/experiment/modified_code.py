"""Whether changed code computes other numbers than before: its golden runs are compared with the stored values.

suites/SUITE/golden_checked.json contains for each cell the hash of the code whose golden run was last compared. A cell
is compared again only if its code has another hash.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gt_bench.config.components import code_of
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.golden_values import (
    VALUES,
    Entry,
    GoldenError,
    find,
    first_difference,
    golden_file,
    golden_recipe,
    load,
    recipe_digest,
    same_computation,
)
from gt_bench.runtime.fresh_process import child_environment
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import WriteError, write_json
from gt_bench.utils.paths import INSTALLED, SUITES

CHECKED = "golden_checked.json"  # in the folder of a suite
NESTED = "GT_GOLDEN_RUN"  # environment variable of processes that compute golden runs


def modified_code(path: str, model: str, task: str, components: Iterable[str], code: str) -> str | None:
    """Finds out whether the code computes other numbers than the committed golden values of the same versions.

    Args:
        path: file of the recipe, suites/SUITE/recipes/DATASET/ROW.yaml or tuned/SUITE/DATASET/ROW.yaml.
        model: name of the model.
        task: name of the task.
        components: as for `reference_cells`.
        code: hash of the code that computes the runs.

    Returns:
        `code` if it does, otherwise None.
    """
    parts = [part for part in Path(path).with_suffix("").parts if part != "recipes"]
    found = differences(references_of("/".join(parts[-3:]), model, task, components))
    return code if any(found.values()) else None


def references_of(cell: str, model: str, task: str, components: Iterable[str]) -> dict[str, str]:
    """Returns the hash of the current code of each of `reference_cells`; the arguments are the same."""
    found = {name: find(name, INSTALLED) for name in reference_cells(cell, model, task, components)}
    return {name: code_of(entry["model"], entry["task"]) for name, entry in found.items() if entry}


def checked(root: Path = INSTALLED) -> dict[str, str]:
    """Reads the files golden_checked.json: {cell: hash of the code whose golden run was last compared}."""
    found: dict[str, str] = {}
    for path in sorted((root / SUITES).glob(f"*/{CHECKED}")):
        with contextlib.suppress(OSError, ValueError, TypeError):  # a damaged file: its cells are compared again
            found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def save_checked(codes: Mapping[str, str]) -> None:
    """Writes the hash of the code of each cell next to the golden values of its suite.

    Raises:
        WriteError: a file cannot be written.
    """
    by_suite: dict[str, dict[str, str]] = {}
    for cell, code in sorted(codes.items()):
        by_suite.setdefault(cell.partition("/")[0], {})[cell] = code
    for suite, cells in by_suite.items():
        write_json(golden_file(suite).with_name(CHECKED), cells)


def reference_cells(cell: str, model: str, task: str, components: Iterable[str]) -> list[str]:
    """Returns the cells whose golden values are compared to decide whether the code of a run was modified.

    Args:
        cell: the cell of the run.
        model: name of its model.
        task: name of its dataset's task.
        components: those of its run with a version, encodings included. A user-supplied model has none.

    Returns:
        `cell` if it has golden values. Otherwise cells that together cover the components, if there are such cells; the
        cell with most of them is the first.
    """
    if find(cell, INSTALLED) is not None and _has_current_recipe(cell):
        return [cell]
    suites = sorted(
        (path.parent.name for path in (INSTALLED / SUITES).glob(f"*/{VALUES}")), key=lambda s: s != "embedded"
    )
    known = {
        name: _covered(entry["model"], entry["task"], entry["versions"])
        for suite in suites
        for name, entry in load(suite, INSTALLED).items()
    }
    left = _covered(model, task, components) & set().union(*known.values())
    chosen: list[str] = []
    while left:
        best = max(known, key=lambda name: len(known[name] & left), default=None)
        if best is None or not known[best] & left:
            break
        covered = known.pop(best)
        if _has_current_recipe(best):
            chosen.append(best)
            left -= covered
    return chosen


def _covered(model: str, task: str, names: Iterable[str]) -> set[tuple[str, str | None]]:
    """Returns the components of a run, of which the model and the task have a name."""
    return {(name, {"model": model, "task": task}.get(name)) for name in names}


def _has_current_recipe(cell: str) -> bool:
    """Returns whether the golden values of a cell were computed with its current recipe."""
    entry = find(cell, INSTALLED)
    with contextlib.suppress(RecipeError):
        return (
            entry is not None and recipe_digest(load_recipe(golden_recipe(cell, INSTALLED / SUITES))) == entry["recipe"]
        )
    return False


def known_differences(wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Reads the outcomes of earlier comparisons; nothing is computed. Cells that were not compared are missing.

    Args:
        wanted: {cell with golden values: hash of the current code, from `code_of`}.

    Returns:
        By cell how its golden run differs from the stored values, or None if it does not.
    """
    found: dict[str, str | None] = {}
    known = checked()
    for cell, code in wanted.items():
        if known.get(cell) == code[:16]:
            found[cell] = None
            continue
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            file = _cache_file(cell, code, find(cell, INSTALLED))
            found[cell] = json.loads(file.read_text(encoding="utf-8"))["differs"]
    return found


def differences(wanted: Mapping[str, str], workers: int = 2) -> dict[str, str | None]:
    """Compares the golden runs of cells with the stored values, and stores the outcomes for `known_differences`.

    Says so on stderr if golden runs have to be computed, because they take some seconds each.

    Args:
        wanted: as for `known_differences`.
        workers: number of processes.

    Returns:
        By cell how its golden run differs from the stored values, or None if it does not.

    Raises:
        GoldenError: a golden run was killed.
    """
    found = known_differences(wanted)
    todo = [cell for cell in wanted if cell not in found]
    if not todo:
        return found
    cells = f"{len(todo)} cells" if len(todo) > 1 else todo[0]
    print(f"the code of {cells} has changed: comparing golden values", file=sys.stderr, flush=True)
    for cell, (now, error) in _compute(todo, workers).items():
        entry = find(cell, INSTALLED)
        found[cell] = error or _value_difference(entry, now)
        if error:  # not cached: a crash or a lack of memory may not happen again
            continue
        with contextlib.suppress(WriteError):  # an installed package may be read-only
            write_json(_cache_file(cell, wanted[cell], entry), {"cell": cell, "differs": found[cell]})
    return found


def _compute(cells: Sequence[str], workers: int) -> dict[str, tuple[Entry | None, str | None]]:
    """Returns the entry or the error of golden runs, computed in a new process with other threads and precision."""
    # without this check, a golden run that compares golden values would start processes without end
    if os.environ.get(NESTED):
        remedy = "a golden run must not have golden values itself"
        raise GoldenError("compared within a golden run", file=cells[0], remedy=remedy)
    command = [sys.executable, "-m", "gt_bench.testing.golden_run", "--workers", str(workers), "--", *cells]
    done = subprocess.run(
        command,
        cwd=INSTALLED,
        env=child_environment() | {NESTED: "1"},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"cell"')]
    found = {outcome["cell"]: (outcome["entry"], outcome["error"]) for outcome in outcomes}
    if absent := [cell for cell in cells if cell not in found]:
        # not a difference: digests of runs would depend on whether the process was killed
        raise GoldenError(
            f"its golden run ended with status {done.returncode} and without a value (killed, or out of memory?), so "
            "it is unknown whether the code still computes the same numbers",
            file=absent[0],
            value=done.returncode,
            remedy="run the same command again",
        )
    return {cell: found[cell] for cell in cells}


def _value_difference(stored: Entry | None, now: Entry | None) -> str | None:
    """Returns how values of the same computation differ. A raised version does not count: digests contain it."""
    if stored is None or now is None or not same_computation(stored, now):
        return None
    difference = first_difference(stored["values"], now["values"])
    return difference and f"{difference[0]} of its golden run was {difference[1]}, now {difference[2]}"


def _cache_file(cell: str, code: str, entry: Entry | None) -> Path:
    """Returns the file that caches the outcome of a comparison. Its folder is not committed."""
    name = digest_of([cell, code, entry["sha256"] if entry and "sha256" in entry else None])
    return ROOT / ".golden" / f"{name[:32]}.json"
