"""The details of one cell on the page."""

from gt_bench.reports.html.cell_details import POINTS, curves


def test_curves_are_the_middle_and_the_range_at_few_points():
    runs = [
        {"epochs": {"epoch": list(range(1, 1001)), "val": [float(e + shift) for e in range(1, 1001)]}}
        for shift in (0, 10, 50)
    ]
    runs[2]["epochs"] = {"epoch": [1, 2], "val": [51.0, float("nan")]}  # ended early
    curve = curves(runs, "val")
    assert len(curve["epoch"]) <= POINTS + 1
    assert (curve["epoch"][0], curve["epoch"][-1]) == (1, 1000)
    assert (curve["low"][0], curve["median"][0], curve["high"][0]) == (1.0, 11.0, 51.0)
    assert (curve["low"][-1], curve["high"][-1]) == (1000.0, 1010.0)
    assert curves([{"epochs": {"epoch": [1], "val": [0.5]}}], "val") is None
