"""Stage train@cell: every seed of one cell, in one process, each at most once in its life.

    python -m stages.train suite/dataset/model

Writes results/suite/dataset/model.json, which names the records. A dataset that cannot be had gives the status "not run: data".
"""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.params import Cell, Grid, load_grid
from stages.recipe import Recipe, load_recipe
from stages.schema import RecipeError
from stages.stop import handled


def limited(recipe: Recipe, grid: Grid, cell: Cell) -> tuple[Recipe, list[str]]:
    """The recipe under the limits of its cell or suite in params.yaml, and what was cut."""
    limits, cuts = grid.limits_of(cell), list(recipe.reduced)
    if limits.seeds is not None and limits.seeds < len(recipe.seeds):
        cuts.append(f"{limits.seeds} of {len(recipe.seeds)} seeds")
        recipe = recipe.model_copy(update={"seeds": recipe.seeds[: limits.seeds]})
    if limits.epochs is not None and limits.epochs < recipe.total_epochs:
        cuts.append(f"{limits.epochs} of {recipe.total_epochs} epochs")
        if recipe.phases:  # each phase keeps its share, and at least one epoch
            shares = [max(1, phase.epochs * limits.epochs // recipe.total_epochs) for phase in recipe.phases]
            phases = [phase.model_copy(update={"epochs": epochs}) for phase, epochs in zip(recipe.phases, shares, strict=True)]
            recipe = recipe.model_copy(update={"phases": phases})
        else:
            recipe = recipe.model_copy(update={"epochs": limits.epochs})
    if limits.pairs is not None and recipe.brec and limits.pairs < len(recipe.brec.numbers()):
        cuts.append(f"{limits.pairs} of {len(recipe.brec.numbers())} pairs")
        recipe = recipe.model_copy(update={"brec": recipe.brec.only(limits.pairs)})
    return recipe, cuts


def settings_of(cell: Cell) -> Recipe:
    """What a cell trains with: its recipe, or what its search chose. Raises RecipeError where that is not there yet, or is of another recipe."""
    recipe = load_recipe(cell.recipe_path)
    if cell.settings != "tuned":
        return recipe
    if not cell.settings_path.exists():
        raise RecipeError(f"{cell.settings_path}: there is no such file yet: the cell is searched first, by `gt-bench tune {cell.cell}`")
    chosen = load_recipe(cell.settings_path)
    values = {key: chosen.value(key) for key in (recipe.search.space if recipe.search else ())}
    if (recipe.with_values(values).decisive(), recipe.seeds) != (chosen.decisive(), chosen.seeds):
        raise RecipeError(
            f"{cell.settings_path}: chosen for another state of {cell.recipe_path}; search again: `gt-bench tune {cell.cell}`"
        )
    return chosen


def train_cell(
    cell: Cell, grid: Grid, data: Path = Path("data"), store_root: Path = Path("store"), results: Path = Path("results")
) -> dict[str, Any]:
    """Runs what is not in the store yet and writes the cell's result; returns it. Raises RecipeError for a recipe that does not fit."""
    from stages.datasets.packed import DatasetUnavailable, PackedDataset
    from stages.files import write_json
    from stages.progress import Progress
    from stages.store import Store
    from stages.tracking import Live

    recipe, cuts = limited(settings_of(cell), grid, cell)
    result: dict[str, Any] = {
        "cell": cell.cell, "suite": cell.suite, "dataset": cell.dataset, "model": cell.model, "status": "ok", "reason": None, "metric": None, "direction": None,
        "runs": [], "seeds": recipe.seeds, "recipe": recipe.model_dump(mode="json", exclude_unset=True), "reduced": cuts,
        "published": recipe.published and recipe.published.model_dump(), "search": _search_summary(cell),
    }  # fmt: skip
    path = results / f"{cell.cell}.json"
    try:
        PackedDataset.open(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        result |= {"status": "not run: data", "reason": str(error), "seeds": []}
        write_json(path, result)
        print(f"{cell.cell}: not run: data. {error}", flush=True)
        return result

    from stages.runs import Experiment, prepare_process

    allocator = prepare_process(grid.run)

    def experiment_of(cell: Cell, recipe: Recipe, later: tuple[str, ...] = ()) -> Experiment:
        source = None
        if cell.cell in later:
            raise RecipeError(f"{cell.recipe_path}: start.cell: these cells start from each other: {', '.join(later)}")
        if recipe.start:
            before = grid.find(recipe.start.cell)
            source = experiment_of(before, limited(settings_of(before), grid, before)[0], (*later, cell.cell))
        return Experiment(recipe, str(cell.settings_path), cell.dataset, grid.run, Store(store_root), data, allocator, source)

    experiment = experiment_of(cell, recipe)
    result |= {"metric": experiment.task.metric, "direction": experiment.task.direction}
    header = experiment.header
    if header.derived:
        result["reduced"] = [*cuts, f"derived data: {header.derived}"]
    if header.pinned_remark:
        result["notes"] = [header.pinned_remark]
    described = {
        "name": header.name,
        "digest": experiment.packed.digest,
        "task": header.task,
        "metric": header.metric,
        "statistics": header.statistics,
    }
    live = Live(cell, result["recipe"], described, result["published"]) if grid.run.tracking else None
    records = []
    with Progress(cell.cell, len(recipe.seeds) * recipe.reports) as progress:
        for number, seed in enumerate(recipe.seeds):
            progress.start_run(f"seed {seed} ({number + 1}/{len(recipe.seeds)})", recipe.reports)

            def on_epoch(epoch: int, values: dict[str, float]) -> None:
                progress.epoch(epoch, values)
                if live:
                    live.log_epoch(epoch, values)

            record, computed = experiment.run(seed, on_start=live and live.start_seed, on_epoch=on_epoch)
            if computed and live:
                live.finish_seed(record)
            progress.finish_run(record, computed)
            records.append(record)
    result["runs"] = [r["digest"] for r in records]
    failed = [r["deterministic"] for r in records if r["deterministic"]["status"] != "ok"]
    if failed:
        result |= {"status": failed[0]["status"], "reason": failed[0]["error"]}
    write_json(path, result)
    if live:
        live.close(result, records)
    return result


def _search_summary(cell: Cell) -> dict[str, Any] | None:
    from stages.tune import search_summary

    return search_summary(cell) if cell.settings == "tuned" else None


def cell_stage(description: str, stage: Callable[[Cell, Grid], Any]) -> int:
    """The command line of a stage that takes one cell: what a user can mend ends in one message and status 1, a bug in its traceback."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(description)
        return 2
    from stages.datasets.inspection import DatasetError
    from stages.files import WriteError
    from stages.store import StoreError

    try:
        with handled():
            grid = load_grid()
            stage(grid.find(sys.argv[1]), grid)
    except (RecipeError, StoreError, WriteError, DatasetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print("error: the disk is full; free some space and run the same command again: it continues where it was", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command continues where it was", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(cell_stage(__doc__, train_cell))
