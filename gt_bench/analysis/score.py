"""`gt-bench score CELL --metric NAME`: metrics from stored predictions, without weights and without data."""

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.tasks import LINK, METRICS, TWO_CLASSES
from gt_bench.data.custom.metric import is_custom, load_metric
from gt_bench.leaderboard.collect import OWN, SHIPPED
from gt_bench.papers.units import PERCENT, mean_and_std
from gt_bench.records.run import RunRecord
from gt_bench.store.attempts import records_of
from gt_bench.store.predictions import Part, Predictions, PredictionsError, load, same_value, shipped_file
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT, file_of, read, read_result
from gt_bench.utils.format import print_json, print_text
from gt_bench.utils.terminal import print_table

BY = ("class", "graph-size")
_PERCENT = {*PERCENT, "recall", "precision", "f1"}  # of classes, next to the accuracy
BINS = 4  # groups of graphs of similar size
RELATIVE = 1e-6  # of a recomputed metric to the recorded one


@dataclass(frozen=True)
class Scored:
    """One metric of a cell.

    Attributes:
        metric: its name.
        values: {seed: value}. NaN where it is undefined.
        recorded: {seed: value in the record}, of the metrics that the record has.
    """

    metric: str
    values: Mapping[int, float]
    recorded: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.values.values())

    @property
    def std(self) -> float | None:
        """Population standard deviation over the seeds, as in leaderboards. None for one seed."""
        return statistics.pstdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def differing(self) -> list[int]:
        """Seeds whose value is not the one in the record."""
        return [seed for seed, value in self.recorded.items() if not same_value(self.values[seed], value)]


@dataclass(frozen=True)
class Group:
    """A class, a label or a range of sizes. `examples`: mean number per seed. `values`: {metric: mean over seeds}."""

    name: str
    examples: float
    values: Mapping[str, float | None]


def loaded(name: str, grid: Grid, root: Path = ROOT, part: str = "test") -> tuple[Cell, list[Predictions]]:
    """Reads the predictions of all seeds of a cell.

    Args:
        name: a cell, with `@own` or `@shipped` for one version of it; otherwise this machine's if it has runs.
        grid: the grid.
        root: folder of shipped records.
        part: val or test, which must be among them.

    Raises:
        RecipeError: there is no such cell.
        PredictionsError: the cell has no run, or a run has no usable predictions.
    """
    bare, _, source = name.partition("@")
    if source not in ("", OWN, SHIPPED):
        problem = f"{name}: expected {bare}@{OWN} or {bare}@{SHIPPED}, not @{source}"
        raise RecipeError(problem, value=name)
    cell, store = grid.find(bare), Store()
    shipped = file_of(cell.cell, root)
    result = read_result(Path("results", f"{cell.cell}.json"), cell.cell) if source != SHIPPED else None
    records: list[RunRecord] = []
    if result is not None and result.runs:
        records = records_of(result, store)
    elif source != OWN and shipped.exists():
        records = read(shipped).records
    good = [record for record in records if record.run.status == "ok"]
    if not good:
        problem = "no run with status ok, here or shipped, has predictions"
        raise PredictionsError(problem, place=name, remedy=f"run `gt-bench train {cell.cell}`")
    if failed := Counter(one.run.status for one in records if one not in good):
        listed = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        print_text(f"{name}: left out, as they did not end well: {listed} of {len(records)} runs", file=sys.stderr)
    predictions = [load(cell.cell, record, store, shipped_file(shipped)) for record in good]
    for one in predictions:
        if part not in one.parts:
            problem = f"seed {one.record.run.seed} has predictions of {', '.join(one.parts)} only, not of {part}"
            raise PredictionsError(problem, place=name, value=part)
    return cell, predictions


def check_own_runs(cell: Cell, root: Path = ROOT) -> None:
    """Checks that a cell was trained here, because weights are not shipped.

    Raises:
        PredictionsError: it has only shipped records.
    """
    if not Path("results", f"{cell.cell}.json").exists() and file_of(cell.cell, root).exists():
        stored = f"`gt-bench score {cell.cell} --metric NAME` uses stored predictions"
        remedy = f"{stored}, and `gt-bench train {cell.cell}` trains it here"
        raise PredictionsError("its records are shipped, but weights are not", place=cell.cell, remedy=remedy)


def fitting_metrics(prediction: Predictions) -> tuple[str, ...]:
    """Returns the registered metrics that are meaningful for the task of a run."""
    outputs = next(iter(prediction.parts.values())).output
    if prediction.task not in METRICS:
        return tuple(prediction.create_task(prediction.record.run.metric).directions)
    if prediction.task == LINK:
        negatives = outputs.shape[1] - 1
        return tuple(m for m in METRICS[LINK] if not m.startswith("hits@") or int(m.partition("@")[2]) <= negatives)
    if prediction.task.endswith("classification") and outputs.shape[1] != 2:
        return tuple(name for name in METRICS[prediction.task] if name not in TWO_CLASSES)
    return METRICS[prediction.task]


def check_metrics(names: Sequence[str], prediction: Predictions) -> None:
    """Checks that metrics fit the task of a run.

    Raises:
        OptionError: one does not, or it is user-supplied and the targets of the run are standardised.
        MetricError: a user-supplied one cannot be used.
    """
    known = fitting_metrics(prediction)
    for name in names:
        if is_custom(name) and prediction.task in METRICS:
            load_metric(name)
            if how := prediction.record.run.recipe.get("targets"):
                raise OptionError(
                    "reads targets in the unit of the data, but those of this run are standardised "
                    f"(targets: {how} in its recipe)",
                    place="--metric",
                    value=name,
                    remedy="train it with --set targets=null",
                )
        elif name not in known:
            shape = ", ".join(["N", *map(str, next(iter(prediction.parts.values())).output.shape[1:])])
            problem = f"not a metric of {prediction.task} with outputs of shape [{shape}]{nearest(name, list(known))}"
            raise OptionError(f"{problem}; expected one of {', '.join(known)}", place="--metric", value=name)


def scored(predictions: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Scored]:
    """Computes metrics again for each seed. A metric that is undefined on the targets of a seed is NaN."""
    table = []
    for metric in metrics:
        values, recorded = {}, {}
        for prediction in predictions:
            run = prediction.record.run
            values[run.seed] = _value(prediction, metric, part)
            said = run.test_metrics.get(metric) if part == "test" else run.val if metric == run.metric else None
            if said is not None:
                recorded[run.seed] = said
        table.append(Scored(metric, values, recorded))
    return table


def _value(
    prediction: Predictions,
    metric: str,
    part: str,
    rows: np.ndarray | None = None,
    columns: Sequence[int] | None = None,
) -> float:
    try:
        return prediction.score(metric, part, rows, columns)
    except ValueError:  # for example one class in these rows
        return math.nan


def by_class(predictions: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Group]:
    """Recall, precision and F1 of each class, or the metrics of each label of a multilabel task.

    Raises:
        OptionError: the task has no classes.
    """
    task = predictions[0].task
    parts = [prediction.parts[part] for prediction in predictions]
    if task.endswith("classification"):
        groups = []
        for c in range(parts[0].output.shape[1]):
            cells = [_confusion(of, c) for of in parts]
            values = {
                "recall": _mean(_ratio(hit, true) for hit, true, _ in cells),
                "precision": _mean(_ratio(hit, said) for hit, _, said in cells),
                "f1": _mean(_ratio(2 * hit, true + said) for hit, true, said in cells),
            }
            groups.append(Group(str(c), statistics.fmean(true for _, true, _ in cells), values))
        return groups
    if task.endswith("multilabel"):
        groups = []
        for column in range(parts[0].output.shape[1]):
            values = {
                metric: _mean(_value(prediction, metric, part, columns=[column]) for prediction in predictions)
                for metric in metrics
            }
            positives = statistics.fmean(float((of.labels[:, column] == 1).sum()) for of in parts)
            groups.append(Group(str(column), positives, values))
        return groups
    remedy = "expected a classification or a multilabel task"
    raise OptionError(f"{task} has no classes", place="--by", value="class", remedy=remedy)


def _confusion(part: Part, c: int) -> tuple[int, int, int]:
    """Returns how many examples are of class c and predicted so, of class c, and predicted as class c."""
    target, predicted = part.labels.reshape(-1) == c, part.output.argmax(-1) == c
    return int((target & predicted).sum()), int(target.sum()), int(predicted.sum())


def by_graph_size(predictions: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Group]:
    """Metrics of the examples in graphs of similar size: at most `BINS` groups with about equally many examples.

    Raises:
        OptionError: the examples are nodes of one graph, or have several rows.
    """
    sizes = [prediction.parts[part].graph_sizes for prediction in predictions]
    if any(size is None for size in sizes):
        one_graph = predictions[0].parts[part].nodes is None
        these = f"{predictions[0].level}s of one graph" if one_graph else "several rows of a graph"
        problem = f"examples of {predictions[0].record.run.dataset} are {these}"
        remedy = "expected one row per graph, or nodes of many graphs"
        raise OptionError(problem, place="--by", value="graph-size", remedy=remedy)
    arrays = [np.asarray(size) for size in sizes]
    edges = np.unique(np.quantile(np.concatenate(arrays), np.linspace(0, 1, BINS + 1), method="lower"))
    groups = []
    for low, high in zip(edges[:-1] if len(edges) > 1 else edges, edges[1:] if len(edges) > 1 else edges):
        last = high == edges[-1]
        rows = [np.flatnonzero((of >= low) & ((of <= high) if last else (of < high))) for of in arrays]
        values = {
            m: _mean(
                _value(prediction, m, part, of) for prediction, of in zip(predictions, rows, strict=True) if len(of)
            )
            for m in metrics
        }
        top = high if last else high - 1
        name = f"{low}" if low == top else f"{low} to {top}"
        groups.append(Group(name, statistics.fmean(len(of) for of in rows), values))
    return groups


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else None


def show(
    name: str,
    grid: Grid,
    metrics: Sequence[str],
    by: str | None,
    part: str,
    with_ensemble: bool,
    as_json: bool,
    root: Path,
) -> bool:
    """Prints metrics by seed and their mean, or by group. Returns whether recomputed metrics equal recorded ones."""
    cell, predictions = loaded(name, grid, root, part)
    chosen = list(metrics) or [predictions[0].record.run.metric]
    check_metrics(chosen, predictions[0])
    table = scored(predictions, chosen, part)
    groups = None if by is None else (by_class if by == "class" else by_graph_size)(predictions, chosen, part)
    together = None
    if with_ensemble:
        from gt_bench.analysis.ensemble import of_seeds  # loads torch

        together = of_seeds(predictions, chosen, part)
    if as_json:
        metrics_of = {
            result.metric: {
                "seeds": {str(k): v for k, v in result.values.items()},
                "mean": result.mean,
                "std": result.std,
            }
            for result in table
        }
        listed = [{"name": g.name, "examples": g.examples} | dict(g.values) for g in groups or ()]
        print_json(
            {"cell": cell.cell, "part": part, "metrics": metrics_of, "by": by, "groups": listed, "ensemble": together}
        )
    elif groups is not None:
        columns = list(groups[0].values)
        print_text(f"{name}: {part}, mean of {len(predictions)} seeds")
        print_table(
            [str(by), "examples", *map(_head, columns)],
            [[g.name, f"{g.examples:.4g}", *(_text(m, g.values[m]) for m in columns)] for g in groups],
        )
    else:
        unit = "σ" if predictions[0].record.run.recipe.get("targets") else ""
        rows = [
            [str(seed), *(_text(result.metric, result.values[seed]) for result in table)] for seed in table[0].values
        ]
        rows.append(["mean", *(_text(result.metric, result.mean, result.std) for result in table)])
        if together:
            rows.append(["ensemble", *(_text(metric, value) for metric, value in together.items())])
        print_text(f"{name}: {part}, from stored predictions")
        print_table(["seed", *(_head(metric, unit) for metric in chosen)], rows)
    differing = [f"{result.metric} of seed {seed}" for result in table for seed in result.differing]
    if differing:
        print_text(f"not the value of the record: {', '.join(differing)}; `gt-bench store verify` checks both")
    return not differing


def _head(metric: str, unit: str = "") -> str:
    """Returns the head of a column. `unit`: of standardised targets."""
    if unit and metric in ("mae", "rmse", "mse"):
        return f"{metric} / {unit}{'²' if metric == 'mse' else ''}"
    return f"{metric} %" if metric in _PERCENT else metric


def _text(metric: str, value: float | None, std: float | None = None) -> str:
    known = None if value is None or math.isnan(value) else value
    return mean_and_std(known, std, metric in _PERCENT)
