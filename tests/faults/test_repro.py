"""`dvc repro` killed with its stage and alone; `make test-faults` makes many kills, and two at once."""

import pytest

pytest.importorskip("dvc")

from tests.faults.repro import Repro

pytestmark = pytest.mark.slow


def test_dvc_killed_by_signal_9_and_make_reproduce_nothing_differs(world):
    tally = Repro(world).campaign(kills=2, pairs=0)
    assert (tally.killed, tally.wrong) == (2, [])
