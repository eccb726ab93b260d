"""Records after a change of code: equal golden values keep the digest, different ones change it."""

import json
from pathlib import Path

from gt_bench.config.grid import load_grid
from gt_bench.experiment import modified_code
from gt_bench.provenance.staleness import freshness
from gt_bench.provenance.transfer import export_cell
from gt_bench.store.run_store import StoreError
from gt_bench.store.shipped_files import read
from tests.gt_bench.shipping import CELL, export, run, train
from tests.refusals import refused

CODE = "f" * 64


def test_an_edit_that_changes_no_number_runs_nothing_again(trained, monkeypatch):
    before = train()
    monkeypatch.setattr("gt_bench.experiment.setup.code_of", lambda model, task: CODE)
    monkeypatch.setattr("gt_bench.experiment.modified_code.differences", lambda wanted: dict.fromkeys(wanted))
    again = train()
    assert again.runs == before.runs
    record = json.loads(next(Path("store").glob("*/*/record.json")).read_text())
    assert record["measured"]["code"] != CODE, "the record is the one of before"


def test_modified_code_runs_under_a_key_of_its_own_and_is_not_exported(trained, monkeypatch):
    before, grid = train(), load_grid()
    export()
    with monkeypatch.context() as patched:
        patched.setattr(
            "gt_bench.experiment.modified_code.differences",
            lambda wanted: dict.fromkeys(wanted, "losses[0] was 1.0, now 2.0"),
        )
        modified = train()
        assert not set(modified.runs) & set(before.runs)
        digests = json.loads(Path("store", modified.runs[0][:2], modified.runs[0], "record.json").read_text())[
            "deterministic"
        ]["digests"]
        assert len(digests["modified"]) == 64
        with refused(StoreError, place=CELL):
            export_cell(grid.find(CELL))
    assert train().runs == before.runs, "undone, the old records count again"


def test_verify_states_which_shipped_cells_the_code_would_compute_otherwise(trained, monkeypatch):
    shipped, grid = read(export()), load_grid()
    monkeypatch.setattr("gt_bench.provenance.staleness.code_of", lambda model, task: CODE)
    for name in ("differences", "known_differences"):
        monkeypatch.setattr(modified_code, name, lambda wanted, **_: dict.fromkeys(wanted, "losses[0] differs"))
    assert [*map(str, freshness(shipped, grid).stale)] == ["code (losses[0] differs)"]
    shown = run("store", "verify")
    assert (shown.exit_code, "stale: code (losses[0] differs)" in shown.output) == (0, True), shown.output
