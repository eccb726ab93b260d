"""Check by mutation that golden values detect a changed number: make mutants.

python -m tests.mutants [GROUP ...] [--workers 2]

GROUP is a group of tests/mutants/mutations.py, or "refactorings"; default: all. Each mutation is applied to a temporary
copy of the code. There the golden run of its cell must differ from the saved golden values; after a refactoring it must
not. A mutation of a dataset family has a dataset instead of a cell (tests/gt_bench/data/family_values.py). Exits 1 if
one fails.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from gt_bench.utils.terminal import print_table
from tests.mutants.mutations import MUTATIONS, Mutation
from tests.mutants.refactorings import REFACTORINGS, Refactoring
from tests.mutants.runner import Checked, Edit, check_all

Change = Mutation | Refactoring
REFACTORED = "refactorings"
GROUPS = [*dict.fromkeys(mutation.group for mutation in MUTATIONS), REFACTORED]


def group_of(change: Change) -> str:
    """Row of the table in which the change is counted."""
    return REFACTORED if isinstance(change, Refactoring) else change.group


def job(change: Change) -> tuple[Sequence[Edit], Sequence[str]]:
    """What to change, and the cells or datasets to check."""
    if isinstance(change, Refactoring):
        return change.edits, change.cells
    return [Edit(change.file, change.old, change.new)], [change.cell]


def problem(change: Change, checked: Checked) -> str | None:
    """The error in the outcome; None if a mutation was detected, or a refactoring changed nothing."""
    if isinstance(change, Refactoring):
        return None if checked.status == 0 else f"noticed: {checked.said()}"
    if checked.status == 0:
        return f"not noticed by {change.cell}"
    return None if checked.quantities else f"no golden value differs, but: {checked.said()}"


def title(change: Change) -> str:
    """One line that describes the change."""
    if isinstance(change, Refactoring):
        return change.name
    return f"{change.file}: {' '.join(change.old.split())} -> {' '.join(change.new.split())}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a mutation is not detected, or a refactoring changes a number."""
    formatter = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__, formatter_class=formatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    given = parser.parse_args(argv)
    if unknown := set(given.groups) - set(GROUPS):
        parser.error(f"unknown group {min(unknown)!r}; known: {', '.join(GROUPS)}")
    chosen = given.groups or GROUPS
    changes: list[Change] = [change for change in (*MUTATIONS, *REFACTORINGS) if group_of(change) in chosen]
    start = time.perf_counter()
    wrong: list[tuple[str, str, str]] = []
    outcomes = check_all([job(change) for change in changes], given.workers)
    for number, (change, checked) in enumerate(zip(changes, outcomes, strict=True), 1):
        found = problem(change, checked)
        said = found or f"noticed by {checked.quantities[0]}" if checked.quantities else found or "nothing differs"
        print(f"[{number}/{len(changes)}] {title(change)}: {said}", flush=True)
        if found:
            wrong.append((group_of(change), title(change), found))
    if wrong:
        names = ("group", "change", "what is wrong")
        print_table(names, wrong, wrapped=names[1:], title="Wrong")
    print_table(("group", "noticed", "of"), [counts(group, changes, wrong) for group in GROUPS if group in chosen])
    print(f"{len(changes)} changes in {time.perf_counter() - start:.0f} s, {len(wrong)} wrong")
    return int(bool(wrong))


def counts(group: str, changes: Sequence[Change], wrong: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    """Row of the table: how many changes of a group were detected."""
    total = sum(group_of(change) == group for change in changes)
    failed = sum(row[0] == group for row in wrong)
    return group, str(failed if group == REFACTORED else total - failed), str(total)


if __name__ == "__main__":
    sys.exit(main())
