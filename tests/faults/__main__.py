"""Kills at random moments and full disks; writes the tables of docs/reliability.md: make test-faults.

    python -m tests.faults [--kills 20] [--seed 0] [--only kills|disk ...] [--no-write]

The exit status is 1 if any file differs from an undisturbed run. The disks are mounted, which needs root.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.cells import write_between
from gt_bench.runtime.checkout import commit
from tests.faults.commands import COMMANDS, kill
from tests.faults.disk import WRITERS, full_at_every_write, read_only
from tests.faults.kills import campaign
from tests.faults.world import STAGES, World

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
Row = tuple[tuple[object, ...], list[str]]  # of a table, and descriptions of what is wrong


def kills(world: World, given: argparse.Namespace) -> Iterator[Row]:
    for stage in STAGES:
        tally = campaign(world, stage, given.kills, given.seed, to="leaderboard")
        differ = {line.partition(":")[0] for line in tally.differ}
        yield (stage, tally.kills, tally.rounds, len(differ)), tally.differ
    for command in COMMANDS:
        wrong = kill(world, command, given.kills, given.seed)
        differ = {line.partition(":")[0] for line in wrong}
        yield (f"`{command}`", given.kills, given.kills, len(differ)), wrong


def disk(world: World, given: argparse.Namespace) -> Iterator[Row]:
    for part, stages in WRITERS.items():
        for stage in stages:
            full, only = full_at_every_write(world, stage, part), read_only(world, stage, part)
            wrong = full.wrong + only.wrong
            yield (f"{part}/", stage, full.failed, len(full.wrong), only.failed, len(only.wrong)), wrong


Part = Callable[[World, argparse.Namespace], Iterator[Row]]
PARTS: dict[str, tuple[tuple[str, ...], Part]] = {
    "kills": (("stage", "kills", "trees compared", "differ"), kills),
    "disk": (("folder", "stage", "times full", "wrong", "read only", "wrong"), disk),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="kills of each stage and command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-write", action="store_true", help="do not change docs/reliability.md")
    given, failed = parser.parse_args(), False
    with tempfile.TemporaryDirectory(prefix="gt-faults-") as folder:
        world = World(Path(folder) / "world")
        for part in given.only:
            start, (columns, rows) = time.monotonic(), PARTS[part]
            lines = ["", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
            try:
                for row, wrong in rows(world, given):
                    lines.append("| " + " | ".join(map(str, row)) + " |")
                    print(*row, *wrong, sep="\n  ", flush=True)
                    failed |= bool(wrong)
            except pytest.skip.Exception as reason:
                print(f"{part}: skipped: {reason}")
                continue
            counts = f"--kills {given.kills} " if part == "kills" else ""
            took = (
                f"`python -m tests.faults {counts}--seed {given.seed} --only {part}`: "
                f"{time.monotonic() - start:.0f} s, {datetime.now(UTC):%Y-%m-%d}, commit {(commit() or 'none')[:12]}, "
                f"{os.cpu_count()} cores, Python {platform.python_version()}."
            )
            if not given.no_write:
                text = "\n".join([*lines, "", took, ""])
                write_between(PAGE, f"<!-- faults: {part} -->", f"<!-- end of {part} -->", text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
