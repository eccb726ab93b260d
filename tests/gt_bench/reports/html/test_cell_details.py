"""The details of one cell on the page."""

from gt_bench.reports.html.cell_details import POINTS, curves, learning_curves
from tests.gt_bench.cells import ET, changed, make_record


def run_of(**curves):
    return changed(make_record(ET, 0), run={"epochs": curves}).run


def test_curves_are_the_middle_and_the_range_at_few_points():
    runs = [run_of(epoch=list(range(1, 1001)), val=[float(e + shift) for e in range(1, 1001)]) for shift in (0, 10)]
    runs.append(run_of(epoch=[1, 2], val=[51.0, float("nan")]))  # ended early
    curve = curves(runs, "val")
    assert len(curve["epoch"]) <= POINTS + 1
    assert (curve["epoch"][0], curve["epoch"][-1]) == (1, 1000)
    assert (curve["low"][0], curve["median"][0], curve["high"][0]) == (1.0, 11.0, 51.0)
    assert (curve["low"][-1], curve["high"][-1]) == (1000.0, 1010.0)
    assert curves([run_of(epoch=[1], val=[0.5])], "val") is None


def test_a_run_without_validation_has_no_learning_curve():
    """An entry of BREC's runs is a pair: its training losses are not those of one model over time."""
    epochs = {"epoch": [1, 2], "train_loss": [0.5, 0.1]}
    assert learning_curves([run_of(**epochs, val=[None, None])]) == {}
    assert learning_curves([run_of(**epochs, val=[0.3, 0.4])]).keys() == {"val", "train_loss"}
