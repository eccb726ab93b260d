"""The fault campaign, which writes its results into docs/reliability.md: make test-faults.

    python -m tests.faults [--kills 50] [--slow-kills 50] [--repros 50] [--pairs 10] [--damages 10] [--seed 0]
        [--stages NAME ...] [--only kills|repro|disk|files|tests ...] [--no-write]

The exit status is 1 if any file differs from an undisturbed run. As root it also mounts full and read-only disks.
"""

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.cells import write_between
from gt_bench.runtime.environment import commit
from tests.faults import page
from tests.faults.corruption import DAMAGES, FILES, damage
from tests.faults.disk import WRITERS, full_at_every_write, read_only
from tests.faults.kills import campaign
from tests.faults.repro import Repro
from tests.faults.world import STAGES, World

SLOW = ("leaderboard", "tracking")  # they take seconds
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
Found = tuple[list[str], list[str]]  # lines for the page, errors


def table(*rows: tuple) -> list[str]:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def kills(world: World, given: argparse.Namespace) -> Found:
    rows: list[tuple] = [("stage", "kills", "trees compared", "differ", "s")]
    wrong = []
    for stage in given.stages:
        start = time.monotonic()
        count = given.kills if stage not in SLOW else min(given.kills, given.slow_kills)
        tally = campaign(world, stage, count, given.seed, to="leaderboard")
        differ = {line.partition(":")[0] for line in tally.differ}
        rows.append((stage, tally.kills, tally.rounds, len(differ), f"{time.monotonic() - start:.0f}"))
        wrong += tally.differ
        say(rows[-1], tally.differ)
    return table(*rows), wrong


def repro(world: World, given: argparse.Namespace) -> Found:
    start = time.monotonic()
    tally = Repro(world).campaign(given.repros, given.pairs, given.seed)
    columns = ("kills", "two at once", "of these refused", "lock files repaired", "trees compared", "wrong", "s")
    seconds = f"{time.monotonic() - start:.0f}"
    row = (tally.killed, given.pairs, tally.refused, tally.repaired, tally.rounds, len(tally.wrong), seconds)
    say(row, tally.wrong)
    return table(columns, row), tally.wrong


def disk(world: World, given: argparse.Namespace) -> Found:
    rows: list[tuple] = [("folder", "stage", "times full", "wrong", "read only", "wrong")]
    wrong = []
    for part, stages in WRITERS.items():
        for stage in stages:
            full, only = full_at_every_write(world, stage, part), read_only(world, stage, part)
            rows.append((f"{part}/", stage, full.failed, len(full.wrong), only.failed, len(only.wrong)))
            wrong += full.wrong + only.wrong
            say(rows[-1], full.wrong + only.wrong)
    return table(*rows), wrong


def files(world: World, given: argparse.Namespace) -> Found:
    rows: list[tuple] = [("file", "read by", "made by", "damages", "wrong")]
    wrong, draw = [], random.Random(given.seed)
    for what, (_, reader, maker) in FILES.items():
        before = len(wrong)
        for number in range(given.damages):
            finished = Path(shutil.copytree(world.work, world.folder / f"damaged-{what}-{number}".replace(" ", "-")))
            wrong += damage(world, finished, what, list(DAMAGES)[number % len(DAMAGES)], draw.randrange(10**6))
            shutil.rmtree(finished)
        rows.append((what, reader, maker, given.damages, len(wrong) - before))
        say(rows[-1], wrong[before:])
    return table(*rows), wrong


def tests(_: World | None, given: argparse.Namespace) -> Found:
    return page.table(page.counted()), []


PARTS: dict[str, Callable[[World, argparse.Namespace], Found]] = {
    "kills": kills,
    "repro": repro,
    "disk": disk,
    "files": files,
    "tests": tests,
}


def say(row: tuple, wrong: Sequence[str]) -> None:
    """Print a row immediately, so that a campaign that is stopped has reported what it found."""
    print(*row, sep="\t")
    for line in wrong:
        print(f"  {line}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="kills of each stage")
    parser.add_argument("--slow-kills", type=int, default=50, help=f"kills of {' and '.join(SLOW)}")
    parser.add_argument("--repros", type=int, default=50, help="kills of `dvc repro`")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of `dvc repro` at once")
    parser.add_argument("--damages", type=int, default=10, help="damages of each kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES), help="stages to kill")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-write", action="store_true", help="do not change docs/reliability.md")
    given, failed = parser.parse_args(), False
    with tempfile.TemporaryDirectory(prefix="gt-faults-") as folder:
        world = World(Path(folder) / "world") if {*given.only} - {"tests"} else None
        for part in given.only:
            start = time.monotonic()
            try:
                lines, wrong = PARTS[part](world, given)
            except pytest.skip.Exception as reason:
                print(f"{part}: skipped: {reason}")
                continue
            if wrong:
                lines += [
                    "",
                    f"**Wrong**, {len(wrong)}:",
                    "",
                    *(f"- `{' '.join(line.split())[:300]}`" for line in wrong),
                ]
            print(*lines, sep="\n", flush=True)
            failed |= bool(wrong)
            took = (
                f"`python -m tests.faults {command(part, given)}`: {time.monotonic() - start:.0f} s, "
                f"{datetime.now(UTC):%Y-%m-%d}, commit {(commit() or 'none')[:12]}, {os.cpu_count()} cores, "
                f"Python {platform.python_version()}."
            )
            if not given.no_write:
                write_between(
                    PAGE, f"<!-- faults: {part} -->", f"<!-- end of {part} -->", "\n".join(["", *lines, "", took, ""])
                )
    return int(failed)


def command(part: str, given: argparse.Namespace) -> str:
    stages = "" if given.stages == list(STAGES) else f"--stages {' '.join(given.stages)} "
    options = {
        "kills": f"--kills {given.kills} --slow-kills {given.slow_kills} {stages}",
        "repro": f"--repros {given.repros} --pairs {given.pairs} ",
        "files": f"--damages {given.damages} ",
    }
    return f"{options.get(part, '')}--seed {given.seed} --only {part}"


if __name__ == "__main__":
    sys.exit(main())
