"""One damage to each kind of file; `make test-faults` makes many (docs/reliability.md)."""

import shutil
from itertools import cycle

import pytest

from tests.faults.corruption import DAMAGES, FILES, damage

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("what", "how"), zip(FILES, cycle(DAMAGES)))
def test_a_damaged_file_is_named_or_set_aside_and_made_again(world, tmp_path, what, how):
    assert damage(world, shutil.copytree(world.work, tmp_path / "finished"), what, how, seed=0) == []
