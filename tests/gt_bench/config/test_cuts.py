"""Limits that cause the reductions of a result."""

import pytest

from gt_bench.config.cuts import PARTS, limits_of, more_than_seeds
from gt_bench.config.params import Limits
from gt_bench.config.protocols import PROTOCOLS
from gt_bench.records.cell import Reduction


@pytest.mark.parametrize("unit", ["seeds", "epochs", *sorted(PARTS)])
def test_a_reduction_is_a_limit_in_its_unit(unit):
    cut = Reduction(unit=unit, have=3, full=10)
    assert limits_of(["derived data: drawn again", cut]) == Limits(**{unit: 3})
    assert more_than_seeds([cut]) == (unit != "seeds")


@pytest.mark.parametrize("cut", ["derived data: 3 of 10 seeds", Reduction(unit="trials", have=3, full=10)])
def test_limits_that_change_no_run_are_reported_as_reduced(cut):
    assert limits_of([cut]) == Limits()
    assert more_than_seeds([cut])


def test_a_limit_can_be_said_of_the_parts_of_every_protocol():
    assert {protocol.UNIT for protocol in PROTOCOLS.values()} == PARTS <= set(Limits.model_fields)
