"""The kept weights of a cell's best seed, tested again and held against its record."""

from stages.best import best_run
from stages.cells import experiment_of, limited, settings_of
from stages.params import Cell, Grid
from stages.runs import DATA, prepare_process
from stages.store import Store
from stages.trained import NotKept, agree, score


def score_cell(cell: Cell, grid: Grid) -> bool:
    """Prints each test metric as it is now and in the record; whether they agree. Raises NotKept."""
    recipe = limited(settings_of(cell), grid, cell)[0]
    experiment = experiment_of(cell, recipe, grid, Store(), DATA, prepare_process(grid.run))
    best = best_run([record for seed in recipe.seeds if (record := experiment.settled(seed))])
    if best is None:
        raise NotKept(f"{cell.cell}: no seed of it is in the store; `gt-bench train {cell.cell}` comes first")
    seed = best["deterministic"]["seed"]
    now, then = score(experiment, seed)
    for name, value in then.items():
        print(f"{name}: {now[name]!r} now, {value!r} in the record of seed {seed}")
    return agree(now, then, recipe.processes)
