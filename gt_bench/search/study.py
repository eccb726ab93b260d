"""The study of a cell's search: its identity, the trials that are left, and the best ones."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gt_bench.config.cell_recipe import limited
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.search.methods import directions_of, identity_of, pruner_of
from gt_bench.search.space import space_size, trials_of
from gt_bench.search.storage import JOURNAL, ended, open_study, storage_url
from gt_bench.search.warm_start import Start, starts_of
from gt_bench.store.run_store import Store
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.json_types import Settings

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from gt_bench.experiment.run import Experiment

STUDIES = Path("studies")


def trial_recipe(cell: Cell, grid: Grid) -> tuple[Recipe, Recipe]:
    """Returns the recipe of a cell and the recipe of its trials, whose epochs are limited by params.yaml.

    Raises:
        RecipeError: the cell has no search section.
    """
    recipe = grid.with_method(load_recipe(cell.recipe_path), cell)
    if recipe.search is None:
        remedy = "add one, then run `python -m gt_bench.pipeline.grid`"
        raise RecipeError("the search section is missing", file=cell.recipe_path, remedy=remedy)
    shortened, _ = limited(recipe, grid, cell)
    return recipe, recipe.model_copy(update={"epochs": shortened.epochs, "phases": shortened.phases})


def trials_asked(cell: Cell, grid: Grid, recipe: Recipe) -> tuple[int, int]:
    """Returns the number of trials of a cell's search with and without the limits of params.yaml.

    Raises:
        RecipeError: see `trials_of`.
    """
    asked = trials_of(cell, grid, recipe)
    return min(asked, grid.limits_of(cell).trials or asked), asked


def trials_within(cell: Cell, grid: Grid, recipe: Recipe) -> int:
    """Returns the number of trials that a search runs: within the limits of params.yaml and the points of a grid."""
    trials = trials_asked(cell, grid, recipe)[0]
    return min(trials, space_size(recipe.searched)[0]) if recipe.searched.sampler == "grid" else trials


class Trials(NamedTuple):
    """Number of unfinished trials and of all trials of a search."""

    left: int
    asked: int


def trials_left(cell: Cell, grid: Grid, data: Path = Path("data"), store_root: Path = Path("store")) -> Trials:
    """Counts the unfinished trials of a cell's search. Does not create a study.

    Raises:
        RecipeError: the recipe is invalid, or the study is damaged.
    """
    from gt_bench.experiment.run import Experiment

    recipe, base = trial_recipe(cell, grid)
    trials, folder = trials_within(cell, grid, recipe), STUDIES / cell.cell
    if storage_url(grid.run) is None and not (folder / JOURNAL).exists():
        return Trials(trials, trials)
    try:
        first = Experiment(base, str(cell.recipe_path), cell.dataset, grid.run, Store(store_root), data)
    except DatasetError:  # data or encodings are not available yet
        return Trials(trials, trials)
    begun = starts_of(base, cell, grid).found if base.searched.warm_start else []
    study = study_of(base, cell, grid, first, folder, begun, make=False)
    used = 0 if study is None else used_of(study.get_trials(deepcopy=False))
    return Trials(max(0, trials - used), trials)


@dataclass(frozen=True)
class Searched:
    """A finished search.

    Attributes:
        study: its study.
        recipe: recipe of its trials.
        experiment: returns the experiment of values.
    """

    study: "Study"
    recipe: Recipe
    experiment: Callable[[Settings], "Experiment"]

    @property
    def trials(self) -> list["FrozenTrial"]:
        """Trials in their order, without killed ones."""
        return [t for t in self.study.get_trials(deepcopy=False) if ended(t) is not None]

    def best(self, number: int, first: int | None = None) -> list["FrozenTrial"]:
        """Returns at most `number` complete trials with different values, the best on validation first.

        Args:
            number: how many.
            first: of the first trials only; None for all.
        """
        sign = -1 if self.study.directions[0].name == "MAXIMIZE" else 1
        complete = [t for t in self.trials[:first] if t.state.name == "COMPLETE" and math.isfinite(t.values[0])]
        distinct: list[FrozenTrial] = []
        for trial in sorted(complete, key=lambda t: (sign * t.values[0], t.number)):
            if trial.params not in [other.params for other in distinct]:
                distinct.append(trial)
        return distinct[:number]

    def seconds(self, first: int | None = None) -> float:
        """Returns the seconds of the first trials: by their records, or of those without one from start to end."""
        total = 0.0
        for trial in self.trials[:first]:
            if trial.state.name == "COMPLETE":
                tried = self.experiment(trial.params)
                records = [tried.store.get(tried.digest(seed, test=False)) for seed in self.recipe.searched.seeds]
                if all(records):
                    total += sum(record.measured.seconds for record in records if record)
                    continue
            if trial.duration is not None:
                total += trial.duration.total_seconds()
        return total


def open_search(cell: Cell, grid: Grid, data: Path, store_root: Path) -> Searched:
    """Opens the search of a cell.

    Raises:
        RecipeError: there is none with the current recipe.
    """
    from gt_bench.experiment.run import Experiment

    _, base = trial_recipe(cell, grid)
    store = Store(store_root)

    def experiment(values: Settings) -> Experiment:
        return Experiment(base.with_values(values), str(cell.recipe_path), cell.dataset, grid.run, store, data)

    starts = starts_of(base, cell, grid).found if base.searched.warm_start else []
    study = study_of(base, cell, grid, experiment({}), STUDIES / cell.cell, starts, make=False)
    if study is None:
        remedy = f"run `gt-bench tune {cell.cell}`"
        raise RecipeError("no search with this recipe", file=cell.recipe_path, remedy=remedy)
    return Searched(study, base, experiment)


def study_of(
    recipe: Recipe,
    cell: Cell,
    grid: Grid,
    first: "Experiment",
    folder: Path,
    starts: Sequence[Start],
    make: bool = True,
) -> "Study | None":
    """Opens the study of a recipe, its data and versions. After a change of any of them, it is a new study."""
    search = recipe.searched
    space = {
        k: v.model_dump(mode="json", exclude=None if getattr(v, "also", None) else {"also"})
        for k, v in search.space.items()
    }
    identity = {
        "recipe": recipe.decisive(),
        "space": space,
        "seeds": search.seeds,
        **identity_of(search),
        **({"starts": starts} if starts else {}),
        "data": first.packed.digest,
        "encodings": first.encoded.digest,
        "versions": first.versions,
        **{
            key: digest
            for key, digest in first.digests.to_disk().items()
            if key in ("files", "modified", "metric", "last_batch")
        },
    }
    directions = directions_of(search, first.task.direction)
    pruner = pruner_of(search, recipe.total_epochs * len(search.seeds), cell.recipe_path)
    return open_study(grid.run, folder, cell.cell, digest_of(identity), directions, pruner, make)


def used_of(held: Sequence["FrozenTrial"]) -> int:
    """Counts finished trials. A killed trial is queued again and counts when it is finished."""
    return sum(ended(t) is not None for t in held)


def best_of(study: "Study", within: float = 0.0) -> "FrozenTrial | None":
    """Returns the trial whose values become the result of a search, or None if no trial is complete.

    With one objective it is the first of the best on validation. With several it is the cheapest of those whose
    validation value is worse than the best by at most a fraction `within` of it: the one with the fewest parameters or
    seconds, in the order of the objectives, and among equal ones the best on validation.
    """
    sign = -1 if study.directions[0].name == "MAXIMIZE" else 1
    complete = [t for t in study.trials if t.state.name == "COMPLETE" and t.values and math.isfinite(t.values[0])]
    if not complete:
        return None
    best = min(sign * t.values[0] for t in complete)
    if within == 0.0:
        near = [t for t in complete if sign * t.values[0] == best]
    else:
        near = [t for t in complete if sign * t.values[0] - best <= within * abs(best)]
    return min(near, key=lambda t: (*t.values[1:], sign * t.values[0], t.number))
