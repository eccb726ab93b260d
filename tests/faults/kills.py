"""kill -9 at a random moment of a stage, then run it and all later stages: the result must be identical bit for bit.

Half of the moments are random times, half are random changes to files: a kill between two changes may leave half of the
work.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.world import STAGES, World, again, started

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.link", "sqlite3.connect"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Tally:
    kills: int = 0
    rounds: int = 0
    differ: list[str] = field(default_factory=list)


def counted(stage: str, until: int | None, note: Path) -> Callable[[], None]:
    """The work of a stage, killed at the given change to a file; if it ends before, `note` has their number."""

    def work() -> None:
        seen, process = 0, os.getpid()

        def hook(event: str, arguments: tuple) -> None:
            nonlocal seen
            changes = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING)
            if changes and os.getpid() == process:
                seen += 1
                if seen == until:
                    os.kill(process, signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            STAGES[stage].work()
        finally:
            note.write_text(str(seen))

    return work


def kill_one(world: World, stage: str, folder: Path, draw: random.Random, by_change: bool, changes: int) -> bool:
    """Return whether a process of the stage was killed before it ended."""
    note = folder.with_name(f"{folder.name}.note")
    if by_change:
        child = started(counted(stage, draw.randint(1, changes), note), folder).end()
    else:
        child = started(STAGES[stage].work, folder)
        time.sleep(draw.uniform(0, world.seconds[stage]))
        child.kill() if child.is_alive() else child.process.join()
    assert child.status in (0, -signal.SIGKILL), f"{stage}: status {child.status}: {child.said}"
    return child.status == -signal.SIGKILL


def changes_of(world: World, stage: str) -> int:
    """Return how many changes to files an undisturbed stage makes."""
    folder = world.fresh(stage, f"{stage}-counted")
    note = folder.with_name(f"{folder.name}.note")
    assert started(counted(stage, None, note), folder).end().status == 0
    return int(note.read_text())


def campaign(world: World, stage: str, kills: int, seed: int = 0, in_a_row: int = 2, to: str | None = None) -> Tally:
    """Kill a stage again and again, and compare the files.

    After at most `in_a_row` kills the stage runs to its end; every fifth time the stages up to `to` run as well.
    """
    world.seconds.setdefault(stage, 5.0)
    draw, tally, changes = random.Random(f"{stage} {seed}"), Tally(), changes_of(world, stage)
    while tally.kills < kills:
        folder = world.fresh(stage, f"{stage}-{tally.rounds}")
        for _ in range(min(in_a_row, kills - tally.kills)):
            tally.kills += kill_one(world, stage, folder, draw, tally.kills % 2 == 0, changes)
        tally.rounds += 1
        tally.differ += [
            f"{folder.name}: {name}"
            for name in world.wrong(again(stage, folder, to if tally.rounds % 5 == 1 else None), folder)
        ]
        shutil.rmtree(folder)
    return tally
