"""Files of a search in tuned/: the recipe with the chosen values, the table of trials, and plots."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from gt_bench.config.grid import Cell
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.search_section import VALIDATION, SearchSection
from gt_bench.records.cell import SearchSummary
from gt_bench.records.trials import COST, DESCRIBED
from gt_bench.search.methods import cost_texts
from gt_bench.search.space import size_text, space_size
from gt_bench.search.storage import ended
from gt_bench.utils.io import write_bytes
from gt_bench.utils.tempfiles import sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna import Study
    from optuna.trial import FrozenTrial

TUNED = Path("tuned")
KILLED = "killed, queued again"  # status of a trial whose worker was killed
# complete trials from which importance is shown: a forest over fewer weighs noise, and TPE draws its first 10 at random
MIN_TRIALS = 10
PLOTS = ("history", "importance", "parallel")
FRONT = "pareto"  # its plots, of a search with several objectives


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
    values = [float(row["value"]) for row in rows if row["state"] == "COMPLETE"]
    best = None if not values else max(values) if rows[0]["direction"] == "max" else min(values)
    keys = [key for key in rows[0] if key not in DESCRIBED and not key.startswith(COST)]
    states = dict(sorted(Counter(row["state"] for row in rows).items()))
    count = len(rows)
    summary: dict[str, object] = {
        "trials": count, "used": count, "states": states, "best_validation": best, "keys": keys,
    }  # fmt: skip
    if space := load_recipe(cell.recipe_path).search:
        summary["space"] = size_text(space_size(space))
    if costs := [key for key in rows[0] if key.startswith(COST)]:
        complete = [row for row in rows if row["state"] == "COMPLETE"]
        sign = -1 if rows[0]["direction"] == "max" else 1
        points = [(sign * float(row["value"]), *(float(row[key]) for key in costs)) for row in complete]
        summary["objectives"] = [VALIDATION, *(key.removeprefix(COST) for key in costs)]
        summary["pareto"] = [
            {"trial": int(row["number"]), VALIDATION: float(row["value"])}
            | {key.removeprefix(COST): float(row[key]) for key in costs}
            for row, point in zip(complete, points, strict=True)
            if not any(_dominates(other, point) for other in points)
        ]
    if "origin" in rows[0]:
        summary["warm_starts"] = sum(bool(row["origin"]) for row in rows)
    return SearchSummary.from_disk(summary)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Returns whether a point is nowhere larger and somewhere smaller than another."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


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
    direction = "max" if study is not None and study.directions[0].name == "MAXIMIZE" else "min"
    costs = recipe.search.objectives[1:] if recipe.search else []
    started = bool(recipe.search and recipe.search.warm_start)
    head = ["number", "state", "value", "status", "direction", *(COST + name for name in costs)]
    rows: list[list[object]] = [[*head, *(["origin"] if started else []), *keys]]
    for t in trials:
        values = [repr(v) for v in t.values] if t.values and t.state.name == "COMPLETE" else [""] * (1 + len(costs))
        described = [t.number, t.state.name, values[0], ended(t) or KILLED, direction, *values[1:]]
        origin = [t.user_attrs.get("origin", "")] if started else []
        rows.append([*described, *origin, *(t.params.get(key, "") for key in keys)])
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    write_bytes(base.with_name(base.name + ".csv"), table.getvalue().encode())
    _plots(base, study)
    if recipe.search and costs and study is not None and study.best_trials:
        _plot_front(base, study, recipe.search.objectives)


def ending(
    cell: Cell,
    trials: Sequence["FrozenTrial"],
    best: "FrozenTrial",
    study: "Study",
    folder: Path,
    tuned: Path = TUNED,
    search: SearchSection | None = None,
) -> list[str]:
    """Returns the lines that are printed at the end of a search: best trial, importance of keys, files.

    Args:
        cell: the cell.
        trials: all trials.
        best: the best trial.
        study: the study.
        folder: folder of the study.
        tuned: folder of the files.
        search: the search. None is one with one objective.
    """
    shown = ", ".join(f"{key} {_short(value)}" for key, value in best.params.items())
    if search is not None and len(search.objectives) > 1:
        lines = _front_lines(trials, best, study, search)
    else:
        lines = [f"best: trial {best.number} of {len(trials)}, validation {best.values[0]:.4f}: {shown}"]
    lines += _defaults_lines(trials, best, study)
    complete = [t for t in trials if t.state.name == "COMPLETE"]
    if varied(complete):
        shares = importance_of(study)
        lines.append(
            f"importance over {len(complete)} complete trials (fANOVA): "
            + ", ".join(f"{k} {v:.2f}" for k, v in shares.items())
        )
    base = tuned / cell.cell
    plots = PLOTS if len(study.directions) == 1 else (*PLOTS, FRONT)
    journal = f", or `optuna-dashboard {path}`" if (path := folder / "journal.log").exists() else ""
    return [
        *lines,
        f"trials: {base}.csv; plots: {base}.{{{','.join(plots)}}}.png; chosen recipe: {base}.yaml",
        f"view: `make ui` (experiment {cell.suite}-search){journal} (docs/search.md)",
    ]


def _defaults_lines(trials: Sequence["FrozenTrial"], best: "FrozenTrial", study: "Study") -> list[str]:
    """Returns the validation value of the trial with the recipe's own values, compared with the chosen trial."""
    defaults = [t for t in trials if is_of_defaults(t) and ended(t)]
    sign = -1 if study.directions[0].name == "MAXIMIZE" else 1
    lines = []
    for trial in defaults:
        value, verdict = ended(trial), ""
        if trial.state.name == "COMPLETE":
            value, worse = f"validation {trial.values[0]:.4f}", sign * (best.values[0] - trial.values[0])
            verdict = (
                "; warning: the chosen trial is worse" if worse > 0 else "" if worse < 0 else "; no trial is better"
            )
        lines.append(f"defaults: trial {trial.number}, {value}{verdict}")
    return lines


def is_of_defaults(trial: "FrozenTrial") -> bool:
    """Returns whether a trial has the recipe's own values (`warm_start: [defaults]`)."""
    return trial.user_attrs.get("origin", "").startswith("defaults:")


def varied(complete: Sequence["FrozenTrial"]) -> bool:
    """Returns whether importance, a fraction of the variance, has a meaning: enough trials, which differ."""
    return (
        len(complete) >= MIN_TRIALS
        and len({t.values[0] for t in complete}) > 1
        and any(len({repr(t.params[k]) for t in complete}) > 1 for k in complete[0].params)
    )


def importance_of(study: "Study") -> dict[str, float]:
    """Returns the fraction of the variance of the trials' values by key (fANOVA, Hutter et al. 2014)."""
    import optuna

    return optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0), target=_target(study)
    )


def selection_of(search: SearchSection) -> str:
    """Returns the rule by which a trial of a search with several objectives becomes the result."""
    costs = ", then ".join(f"fewest {name.replace('_', ' ')}" for name in search.objectives[1:])
    if not search.select_within:
        return f"best validation value, then {costs}"
    return f"{costs}, of the trials within {100 * search.select_within:g} % of the best validation value"


def _front_lines(
    trials: Sequence["FrozenTrial"], best: "FrozenTrial", study: "Study", search: SearchSection
) -> list[str]:
    """Returns the Pareto front, one line per trial, and what is selected."""
    front = sorted(study.best_trials, key=lambda t: t.values[1])
    complete = sum(t.state.name == "COMPLETE" for t in trials)
    lines = [f"Pareto front ({', '.join(search.objectives)}): {len(front)} of {complete} complete trials"]
    for t in front:
        costs = ", ".join(cost_texts(search, t.values))
        mark = " <- selected" if t.number == best.number else ""
        params = ", ".join(f"{key} {_short(value)}" for key, value in t.params.items())
        lines.append(f"  trial {t.number}: validation {t.values[0]:.4f}, {costs}: {params}{mark}")
    return [*lines, f"selected: trial {best.number} ({selection_of(search)}); the test split is not read"]


def _target(study: "Study") -> "Callable[[FrozenTrial], float] | None":
    """Returns the validation value of a trial, if its study has several objectives."""
    return (lambda t: t.values[0]) if len(study.directions) > 1 else None


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plots(base: Path, study: "Study | None") -> None:
    """Plots the optimisation history, the importance of keys and parallel coordinates, or a text if undefined."""
    import optuna
    from optuna.visualization import matplotlib as plots

    complete = [] if study is None else [t for t in study.trials if t.state.name == "COMPLETE"]
    options: dict[str, Any] = (
        {"target": target, "target_name": VALIDATION} if study and (target := _target(study)) else {}
    )
    importances = partial(plots.plot_param_importances, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0))
    kinds: tuple[Callable[..., Axes], ...] = (
        plots.plot_optimization_history,
        importances,
        plots.plot_parallel_coordinate,
    )
    possible = (bool(complete), varied(complete), bool(complete))
    for name, kind, can in zip(PLOTS, kinds, possible, strict=True):
        no_plot = partial(_text_alone, f"{len(complete)} complete trials are too few or too similar for {name}")
        _draw(base.with_name(f"{base.name}.{name}.png"), partial(kind, study, **options) if can else no_plot)


def _plot_front(base: Path, study: "Study", names: Sequence[str]) -> None:
    """Plots the Pareto front: .pareto.png, and with plotly also an interactive .pareto.html."""
    from optuna import visualization

    path = base.with_name(f"{base.name}.{FRONT}.png")
    _draw(path, partial(visualization.matplotlib.plot_pareto_front, study, target_names=list(names)))
    if visualization.is_available():
        page = visualization.plot_pareto_front(study, target_names=list(names))
        write_bytes(path.with_suffix(".html"), page.to_html(include_plotlyjs=True).encode())


def _text_alone(text: str) -> "Axes":
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    axes.text(0.5, 0.5, text, ha="center")
    axes.set_axis_off()
    return axes


def _draw(path: Path, plot: "Callable[[], Axes]") -> None:
    """Writes a plot of optuna, which changes the global style of matplotlib, as PNG."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from optuna.exceptions import ExperimentalWarning

    picture = io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore", ExperimentalWarning)
        figure = cast(Figure, plot().figure)
        figure.savefig(picture, format="png", dpi=120, bbox_inches="tight")
        pyplot.close(figure)
    write_bytes(path, picture.getvalue())
