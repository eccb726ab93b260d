"""`gt-bench score CELL --metric NAME`: metrics from stored predictions, without weights and without data."""

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.data.custom.dataset import METRICS
from gt_bench.data.custom.edges import LINK
from gt_bench.data.custom.metric import is_custom, load_metric
from gt_bench.data.custom.summary import TWO_CLASSES
from gt_bench.leaderboard.collect import OWN, SHIPPED
from gt_bench.papers.units import PERCENT, mean_and_std
from gt_bench.schemas import Record
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
        raise RecipeError(f"{name}: expected {bare}@{OWN} or {bare}@{SHIPPED}, not @{source}")
    cell, store = grid.find(bare), Store()
    shipped = file_of(cell.cell, root)
    result = read_result(Path("results", f"{cell.cell}.json"), cell.cell) if source != SHIPPED else None
    records: list[Record] = []
    if result is not None and result["runs"]:
        records = records_of(result, store)
    elif source != OWN and shipped.exists():
        records = read(shipped).records
    good = [record for record in records if record["deterministic"]["status"] == "ok"]
    if not good:
        raise PredictionsError(
            f"{name}: no run with status ok, here or shipped, has predictions; run `gt-bench train {cell.cell}`"
        )
    if failed := Counter(one["deterministic"]["status"] for one in records if one not in good):
        listed = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        print_text(f"{name}: left out, as they did not end well: {listed} of {len(records)} runs", file=sys.stderr)
    found = [load(cell.cell, record, store, shipped_file(shipped)) for record in good]
    for one in found:
        if part not in one.parts:
            raise PredictionsError(
                f"{name}: seed {one.record['deterministic']['seed']} has predictions of {', '.join(one.parts)} only, "
                f"not of {part}"
            )
    return cell, found


def check_own_runs(cell: Cell, root: Path = ROOT) -> None:
    """Checks that a cell was trained here, because weights are not shipped.

    Raises:
        PredictionsError: it has only shipped records.
    """
    if not Path("results", f"{cell.cell}.json").exists() and file_of(cell.cell, root).exists():
        raise PredictionsError(
            f"{cell.cell}: its records are shipped, but weights are not; `gt-bench score {cell.cell} --metric NAME` "
            f"uses stored predictions, and `gt-bench train {cell.cell}` trains it here"
        )


def fitting_metrics(one: Predictions) -> tuple[str, ...]:
    """Returns the registered metrics that are meaningful for the task of a run."""
    outputs = next(iter(one.parts.values())).output
    if one.task not in METRICS:
        return tuple(one.create_task(one.record["deterministic"]["metric"]).directions)
    if one.task == LINK:
        negatives = outputs.size(1) - 1
        return tuple(m for m in METRICS[LINK] if not m.startswith("hits@") or int(m.partition("@")[2]) <= negatives)
    if one.task.endswith("classification") and outputs.size(1) != 2:
        return tuple(name for name in METRICS[one.task] if name not in TWO_CLASSES)
    return METRICS[one.task]


def check_metrics(names: Sequence[str], one: Predictions) -> None:
    """Checks that metrics fit the task of a run.

    Raises:
        RecipeError: one does not, or it is user-supplied and the targets of the run are standardised.
        MetricError: a user-supplied one cannot be used.
    """
    known = fitting_metrics(one)
    for name in names:
        if is_custom(name) and one.task in METRICS:
            load_metric(name)
            if how := one.record["deterministic"]["recipe"].get("targets"):
                raise RecipeError(
                    f"--metric {name}: reads targets in the unit of the data, but those of this run are standardised "
                    f"(targets: {how} in its recipe); train it with --set targets=null"
                )
        elif name not in known:
            shape = ", ".join(["N", *map(str, next(iter(one.parts.values())).output.shape[1:])])
            raise RecipeError(
                f"--metric {name}: not a metric of {one.task} with outputs of shape [{shape}]"
                f"{nearest(name, list(known))}; expected one of {', '.join(known)}"
            )


def scored(found: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Scored]:
    """Computes metrics again for each seed. A metric that is undefined on the targets of a seed is NaN."""
    table = []
    for metric in metrics:
        values, recorded = {}, {}
        for one in found:
            run = one.record["deterministic"]
            values[run["seed"]] = _value(one, metric, part)
            said = (
                run["test_metrics"].get(metric) if part == "test" else run["val"] if metric == run["metric"] else None
            )
            if said is not None:
                recorded[run["seed"]] = said
        table.append(Scored(metric, values, recorded))
    return table


def _value(one: Predictions, metric: str, part: str, rows: Tensor | None = None) -> float:
    try:
        return one.score(metric, part, rows)
    except ValueError:  # for example one class in these rows
        return math.nan


def by_class(found: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Group]:
    """Recall, precision and F1 of each class, or the metrics of each label of a multilabel task.

    Raises:
        RecipeError: the task has no classes.
    """
    task = found[0].task
    parts = [one.parts[part] for one in found]
    if task.endswith("classification"):
        groups = []
        for c in range(parts[0].output.size(1)):
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
        for column in range(parts[0].output.size(1)):
            values = {metric: _mean(_column(one, metric, part, column) for one in found) for metric in metrics}
            positives = statistics.fmean(float((of.labels[:, column] == 1).sum()) for of in parts)
            groups.append(Group(str(column), positives, values))
        return groups
    raise RecipeError(f"--by class: {task} has no classes; expected a classification or a multilabel task")


def _confusion(part: Part, c: int) -> tuple[int, int, int]:
    """Returns how many examples are of class c and predicted so, of class c, and predicted as class c."""
    target, predicted = part.labels.view(-1) == c, part.output.argmax(-1) == c
    return int((target & predicted).sum()), int(target.sum()), int(predicted.sum())


def _column(one: Predictions, metric: str, part: str, column: int) -> float:
    of = one.parts[part]
    try:
        return one.create_task(metric).evaluate([of.output[:, [column]]], [of.labels[:, [column]]])[metric]
    except ValueError:
        return math.nan


def by_graph_size(found: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> list[Group]:
    """Metrics of the examples in graphs of similar size: at most `BINS` groups with about equally many examples.

    Raises:
        RecipeError: the examples are nodes of one graph, or have several rows.
    """
    sizes = [one.parts[part].graph_sizes for one in found]
    if any(one is None for one in sizes):
        one_graph = found[0].parts[part].nodes is None
        raise RecipeError(
            f"--by graph-size: examples of {found[0].record['deterministic']['dataset']} are "
            f"{f'{found[0].level}s of one graph' if one_graph else 'several rows of a graph'}; "
            "expected one row per graph, or nodes of many graphs"
        )
    arrays = [np.asarray(one) for one in sizes]
    edges = np.unique(np.quantile(np.concatenate(arrays), np.linspace(0, 1, BINS + 1), method="lower"))
    groups = []
    for low, high in zip(edges[:-1] if len(edges) > 1 else edges, edges[1:] if len(edges) > 1 else edges):
        last = high == edges[-1]
        rows = [
            torch.from_numpy(np.flatnonzero((of >= low) & ((of <= high) if last else (of < high)))) for of in arrays
        ]
        values = {
            m: _mean(_value(one, m, part, of) for one, of in zip(found, rows, strict=True) if len(of)) for m in metrics
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


def ensemble(found: Sequence[Predictions], metrics: Sequence[str], part: str = "test") -> dict[str, float]:
    """Metrics of the mean of the seeds' predictions: of probabilities for classes and labels, of outputs otherwise.

    Raises:
        RecipeError: the seeds have different examples, or an example has no row of its own.
    """
    shares = shares_of(found, part)
    if shares is None:
        raise RecipeError(
            f"--ensemble: the seeds of this cell have different {part} examples (a split per seed): their predictions "
            "cannot be averaged"
        )
    mean, labels = outputs_of(found[0].task, shares.mean(0)), found[0].parts[part].labels
    return {m: found[0].create_task(m).evaluate([mean], [labels])[m] for m in metrics}


def shares_of(runs: Sequence[Predictions], part: str) -> Tensor | None:
    """Returns what an ensemble averages: probabilities for classes and labels, outputs otherwise.

    Args:
        runs: M runs of a task.
        part: val or test.

    Returns:
        float64 [M, N, ...], in the order of the first run. None if the runs have different examples.
    """
    rows = [aligned(runs[0].parts[part], run.parts[part]) for run in runs]
    if any(of is None for of in rows):
        return None
    outputs = torch.stack([run.parts[part].output[of].double() for run, of in zip(runs, rows, strict=True)])
    if runs[0].task.endswith("classification"):
        return outputs.softmax(-1)
    return outputs.sigmoid() if runs[0].task.endswith("multilabel") else outputs


def outputs_of(task: str, mean: Tensor) -> Tensor:
    """Returns averaged `shares_of` as outputs of a model, which the metrics of a task read."""
    if task.endswith("classification"):
        return mean.log()
    # finite for a probability of 0 or 1
    return mean.logit().clamp(-1e3, 1e3) if task.endswith("multilabel") else mean


def aligned(first: Part, second: Part) -> Tensor | None:
    """Returns the rows of `second` in the order of `first`, long [N]. None if the two have other examples."""
    if first.labels.shape != second.labels.shape:
        return None
    mine, theirs = first.example_ids, second.example_ids
    rows = torch.arange(len(first.output))
    if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
        order, other = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
        if not np.array_equal(mine[order], theirs[other]):
            return None
        rows[torch.from_numpy(order)] = torch.from_numpy(other)
    return rows if torch.equal(first.labels.nan_to_num(), second.labels[rows].nan_to_num()) else None


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
    cell, found = loaded(name, grid, root, part)
    chosen = list(metrics) or [found[0].record["deterministic"]["metric"]]
    check_metrics(chosen, found[0])
    table = scored(found, chosen, part)
    groups = None if by is None else (by_class if by == "class" else by_graph_size)(found, chosen, part)
    together = ensemble(found, chosen, part) if with_ensemble else None
    if as_json:
        metrics_of = {
            one.metric: {"seeds": {str(k): v for k, v in one.values.items()}, "mean": one.mean, "std": one.std}
            for one in table
        }
        listed = [{"name": g.name, "examples": g.examples} | dict(g.values) for g in groups or ()]
        print_json(
            {"cell": cell.cell, "part": part, "metrics": metrics_of, "by": by, "groups": listed, "ensemble": together}
        )
    elif groups is not None:
        columns = list(groups[0].values)
        print_text(f"{name}: {part}, mean of {len(found)} seeds")
        print_table(
            [str(by), "examples", *map(_head, columns)],
            [[g.name, f"{g.examples:.4g}", *(_text(m, g.values[m]) for m in columns)] for g in groups],
        )
    else:
        unit = "σ" if found[0].record["deterministic"]["recipe"].get("targets") else ""
        rows = [[str(seed), *(_text(one.metric, one.values[seed]) for one in table)] for seed in table[0].values]
        rows.append(["mean", *(_text(one.metric, one.mean, one.std) for one in table)])
        if together:
            rows.append(["ensemble", *(_text(metric, value) for metric, value in together.items())])
        print_text(f"{name}: {part}, from stored predictions")
        print_table(["seed", *(_head(metric, unit) for metric in chosen)], rows)
    differing = [f"{one.metric} of seed {seed}" for one in table for seed in one.differing]
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
