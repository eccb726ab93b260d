"""The training of a cell returns one event, and writes nothing but the store."""

import contextlib
from pathlib import Path

from gt_bench.config.grid import load_grid
from gt_bench.experiment.train_cell import train
from gt_bench.experiment.train_seeds import Watch
from gt_bench.runtime.progress import Progress
from gt_bench.store.run_store import Store

CELL = "small/web/mlp"


def trained():
    @contextlib.contextmanager
    def watching(experiment, result):
        yield Watch(Progress(result.cell, 1, bar=False), experiment.recipe)

    grid = load_grid()
    return train(grid.find(CELL), grid, Store(), Path("data"), watching)


def test_the_event_has_the_result_and_its_records(project):
    project.recipe(seeds=[0, 1], epochs=1)
    done = trained()
    assert (done.result.status, done.result.seeds) == ("ok", [0, 1])
    assert [record.digest for record in done.records] == done.result.runs
    assert not Path("results").exists()
    assert not Path("metrics").exists()
    assert trained() == done
