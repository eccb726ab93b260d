"""A few seeded kills of each stage; `make test-faults` makes more, and kills `tracking` too (docs/reliability.md)."""

import pytest

from tests.faults.kills import campaign
from tests.faults.world import STAGES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "tracking"])
def test_killed_by_signal_9_and_run_again_nothing_differs(world, stage):
    kills = 1 if stage == "leaderboard" else 2
    tally = campaign(world, stage, kills)
    assert (tally.kills, tally.differ) == (kills, [])
