"""The computation of one run: what it writes next to the record, and errors that name the recipe."""

import pytest

from gt_bench.experiment.compute import compute
from gt_bench.records.run import WEIGHTS
from gt_bench.store.predictions import FILE as PREDICTIONS


@pytest.mark.parametrize(("test", "files"), [(True, {PREDICTIONS, WEIGHTS}), (False, set())])
def test_weights_and_predictions_are_saved_unless_it_is_a_trial(make, test, files):
    experiment = make(epochs=1)
    digest = experiment.digest(0, test)
    record = compute(experiment, 0, digest, test, None)
    folder = experiment.store.folder(digest)
    assert {path.name for path in folder.glob("*") if path.stem != "checkpoint"} == files
    assert (record.predictions.sha256 is not None) is test
    assert experiment.store.get(digest) is None, "`Experiment.run` stores the record"
