"""Files of a search in tuned/: the recipe with the chosen values, the table of trials, and plots."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import yaml

from gt_bench.config.grid import Cell
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.schemas import SearchSummary
from gt_bench.search.space import size_text, space_size
from gt_bench.search.storage import ended
from gt_bench.utils.io import write_bytes
from gt_bench.utils.tempfiles import sweep

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

TUNED = Path("tuned")
KILLED = "killed, queued again"  # status of a trial whose worker was killed
PLOTS = ("history", "importance", "parallel")


def search_summary(cell: Cell) -> SearchSummary | None:
    """Summarises the table of trials of a tuned cell.

    Trials that were killed and queued again do not count, so that equal records give equal summaries.

    Returns:
        Number of trials by state, the best validation value and the space. None if there was no search.
    """
    path = TUNED / f"{cell.cell}.csv"
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] != KILLED]
    if not rows:
        return None
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
    values = [float(row["value"]) for row in rows if row["state"] == "COMPLETE"]
    best = None if not values else max(values) if rows[0]["direction"] == "max" else min(values)
    keys = [key for key in rows[0] if key not in ("number", "state", "value", "status", "direction")]
    trials, by_state = len(rows), dict(sorted(states.items()))
    summary: SearchSummary = {
        "trials": trials,
        "used": trials,
        "states": by_state,
        "best_validation": best,
        "keys": keys,
    }
    if space := load_recipe(cell.recipe_path).search:
        summary["space"] = size_text(space_size(space))
    return summary


def write_outs(
    recipe: Recipe, cell: Cell, trials: Sequence["FrozenTrial"], tuned: Path, study: "Study | None" = None
) -> None:
    """Writes the five files of a search.

    Args:
        recipe: the recipe with the chosen values.
        cell: its cell.
        trials: all trials.
        tuned: the folder.
        study: the study. None if there was no trial.
    """
    base = tuned / cell.cell
    sweep(base.parent)
    content = recipe.model_dump(mode="json", exclude_unset=True, exclude={"search"})
    write_bytes(base.with_name(base.name + ".yaml"), yaml.safe_dump(content, sort_keys=False, width=140).encode())
    keys = sorted({key for t in trials for key in t.params})
    direction = "max" if study is not None and study.direction.name == "MAXIMIZE" else "min"
    rows: list[list[object]] = [["number", "state", "value", "status", "direction", *keys]]
    for t in trials:
        value = "" if t.value is None or t.state.name != "COMPLETE" else repr(t.value)
        rows.append(
            [t.number, t.state.name, value, ended(t) or KILLED, direction, *(t.params.get(key, "") for key in keys)]
        )
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    write_bytes(base.with_name(base.name + ".csv"), table.getvalue().encode())
    _plots(base, study)


def ending(
    cell: Cell, trials: Sequence["FrozenTrial"], best: "FrozenTrial", study: "Study", folder: Path, tuned: Path = TUNED
) -> list[str]:
    """Returns the lines that are printed at the end of a search: best trial, importance of keys, files.

    Args:
        cell: the cell.
        trials: all trials.
        best: the best trial.
        study: the study.
        folder: folder of the study.
        tuned: folder of the files.
    """
    shown = ", ".join(f"{key} {_short(value)}" for key, value in best.params.items())
    lines = [f"best: trial {best.number} of {len(trials)}, validation {best.value:.4f}: {shown}"]
    complete = [t for t in trials if t.state.name == "COMPLETE"]
    if varied(complete):
        shares = importance_of(study)
        lines.append(
            f"importance over {len(complete)} complete trials (fANOVA): "
            + ", ".join(f"{k} {v:.2f}" for k, v in shares.items())
        )
    else:
        lines.append(f"importance: undefined, {len(complete)} complete trials are too few or too similar")
    base = tuned / cell.cell
    return [
        *lines,
        f"trials: {base}.csv; plots: {base}.{{{','.join(PLOTS)}}}.png; chosen recipe: {base}.yaml",
        f"view: `make ui` (experiment {cell.suite}-search), or `optuna-dashboard {folder / 'journal.log'}` "
        "(docs/search.md)",
    ]


def varied(complete: Sequence["FrozenTrial"]) -> bool:
    """Returns whether importance, a fraction of the variance, is defined: values and parameters differ."""
    return len({t.value for t in complete}) > 1 and any(
        len({repr(t.params[k]) for t in complete}) > 1 for k in complete[0].params
    )


def importance_of(study: "Study") -> dict[str, float]:
    """Returns the fraction of the variance of the trials' values by key (fANOVA, Hutter et al. 2014)."""
    import optuna

    return optuna.importance.get_param_importances(study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plots(base: Path, study: "Study | None") -> None:
    """Plots the optimisation history, the importance of keys and parallel coordinates, or a text if undefined."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import optuna
    from matplotlib.figure import Figure

    complete = [] if study is None else [t for t in study.trials if t.state.name == "COMPLETE"]
    for name, possible in zip(PLOTS, (bool(complete), varied(complete), bool(complete)), strict=True):
        # optuna changes the global matplotlib style
        with warnings.catch_warnings(), matplotlib.rc_context():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if study is None or not possible:
                figure, axes = plt.subplots()
                axes.text(0.5, 0.5, f"{len(complete)} complete trials are too similar for {name}", ha="center")
                axes.set_axis_off()
            else:
                from optuna.visualization import matplotlib as plots

                if name == "history":
                    axes = plots.plot_optimization_history(study)
                elif name == "parallel":
                    axes = plots.plot_parallel_coordinate(study)
                else:
                    axes = plots.plot_param_importances(
                        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
                    )
                figure = cast(Figure, axes.figure)
            picture = io.BytesIO()
            figure.savefig(picture, format="png", dpi=120, bbox_inches="tight")
            plt.close(figure)
            write_bytes(base.with_name(f"{base.name}.{name}.png"), picture.getvalue())
