"""Rows of shipped files are cached, and computed again after a change of their inputs."""

import os
import shutil

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.leaderboard import collect, remembered
from gt_bench.pipeline import gather as gather_module
from gt_bench.provenance.staleness import freshness
from gt_bench.utils.paths import record_file
from tests.conftest import ROOT

CELL = "edge-transformer/cornell/gcn"


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """A copy of one shipped record; `rows_of` counts its calls."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(remembered, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(remembered, "_kept", lambda _: True)
    path = record_file(CELL, tmp_path / "suites")
    path.parent.mkdir(parents=True)
    shutil.copy(record_file(CELL, ROOT / "suites"), path)
    calls, rows_of = [], collect.rows_of
    monkeypatch.setattr(collect, "rows_of", lambda *given: calls.append(1) or rows_of(*given))
    grid = load_grid()
    grid = grid.model_copy(update={"cells": {key: c for key, c in grid.cells.items() if c.cell == CELL}})
    empty = tmp_path / "empty"

    def gather():
        return gather_module.gather(grid, empty, empty, tmp_path / "suites")

    return gather, path, calls


def test_the_second_time_nothing_is_computed_and_the_rows_are_the_same(counted):
    gather, _, calls = counted
    first = gather()
    second = gather()
    assert len(calls) == 1
    assert len(first.rows) == 1
    assert second.rows == first.rows
    assert second.versions["shipped", CELL].stale == first.versions["shipped", CELL].stale


def test_a_changed_record_code_or_recipe_is_computed_again(counted, monkeypatch):
    gather, path, calls = counted
    checked = []
    monkeypatch.setattr(gather_module, "freshness", lambda *given: checked.append(1) or freshness(*given))
    gather()
    monkeypatch.setattr(remembered, "models_stamp", lambda: "edited models")
    for _ in range(2):
        gather()
    assert (len(calls), len(checked)) == (1, 2)  # the rows are the same, and may be stale
    os.utime(path, (1, 1))
    gather()
    assert len(calls) == 2
    monkeypatch.setattr(remembered, "benchmark_stamp", lambda: "another")
    gather()
    assert len(calls) == 3
