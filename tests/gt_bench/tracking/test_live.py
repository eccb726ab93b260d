"""No tracking store can affect training: it waits for nothing, and a store that cannot be used costs one warning."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from gt_bench.tracking.live import Live
from gt_bench.tracking.sqlite import TrackingError
from gt_bench.tracking.sync import complete
from tests.gt_bench.tracking.conftest import ET, SUITE, cell_of, snapshot, start, train


def assert_harmless(capfd, world, uri: str, *, during=None, seconds: float = 300.0) -> str:
    """Train a cell with a tracker that cannot work; return the warning."""
    result, records = world.results[0], world.by_cell[ET]
    began = time.monotonic()
    live = start(result, records[0])
    for record in records:
        before = time.monotonic()
        train(live, record)
        live.finish_seed(record)
        assert time.monotonic() - before < 0.5, "training waited for the tracker"
        if during:
            during()
    live.close(result, records)
    assert time.monotonic() - began < seconds
    err = capfd.readouterr().err
    assert err.count("warning: MLflow") == 1, err
    assert uri in err
    assert "python -m stages.leaderboard edge-transformer" in err
    assert "Traceback" not in err
    return err


@pytest.mark.slow
def test_a_server_that_is_down_costs_one_warning(world, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert_harmless(capfd, world, "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match="http://127.0.0.1:9/"):
        complete(SUITE, world.results, world.records)


@pytest.mark.slow
def test_a_store_that_dies_midway_costs_one_warning_and_is_completed_later(store, world, rebuilt, capfd):
    uri = store("dies")
    path = Path(uri.removeprefix("sqlite:///"))
    saved = path.with_suffix(".saved")

    def die():
        deadline = time.monotonic() + 100
        while not saved.exists() and time.monotonic() < deadline:
            if any((path.parent / "artifacts").rglob("record.json")):
                path.rename(saved)
                path.write_bytes(b"this is no database" * 1000)
            time.sleep(0.05)

    assert_harmless(capfd, world, uri, during=die)
    assert saved.exists(), "the tracker never got to its first run"
    os.replace(saved, path)
    complete(SUITE, world.results, world.records)
    assert snapshot(uri) == rebuilt


def test_a_short_cell_has_no_process_that_tracks(world, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    result, records = world.results[0], world.by_cell[ET]
    live = Live(cell_of(result), result.recipe, {"name": "cornell", "digest": "0" * 64})
    train(live, records[0])
    live.finish_seed(records[0])
    live.close(result, records)
    live._timer.join()
