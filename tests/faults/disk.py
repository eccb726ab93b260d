"""A disk that is full at every write in turn, and one that can only be read: a small tmpfs in the place of each folder that the chain writes to."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.world import World, again, do

PAGE = 4096
# folder -> the stages that write to it
WRITERS = {
    "data": ("download", "encode"), "state": ("state",), "store": ("tune", "train"), "studies": ("tune",), "tuned": ("tune",), "results": ("train",),
    "reports": ("leaderboard",), "mlruns": ("tracking",),
}  # fmt: skip


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """`folder`, with what it holds, as a file system of its own of 2 MiB; for the tracking store, whose database is larger, 8 MiB."""
    size = "8m" if folder.name == "mlruns" else "2m"
    aside = folder.parent.with_name(f"{folder.parent.name}.aside")
    if folder.exists():
        folder.rename(aside)
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        if aside.exists():
            shutil.copytree(aside, folder, dirs_exist_ok=True)
            shutil.rmtree(aside)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path, pages: int) -> Path:
    """A file that leaves so many pages of the disk."""
    ballast = folder / ".ballast"
    room = os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, (room.f_bavail - pages) * room.f_bsize)))
    return ballast


@dataclass
class Tally:
    """`failed`: how often the disk was full; `wrong`: what was not as it should be."""

    failed: int = 0
    wrong: list[str] = field(default_factory=list)


def judged(name: str, child, said_of_disk: str) -> tuple[bool, list[str]]:
    """(whether the stage met the fault, what was wrong with how it said so)."""
    said = child.said
    met = child.status != 0 or "warning: MLflow" in said
    wrong = [f"{name}: a traceback: {said[-1500:]}"] if "Traceback" in said else []
    if met and not re.search(said_of_disk, said):
        wrong.append(f"{name}: status {child.status} and not said: {said[-600:]}")
    if child.status not in (0, 1):
        wrong.append(f"{name}: status {child.status}")
    return met, wrong


def full_at(world: World, stage: str, part: str, pages: int, tally: Tally) -> bool:
    """Runs a stage with so many pages left in `part`, then makes room and runs it again; whether the disk was full."""
    name = f"{stage}-{part}-{pages}"
    folder = world.fresh(stage, name)
    with small_disk(folder / part):
        ballast = fill(folder / part, pages)
        met, wrong = judged(
            name, do(stage, folder), r"disk is full|free some space|No space left|database or disk is full"
        )
        ballast.unlink()
        wrong += [f"{name}: {file}" for file in world.wrong(again(stage, folder), folder)]
    tally.failed += met
    tally.wrong += wrong
    shutil.rmtree(folder)
    return met


def full_at_every_write(world: World, stage: str, part: str, steps: int = 1) -> Tally:
    """With no page left, then with ever more of them until the stage ends well."""
    tally, pages = Tally(), 0
    while full_at(world, stage, part, pages, tally):
        pages += max(steps, pages // 8)  # a database has hundreds of pages
    return tally


def read_only(world: World, stage: str, part: str) -> Tally:
    """Runs a stage while `part` can only be read, then again."""
    tally, folder = Tally(), world.fresh(stage, f"{stage}-{part}-read-only")
    with small_disk(folder / part):
        subprocess.run(["mount", "-o", "remount,ro", folder / part], check=True)
        met, tally.wrong = judged(
            f"{stage}, {part} read only", do(stage, folder), rf"{part}.*(cannot be written|[Rr]ead-?only)"
        )
        if not met:
            tally.wrong.append(f"{stage}: wrote nothing to {part}")
        tally.failed += met
        subprocess.run(["mount", "-o", "remount,rw", folder / part], check=True)
        tally.wrong += [f"{stage}, {part} read only: {file}" for file in world.wrong(again(stage, folder), folder)]
    shutil.rmtree(folder)
    return tally
