"""Limits of a cell as text, and parsed again."""

import pytest

from gt_bench.config.cuts import PARTS, Cut, cut_in, limits_in, seeds_in
from gt_bench.config.params import Limits
from gt_bench.config.protocols import PROTOCOLS


@pytest.mark.parametrize("unit", ["seeds", "epochs", *sorted(PARTS)])
def test_a_cut_is_read_as_it_was_written(unit):
    cut = Cut(3, 10, unit)
    assert cut_in(str(cut)) == cut
    assert limits_in(["derived data: drawn again", str(cut)]) == Limits(**{unit: 3})
    assert seeds_in(str(cut)) == (cut if unit == "seeds" else None)


@pytest.mark.parametrize(
    "line", ["derived data: 3 of 10 seeds", "3 of 10 trials", "3 of 10 seeds, and more", "seeds", ""]
)
def test_what_is_no_cut_limits_nothing(line):
    assert cut_in(line) is seeds_in(line) is None
    assert limits_in([line]) == Limits()


def test_a_limit_can_be_said_of_the_parts_of_every_protocol():
    assert {protocol.UNIT for protocol in PROTOCOLS.values()} == PARTS <= set(Limits.model_fields)
