"""Units of metrics, and values of metrics as text. Rows and records store fractions; percentages are for readers.

A percentage has two decimals. Other values have four significant digits, or fewer if they are exact with fewer. A
mean and its standard deviation, or a difference and its interval, have the same decimals: the number with the largest
absolute value decides. A spread below half a unit of the last decimal is shown as 0.00...
"""

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum

# shown as percentages where a paper does not state the unit
PERCENT = {
    *("accuracy", "balanced-accuracy", "roc-auc", "f1-macro", "f1-micro", "f1-binary", "ordered-pair-accuracy", "mrr"),
    *("hits@1", "hits@3", "hits@5", "hits@10", "hits@20", "hits@50", "hits@100"),
}
SIGNIFICANT = 4


class Unit(StrEnum):
    """The unit in which a number is shown. Percentages are stored as fractions."""

    PERCENT = "percent"
    FRACTION = "fraction"
    DEVIATIONS = "deviations"  # standard deviations of the targets; of mse variances. Of our numbers alone
    NONE = "none"


def span_of(metric: str) -> float:
    """Returns the largest possible difference of two values of a metric: 1 for shares, otherwise infinite."""
    return 1.0 if metric in PERCENT else math.inf


def half_up(value: float, decimals: int) -> float:
    """Rounds a value whose last half is exact in decimal digits up, as readers do: 50.75 to 50.8."""
    exact = Decimal(repr(round(value, 12)))
    return float(exact.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)) if exact.is_finite() else value


def arrow(direction: str | None) -> str:
    """Returns the arrow of a metric: whether larger ("max") or smaller is better."""
    return "↑" if direction == "max" else "↓"


def metric_label(metric: str) -> str:
    """Returns the name of a metric with its unit: `accuracy %`."""
    return f"{metric} %" if metric in PERCENT else metric


def number_texts(values: Sequence[float], percent: bool) -> list[str]:
    """Returns values of one metric as text, all with the same decimals.

    Args:
        values: the values; percentages as fractions.
        percent: whether they are shown as percentages.
    """
    if percent:
        return [f"{half_up(100 * value, 2):.2f}" for value in values]
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    exponent = int(f"{largest:.{SIGNIFICANT - 1}e}".split("e")[1])
    if not -5 < exponent < 6:  # 1.234e-07 and 0.300e-07
        return [f"{value / 10**exponent:.{SIGNIFICANT - 1}f}e{exponent:+03d}" for value in values]
    most = max(0, SIGNIFICANT - 1 - exponent)
    decimals = next((n for n in range(most) if all(round(value, n) == value for value in values)), most)
    return [f"{value:.{decimals}f}" for value in values]


def number_text(value: float | None, percent: bool) -> str:
    """Returns one value of a metric as text; a dash for None."""
    return "–" if value is None else number_texts([value], percent)[0]


def mean_and_std(mean: float | None, std: float | None, percent: bool) -> str:
    """Returns a mean as text, with its standard deviation if there is one: `0.5607 ± 0.0145`."""
    if mean is None or std is None:
        return number_text(mean, percent)
    return " ± ".join(number_texts([mean, std], percent))


def difference_text(difference: float | None, interval: Sequence[float] | None, percent: bool) -> str:
    """Returns a difference as text, with its interval if there is one: `+0.0896 [0.0260, 0.1531]`."""
    if difference is None:
        return "–"
    texts = number_texts([difference, *(interval or ())], percent)
    text, *ends = (text.removeprefix("-") if float(text) == 0 else text for text in texts)
    return ("+" if float(text) > 0 else "") + text + (f" [{', '.join(ends)}]" if ends else "")
