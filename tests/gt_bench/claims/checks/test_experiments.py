"""Verdicts on small results of experiments: on either side of a claim, and in between."""

import pytest

from gt_bench.claims.checks.registry import find_check


@pytest.mark.parametrize(
    ("errors", "kept_says", "lost_says"),
    [((0.0, 0.1), True, False), ((0.0, 0.6), None, None), ((0.6, 0.9), False, True)],
)
def test_magnitudes(kept, errors, kept_says, lost_says):
    kept({f"rms, width {number}": {"magnitude": error} for number, error in enumerate(errors)})
    for magnitude_is_kept, verdict in ((True, kept_says), (False, lost_says)):
        assert find_check("magnitude_kept")(paper="ppgt", norm="rms", kept=magnitude_is_kept).holds is verdict


@pytest.mark.parametrize(
    ("with_it", "without_it", "verdict"),
    [(1.0, 0.5, True), (1.0, 0.95, None), (1.0, 1.0, False), (0.95, 0.5, None), (0.5, 0.5, False)],
)
def test_a_relation_is_learnt_by_the_one_and_not_by_the_other(kept, with_it, without_it, verdict):
    kept(
        {
            f"{name}, 2 steps": {"f1": 1.0, "larger": 1.0, "twins": least}
            for name, least in (("ET", with_it), ("on nodes", without_it))
        }
    )
    assert find_check("relation")(paper="edge-transformer", model="ET", steps=2, without="on nodes").holds is verdict


@pytest.mark.parametrize(("nearest", "verdict"), [(1.0, True), (0.99, False)])
def test_the_nearest_key_in_every_draw(kept, nearest, verdict):
    kept({"sL2": {"width 8": {"nearest": nearest, "longest": 0.1}, "width 64": {"nearest": 1.0, "longest": 0.1}}})
    assert find_check("nearest_key")(paper="ppgt", form="sL2").holds is verdict
