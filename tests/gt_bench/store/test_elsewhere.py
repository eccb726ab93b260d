"""Shipped records outside of a project: the installed ones are read in addition, and never written."""

from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.leaderboard.collect import SHIPPED
from gt_bench.pipeline.gather import gather
from gt_bench.provenance.transfer import export_cells, import_cells
from gt_bench.store.shipped_files import ROOT, file_of, read, shipped_paths
from gt_bench.utils.paths import INSTALLED, record_file

GIN, GCN = "edge-transformer/sr25/gin", "edge-transformer/sr25/gcn"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_an_export_goes_to_the_current_folder_and_hides_no_installed_record(elsewhere):
    grid = load_grid()
    before = [path.read_bytes() for path in shipped_paths(grid)]
    import_cells([GIN], grid)
    export_cells([grid.find(GIN)])
    own = record_file(GIN)
    assert own.is_file()
    assert file_of(GIN) == own
    assert file_of(GCN) == record_file(GCN, INSTALLED / ROOT)
    paths = shipped_paths(grid)
    assert own in paths
    assert file_of(GCN) in paths
    assert len(paths) == len(before)  # the exported cell is counted once
    assert [path.read_bytes() for path in sorted((INSTALLED / ROOT).glob("*/records/*/*.json.gz"))] == before
    cells = {key: cell for key, cell in grid.cells.items() if cell.cell in (GIN, GCN)}
    found = gather(grid.model_copy(update={"cells": cells}))
    assert not found.problems
    assert {(SHIPPED, GIN), (SHIPPED, GCN)} <= found.versions.keys()
    assert read(own).cell == GIN
