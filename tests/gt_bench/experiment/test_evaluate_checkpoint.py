"""When a score that is computed again is that of the record (`gt-bench score` end to end: test_trained.py)."""

import pytest

from gt_bench.experiment.evaluate_checkpoint import agree


@pytest.mark.parametrize(
    ("now", "processes", "same"),
    [
        ({"accuracy": 0.5}, 1, True),
        ({"accuracy": 0.5 + 1e-16 * 2}, 1, False),  # one process: to the bit
        ({"accuracy": 0.50004}, 2, True),  # several sum in another order
        ({"accuracy": 0.5001}, 2, False),
        ({"accuracy": 0.5, "f1-macro": 0.5}, 2, False),
    ],
)
def test_to_the_bit_unless_several_processes_made_the_record(now, processes, same):
    assert agree(now, {"accuracy": 0.5}, processes) is same
