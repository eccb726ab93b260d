"""Learning curves of a cell."""

import json

import pytest

from gt_bench.records.run import RunRecord
from gt_bench.tracking.figures import learning_curves
from tests.gt_bench.cells import records


@pytest.mark.slow
def test_curves_are_drawn_the_same_each_time_also_for_a_run_that_failed():
    runs = records(failed=("diverged",))
    picture = learning_curves("a cell", runs)
    assert picture.startswith(b"\x89PNG")
    read = [RunRecord.from_disk(json.loads(json.dumps(one.to_disk()))) for one in runs]
    assert picture == learning_curves("a cell", read)
    assert picture != learning_curves("a cell", runs[:2])
    from matplotlib import style

    with style.context("ggplot"):
        assert picture == learning_curves("a cell", runs)
