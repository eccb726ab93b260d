"""A few seeded kills of each stage, and of `try`, `work` and `reproduce`.

`make test-faults` makes more, and kills `tracking` too (docs/reliability.md).
"""

from itertools import pairwise

import pytest

from tests.faults.commands import COMMANDS, kill
from tests.faults.kills import campaign
from tests.faults.world import STAGES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "tracking"])
def test_killed_by_signal_9_and_run_again_nothing_differs(world, stage):
    kills = {"leaderboard": 1, "tune": 4}.get(stage, 2)
    tally = campaign(world, stage, kills)
    assert (tally.kills, tally.differ) == (kills, [])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_by_signal_9_and_run_again_makes_the_same_files(world, command):
    assert kill(world, command, 1) == []


def test_every_stage_changes_files(world):
    files = [world.after[stage] for stage in STAGES if stage != "tracking"]
    assert all(before != after for before, after in pairwise(files))
    assert any(name.startswith("other/store/") for name in world.after["import"])
