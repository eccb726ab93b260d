"""Progress of a cell: seeds in the store, and the results of cells whose training was killed."""

import shutil
from pathlib import Path

from gt_bench.config.grid import load_grid
from gt_bench.experiment.status import stored_seeds, unfinished
from gt_bench.pipeline.cell_list import listing
from gt_bench.store.run_store import Store
from tests.gt_bench.shipping import CELL


def test_a_seed_counts_while_its_record_is_there(trained):
    grid = load_grid()
    cell = grid.find(CELL)
    runs, asked = stored_seeds(cell, grid)
    assert len(runs) == asked == 2
    assert listing([cell], grid)[0][0] | {"settings": ""} == {
        "cell": CELL,
        "settings": "",
        "seeds": "2/2",
        "state": "ok",
    }
    # without data, digests cannot be computed: the runs listed in the result are used
    Path("data").rename("elsewhere")
    assert stored_seeds(cell, grid) == (runs, 2)
    Path("elsewhere").rename("data")
    shutil.rmtree(Store().folder(runs[0]))
    assert stored_seeds(cell, grid) == (runs[1:], 2)
    shutil.rmtree("results")
    assert [one["state"] for one in listing([cell], grid)[0]] == ["begun"]
    result = unfinished(cell, grid, "killed")
    assert (result.status, result.reason, result.runs, result.metric) == ("unfinished", "killed", runs[1:], "accuracy")


def test_a_damaged_record_is_listed_as_such(trained):
    grid = load_grid()
    cell, store = grid.find(CELL), Store()
    paths = [store.folder(digest) / "record.json" for digest in stored_seeds(cell, grid)[0]]
    paths[0].write_text(paths[0].read_text().replace('"test": 0.', '"test": 0.9', 1))
    paths[1].write_text("{")
    ((line,), problems) = listing([cell], grid)
    assert (line["seeds"], line["state"]) == ("0/2", "damaged")
    assert len(problems) == 2
    assert all(any(str(path) in problem for problem in problems) for path in paths)


def test_a_damaged_result_is_reported(trained):
    grid = load_grid()
    Path("results", f"{CELL}.json").write_text("{")
    found, problems = listing([grid.find(CELL)], grid)
    assert [(one["seeds"], one["state"]) for one in found] == [("?", "unreadable")]
    assert len(problems) == 1
    assert f"{CELL}.json" in problems[0]
