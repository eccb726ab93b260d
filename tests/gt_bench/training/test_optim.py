"""Learning-rate schedules against their formulas."""

import math

import pytest

from gt_bench.config.recipe_sections import ScheduleSection
from gt_bench.training.optim import lr_factor


def factors(total=20, validation=(), direction="max", **section):
    return [lr_factor(ScheduleSection(**section), i, total, list(validation)[:i], direction) for i in range(total)]


def test_cosine_with_warmup_is_the_formula():
    values = factors(name="cosine", warmup=4, start_factor=1e-6)
    assert values[:5] == [1e-6, 0.25, 0.5, 0.75, 1.0]
    assert values[12] == pytest.approx(0.5 * (1 + math.cos(math.pi * 8 / 16)))
    assert values[19] == pytest.approx(0.5 * (1 + math.cos(math.pi * 15 / 16)))


def test_linear_ends_at_its_final_factor_and_constant_stays():
    values = factors(name="linear", warmup=5, final_factor=0.1)
    assert values[5] == 1.0
    assert values[19] == pytest.approx(0.1 + 0.9 * (1 - 14 / 15))
    assert set(factors(name="constant")) == {1.0}


def test_plateau_halves_after_patience_without_a_better_value():
    values = factors(8, [0.5, 0.6, 0.6, 0.6, 0.6, 0.7, 0.7], name="plateau", patience=2)
    # best at epoch 2; patience covers epochs 3 and 4, not 5
    assert values == [1, 1, 1, 1, 1, 0.5, 0.5, 0.5]
    assert factors(8, [0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0], "min", name="plateau", patience=2) == [1.0] * 8


def test_a_schedule_may_end_before_training_does():
    section = ScheduleSection(name="linear", final_factor=0.25, total=4)
    values = [lr_factor(section, i, 8, [], "max") for i in range(8)]
    assert values == [1.0, 0.8125, 0.625, 0.4375, 0.25, 0.25, 0.25, 0.25]


def test_steps_multiply_after_every_so_many():
    assert factors(total=7, name="step", factor=0.25, every=3) == [1.0, 1.0, 1.0, 0.25, 0.25, 0.25, 0.0625]
    assert factors(total=5, name="step", factor=0.5, every=2, warmup=2, start_factor=0.5) == [0.5, 0.5, 1.0, 1.0, 0.5]
