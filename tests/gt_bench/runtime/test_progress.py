"""Progress without a terminal: plain lines with the progress of the cell and the time left."""

import pytest

from gt_bench.runtime import progress
from gt_bench.runtime.progress import Progress
from tests.gt_bench.cells import ET, changed, make_record


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_have_the_time_left_from_the_second_epoch_on(clock, capsys):
    with Progress("cell", 40, bar=False) as shown:
        shown.start_run("seed 0", 20)
        shown.finish_run(changed(make_record(ET, 0), run={"test": None}), computed=False)  # takes no time
        shown.start_run("seed 1", 20)
        clock[0] += 60
        shown.epoch(4, {"val": 0.5})
        clock[0] += 1  # too soon for another line
        shown.epoch(5, {"val": 0.5})
        clock[0] += 60 * 60
        shown.epoch(10, {"val": 0.25})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "cell seed 0: ok (from the store)",
        "cell seed 1 epoch 4/20 val 0.5",
        "cell seed 1 epoch 10/20 val 0.25 (75 % of the cell, 100.0 min left)",
    ]


def test_the_bar_has_no_rate_before_the_second_epoch(monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("cell", 40) as shown:
        shown.start_run("seed 0", 40)
        shown.epoch(1, {"val": 0.5})
        assert shown.bar.n == shown.bar.format_dict["initial"] == 1
        shown.epoch(3, {"val": 0.5})
        assert (shown.bar.n, shown.bar.format_dict["initial"]) == (3, 1)
