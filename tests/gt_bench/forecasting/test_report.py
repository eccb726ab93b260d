"""The report of forecasts."""

import pytest

from gt_bench.forecasting.estimate import Forecast
from gt_bench.forecasting.report import markdown, median_error, row, show, totals


def test_totals_errors_and_the_report():
    one = Forecast(
        "a/b/c", "real data", 10.0, 3, 0.0, 5.0, 100.0, {"data/b": 1000, "store/a/b/c": 10}, actual_seconds=8.0
    )
    two = Forecast(
        "a/b/d", "real data", 4000.0, 1, 60.0, 0.0, 300.0, {"data/b": 1000, "store/a/b/d": 20}, actual_seconds=5000.0
    )
    none = Forecast("a/b/e", problem="why\nnot")
    assert totals([one, two, none]) == {"seconds": 30 + 5 + 4060, "memory_mib": 300.0, "bytes": 1030}
    assert median_error([one, two, none]) == pytest.approx((0.25 + 0.2) / 2)
    assert median_error([none]) is None
    assert row(one)[-1] == "+25%"
    assert "no forecast: why not" in row(none)[1]
    text = markdown([one, two, none])
    assert "2 of 3 cells" in text
    assert "median error over 2 cells with records from this device: 22%" in text


def test_a_forecast_of_one_cell_is_printed_once(capsys):
    show([Forecast("a/b/c", "real data", 10.0, 1, 0.0, 0.0, 100.0, {})])
    printed = capsys.readouterr().out
    assert printed.count("100 MiB") == 1
    assert "1 of 1 cells" not in printed
