"""Comparison of the golden run of every cell with suites/SUITE/golden.json (gt_bench/experiment/golden_values.py).

    python -m gt_bench.testing.check_grid [SUITE or suite/dataset/row ...] [--covering] [--update] [--workers 2]

Data are miniatures (gt_bench/data/standin.py), so that nothing is downloaded. Prints a table of differences and
failures, and exits with 1 if there are any. After an intended change, first raise a version, then use --update to store
the new values of the named cells.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gt_bench.config.components import code_of
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import Entry, differs, golden_recipe, same_computation
from gt_bench.experiment.modified_code import checked, save_checked
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.threads import settle_environment
from gt_bench.search.space import check_space
from gt_bench.testing.golden_run import Computed, compute_all
from gt_bench.utils.paths import SUITES


def cells_of(names: Sequence[str], grid: Grid) -> list[Cell]:
    """Returns the cells with these names, or all cells, including those without an entry in grid.yaml.

    Raises:
        RecipeError: there is no such cell or suite.
    """
    cells = {cell.key: cell for cell in grid.cells.values()}
    for path in sorted((*SUITES.glob("*/recipes/*/*.yaml"), *SUITES.glob(f"*/{golden_values.RECIPES}/*/*.yaml"))):
        suite, dataset, row = path.parts[-4], path.parts[-2], path.stem
        key = f"{suite}-{dataset}-{row}"
        if key not in cells:
            cells[key] = Cell(key=key, cell=f"{suite}/{dataset}/{row}", dataset=dataset, model=row, settings="recipes")
    suites = list(dict.fromkeys([*grid.suites, *(cell.suite for cell in cells.values())]))
    return grid.model_copy(update={"cells": cells, "suites": suites}).chosen(names)


def traits(recipe: Recipe, task: str, family: str) -> set[str]:
    """Returns what a golden run of the recipe covers: model, task, loss, schedule and so on."""
    found = {
        f"model {recipe.model.name}",
        f"task {task}",
        f"loss {task} {recipe.loss}",
        f"family {family}",
        f"select {recipe.select}",
    }
    found |= {f"schedule {recipe.schedule.name} by {recipe.schedule.unit}", f"optimizer {recipe.optimizer.name}"}
    found |= {f"encoding {name}" for name in recipe.encodings}
    found |= {f"batch {key}" for key, value in recipe.batch.model_dump().items() if value}
    sections = ("subgraphs", "patience", "targets", "start", "eval_after", "eval_device", "phases", "features", "head")
    found |= {key for key in sections if getattr(recipe, key)}
    found |= {"processes"} if recipe.processes > 1 else set()
    found |= {"warmup"} if recipe.schedule.warmup else set()
    found |= {"clip_norm"} if recipe.optimizer.clip_norm else set()
    found |= {"weight_decay"} if recipe.optimizer.weight_decay else set()
    found |= {"reload_best"} if any(phase.reload_best for phase in recipe.phases) else set()
    return found | ({f"protocol {recipe.protocol.KEY}"} if recipe.protocol else set())


def covering(cells: Iterable[Cell]) -> list[Cell]:
    """Returns a small set of cells that together have all traits.

    The selection is greedy: the cell that adds most traits is next, the first one if several do.
    """
    from gt_bench.testing.datasets import spec_of

    left: dict[str, tuple[Cell, set[str]]] = {}
    for cell in cells:
        recipe, spec = load_recipe(golden_recipe(cell.cell)), spec_of(cell.dataset)
        left[cell.cell] = cell, traits(recipe, spec.task, spec.prepare.__module__)
    chosen, wanted = [], set().union(*(has for _, has in left.values()))
    while wanted:
        best = max(left, key=lambda name: len(left[name][1] & wanted))
        cell, has = left.pop(best)
        chosen.append(cell)
        wanted -= has
    return sorted(chosen, key=lambda cell: cell.cell)


def changed(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells whose code has changed since their golden values were last compared."""
    from gt_bench.testing.datasets import spec_of

    known, found = checked(Path()), []
    for cell in cells:
        model, task = load_recipe(golden_recipe(cell.cell)).model.name, spec_of(cell.dataset).task
        if known.get(cell.cell) != code_of(model, task)[:16]:
            found.append(cell)
    return found


def check(
    cells: Sequence[Cell], workers: int = 2, say: Callable[[str], None] = print, update: bool = False
) -> dict[str, tuple[Computed, str | None]]:
    """Computes golden runs and compares them.

    Args:
        cells: the cells.
        workers: number of processes, with one thread each.
        say: called with a line per cell.
        update: whether the values of runs without errors are stored, unless they differ although recipe, miniature and
            versions are the same.

    Returns:
        {cell: (golden run, what is wrong with it or None)}.
    """
    outcomes: dict[str, tuple[Computed, str | None]] = {}
    kept: dict[str, Entry] = {}
    suites = dict.fromkeys(cell.suite for cell in cells)
    for suite in suites:
        kept |= golden_values.load(suite) if not update or golden_values.golden_file(suite).exists() else {}

    def note(outcome: Computed) -> None:
        wrong = outcome.error or _space_problem(outcome.cell) or _compared(outcome, kept.get(outcome.cell), update)
        outcomes[outcome.cell] = outcome, wrong
        say(f"[{len(outcomes)}/{len(cells)}] {outcome.cell}: {wrong or 'ok'} ({outcome.seconds:.1f} s)")

    compute_all([cell.cell for cell in cells], Path(), workers, note, update, kept)
    sound = {name: outcome for name, (outcome, wrong) in outcomes.items() if not wrong}
    if update:
        for suite in suites:
            new = {
                name: outcome.entry for name, outcome in sound.items() if name.startswith(f"{suite}/") and outcome.entry
            }
            listed = {cell.cell for cell in cells_of([], load_grid())}
            old = {name: entry for name, entry in kept.items() if name.startswith(f"{suite}/") and name in listed}
            golden_values.save(
                suite,
                old | {name: golden_values.updated(old.get(name), entry) for name, entry in new.items()},
            )
    return {cell.cell: outcomes[cell.cell] for cell in cells}


def _space_problem(cell: str) -> str | None:
    """Returns the problem of the search in a cell's recipe, which a golden run does not cover."""
    recipe = load_recipe(golden_recipe(cell))
    try:
        if recipe.search is not None:
            check_space(
                recipe,
                Cell(
                    key=cell.replace("/", "-"),
                    cell=cell,
                    dataset=cell.split("/")[1],
                    model=recipe.model.name,
                    settings="recipes",
                ),
            )
    except RecipeError as error:
        return str(error)
    return None


def _compared(outcome: Computed, kept: Entry | None, update: bool) -> str | None:
    """Returns the problem of a golden run without an error."""
    now = outcome.entry
    assert now is not None
    if kept is None:
        return (
            None
            if update
            else f"no golden values; store them by `python -m gt_bench.testing.check_grid {outcome.cell} --update`"
        )
    lowered = any(now["versions"].get(component, version) < version for component, version in kept["versions"].items())
    if update and not same_computation(kept, now) and not lowered:
        return None
    from gt_bench.testing.datasets import spec_of

    recipe = load_recipe(golden_recipe(outcome.cell))
    return differs(outcome.cell, kept, now, golden_values.components(recipe, spec_of(outcome.cell.split("/")[1]).task))


def note_checked(cells: Iterable[str]) -> None:
    """Updates golden_checked.json of the suites with the current code of cells whose golden values agree."""
    known = {name: code for name, code in checked(Path()).items()}
    for suite in dict.fromkeys(cell.partition("/")[0] for cell in cells):
        for cell, entry in golden_values.load(suite).items():
            if cell in cells:
                known[cell] = code_of(entry["model"], entry["task"])[:16]
    save_checked(known)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit status: 1 if a cell fails or differs from its golden values.
    """
    parser = argparse.ArgumentParser(
        prog="python -m gt_bench.testing.check_grid", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites and cells; all by default")
    parser.add_argument("--workers", type=int, default=2, help="number of processes, with one thread each")
    parser.add_argument(
        "--covering", action="store_true",
        help="check only cells that cover every model, task, loss, ... once, and cells whose code has changed",
    )  # fmt: skip
    parser.add_argument(
        "--update", action="store_true", help="store new values of the named cells; raise their version first"
    )
    arguments = parser.parse_args(argv)
    settle_environment()

    def work() -> int:
        start = time.perf_counter()
        cells = cells_of(arguments.names, load_grid())
        if arguments.covering:
            some = {cell.cell: cell for cell in (*covering(cells), *changed(cells))}
            print(f"{len(some)} of {len(cells)} cells")
            cells = list(some.values())
        outcomes = check(cells, arguments.workers, lambda line: print(line, flush=True), arguments.update)
        wrong = report(outcomes, time.perf_counter() - start)
        if arguments.update:
            note_checked([name for name, (_, problem) in outcomes.items() if not problem])
        return int(bool(wrong))

    return status_of(work)


def report(outcomes: Mapping[str, tuple[Computed, str | None]], seconds: float) -> int:
    """Prints failures as a table, and a line with totals and the three slowest cells.

    Returns:
        The number of failures.
    """
    from gt_bench.utils.terminal import print_table

    failed = [(name, wrong) for name, (_, wrong) in outcomes.items() if wrong]
    if failed:
        print_table(("cell", "problem"), failed, wrapped=("problem",), title="Failures")
    slowest = ", ".join(
        f"{o.cell} {o.seconds:.0f} s" for o, _ in sorted(outcomes.values(), key=lambda one: -one[0].seconds)[:3]
    )
    print(f"{len(outcomes)} cells in {seconds:.0f} s, {len(failed)} failures; slowest: {slowest}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
