"""What a search of n trials buys over the default settings, on three embedded datasets.

    python benchmarks/search.py FOLDER                      # a new folder: data, store and results are written there
    python benchmarks/search.py FOLDER --trials 5,10,20 --seeds 5 --epochs 100 --sampler gp

Each model is trained with the default settings of `gt-bench try`, then with the best of the first n trials of one
search on validation, n as in --trials. The command resumes: runs in FOLDER are not repeated.

Prints: a table with a row for each dataset and n: test metric, difference from the default with its interval, hours.
Takes: some minutes with the defaults of this command, on two cores.
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import print_table
from gt_bench.api.ensemble import column_of, train_values
from gt_bench.api.evaluate import DATA, try_pair
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.search_section import SearchMethod
from gt_bench.config.tried import tried_cells
from gt_bench.reports.tuned_columns import HEADS, TunedColumns
from gt_bench.search.study import open_search
from gt_bench.store.run_store import Store

CELLS = (("gin", "ring-molecules"), ("gcn", "torus-colours"), ("gcn", "chains"))


def main() -> int:
    """Trains what is missing and prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder outside this repository")
    parser.add_argument("--trials", default="4,8", metavar="N,...", help="numbers of trials, default 4,8")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds of each result, default 3")
    parser.add_argument("--epochs", type=int, default=20, metavar="N", help="epochs of each run, default 20")
    parser.add_argument("--sampler", default="tpe", metavar="NAME", help="sampler of the search, default tpe")
    given = parser.parse_args()
    if not all(part.strip().isdecimal() and int(part) > 0 for part in given.trials.split(",")):
        parser.error(f"--trials {given.trials}: expected numbers above 0, for example 4,8")
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(given.folder)
    rows: list[list[str]] = []
    for model, dataset in CELLS:
        with contextlib.redirect_stdout(sys.stderr):
            rows += measured(model, dataset, sorted({int(part) for part in given.trials.split(",")}), given)
    title = f"{given.seeds} seeds, {given.epochs} epochs, sampler {given.sampler}"
    print_table(title, ("model, dataset", "metric", "trials", "test", "against default [95 %]", "hours"), rows)
    return 0


def measured(model: str, dataset: str, trials: list[int], given: argparse.Namespace) -> list[list[str]]:
    """Returns the rows of a dataset: without a search, then with n trials."""
    grid = load_grid()
    grid = grid.model_copy(update={"run": grid.run.model_copy(update={"tracking": False})})
    seeds, values, store = list(range(given.seeds)), {"epochs": given.epochs}, Store()
    method = SearchMethod(sampler=given.sampler)
    default = try_pair(model, dataset, values, seeds, grid=grid, bar=False)
    found = try_pair(model, dataset, values, seeds, max(trials), grid=grid, method=method, bar=False)
    row = found.row
    cell = next(cell for cell in tried_cells(dataset) if cell.cell == row["cell"])
    searched, recipe = open_search(cell, grid, DATA, store.root), load_recipe(cell.recipe_path)
    of_default = [record for digest in default.row["digests"] if (record := store.get(digest))]
    columns = [column_of("default", of_default, 0, 0.0)]
    for number in trials:
        (best,) = searched.best(1, first=number)
        records = train_values(cell, recipe.with_values(best.params), grid, DATA, store, f"best of {number}")
        columns.append(column_of(f"{number}", records, number, searched.seconds(number)))
    run = of_default[0].run
    table = TunedColumns(run.metric, run.direction, columns, {}, grid.run.verdict).texts()
    heads = [HEADS.index(name) for name in ("trials", "test", "against default [95 %]", "hours")]
    return [[f"{model}, {dataset}", run.metric, *(texts[i] for i in heads)] for texts in table]


if __name__ == "__main__":
    sys.exit(main())
