"""A clock that jumps while a stage runs, and files with the dates of another clock."""

import os
import shutil
import time
from itertools import cycle

import pytest

from tests.faults.world import STAGES, do

pytestmark = pytest.mark.slow

YEARS = 10 * 365 * 86400.0


def jumping(stage: str, by: float):
    """Run the stage with a clock that jumps at its fifth reading."""

    def work() -> None:
        real, read = time.time, [0]

        def now() -> float:
            read[0] += 1
            return real() + (by if read[0] > 4 else 0.0)

        time.time = now
        STAGES[stage].work()

    return work


def test_a_clock_that_jumps_changes_nothing(world, tmp_path):
    folder = shutil.copytree(world.folder / "before" / "state", tmp_path / "project")
    for stage, by in zip(world.after, cycle((-YEARS, YEARS))):
        if stage != "tracking":
            child = do(jumping(stage, by), folder)
            assert child.status == 0, child.said
            for path in folder.rglob("*"):
                os.utime(path, (time.time() - by, time.time() - by))
    assert world.wrong("leaderboard", folder) == []
    before = {path: path.stat().st_mtime_ns for path in folder.glob("store/??/*/record.json")}
    assert do("train", folder).status == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before, "computed again"
