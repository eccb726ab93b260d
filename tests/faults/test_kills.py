"""A few seeded kills of each stage; `make test-faults` makes fifty of each (docs/reliability.md)."""

import pytest

from tests.faults.kills import campaign
from tests.faults.world import STAGES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stage", STAGES)
def test_killed_by_signal_9_and_run_again_nothing_differs(world, stage):
    kills = 1 if stage in ("leaderboard", "tracking") else 2  # they take seconds
    tally = campaign(world, stage, kills)
    assert (tally.kills, tally.differ) == (kills, [])
