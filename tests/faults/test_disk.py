"""Folders that are read-only or full; `make test-faults` tests every folder at every write (docs/reliability.md)."""

import pytest

from tests.faults.disk import WRITERS, Tally, full_at, read_only

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", ["data", "store", "mlruns"])
def test_a_folder_that_can_only_be_read_is_named(world, part):
    assert read_only(world, WRITERS[part][0], part) == Tally(failed=1)


@pytest.mark.parametrize("part", ["data", "store", "studies", "reports"])
def test_a_full_disk_is_reported_and_the_same_command_resumes(world, part):
    tally = Tally()
    full_at(world, WRITERS[part][-1], part, 0, tally)
    assert tally == Tally(failed=1)
