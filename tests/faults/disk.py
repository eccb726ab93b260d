"""A disk that is full at each write in turn, and a read-only disk: a small tmpfs replaces each folder in turn."""

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
    "data": ("download", "encode"), "state": ("state",), "store": ("tune", "train"), "studies": ("tune",),
    "tuned": ("tune",), "results": ("train",),
    "reports": ("leaderboard",), "mlruns": ("tracking",),
}  # fmt: skip


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system with the content of `folder` over it: 2 MiB, or 8 MiB for the larger tracking store."""
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
    """Fill the disk except for this number of pages."""
    ballast = folder / ".ballast"
    room = os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, (room.f_bavail - pages) * room.f_bsize)))
    return ballast


@dataclass
class Tally:
    """`failed`: how often the disk was full; `wrong`: descriptions of errors."""

    failed: int = 0
    wrong: list[str] = field(default_factory=list)


def judged(name: str, child, said_of_disk: str) -> tuple[bool, list[str]]:
    """Return whether the stage met the fault, and what is wrong with its message."""
    said = child.said
    met = child.status != 0 or "warning: MLflow" in said
    wrong = [f"{name}: a traceback: {said[-1500:]}"] if "Traceback" in said else []
    if met and not re.search(said_of_disk, said):
        wrong.append(f"{name}: status {child.status} and not said: {said[-600:]}")
    if child.status not in (0, 1):
        wrong.append(f"{name}: status {child.status}")
    return met, wrong


def full_at(world: World, stage: str, part: str, pages: int, tally: Tally) -> bool:
    """Run a stage with this number of free pages in `part`, then free the disk and run it again.

    Returns:
        Whether the disk was full.
    """
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


def full_at_every_write(world: World, stage: str, part: str) -> Tally:
    """Run a stage with no free page, then with more and more of them until it succeeds."""
    tally, pages = Tally(), 0
    while full_at(world, stage, part, pages, tally):
        pages += max(1, pages // 4)  # a database has hundreds of pages
    return tally


def read_only(world: World, stage: str, part: str) -> Tally:
    """Run a stage while `part` is read-only, then again."""
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
