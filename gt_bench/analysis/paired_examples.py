"""Two cells on the same test examples: McNemar's test for classes, and a paired bootstrap for any metric.

McNemar's test asks whether the examples that only one of the two models classifies correctly are equally many for both
(exact binomial test, scipy). The paired bootstrap draws examples with replacement, the same for both models, and gives
a percentile interval of the difference of the metric, averaged over the seeds. Seeds with the same examples share a
draw. Nodes of many graphs depend on each other within a graph: whole graphs are drawn, and McNemar's test is left out,
since it assumes independent examples.
Source: Dietterich 1998, "Approximate statistical tests for comparing supervised classification learning algorithms";
Efron and Tibshirani 1993, chapter 13.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gt_bench.analysis.score import check_metrics, loaded
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import tested_values
from gt_bench.papers.pair_counts import COUNT
from gt_bench.papers.units import PERCENT, difference_text, metric_label, number_texts, span_of
from gt_bench.records.run import RunRecord
from gt_bench.stats.paired import FEWEST_PAIRS, TOO_FEW, ExampleError, Paired, paired
from gt_bench.store.predictions import Part, Predictions, PredictionsError, load, shipped_file
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT, file_of
from gt_bench.utils.format import print_json, print_text
from gt_bench.utils.terminal import print_table, print_wrapped

RESAMPLES = 1000
LEVEL = 0.95
DRAWS = 100  # of a standard error
FEWEST = 6  # examples with a difference: the sign test of five that agree has p value 0.0625
FEW_SEEDS = 3  # whose metrics are drawn, if a draw of the metric takes long


@dataclass(frozen=True)
class McNemar:
    """Correct answers of two models on the same examples.

    Attributes:
        only_first: number of examples that only the first model classifies correctly.
        only_second: number that only the second model classifies correctly.
        p_value: of the exact test that both are equally likely.
    """

    only_first: int
    only_second: int
    p_value: float


@dataclass(frozen=True)
class SeedPair:
    """Predictions of one seed of two cells, in the same order of examples."""

    seed: int
    first: Predictions
    second: Predictions
    rows: np.ndarray  # of the second, in the order of the first
    part: str

    @property
    def parts(self) -> tuple[Part, Part]:
        """Outputs and targets of both."""
        return self.first.parts[self.part], self.second.parts[self.part]


@dataclass(frozen=True)
class Difference:
    """A metric of two cells on the same examples.

    Attributes:
        metric: its name.
        first: mean over the seeds.
        second: mean over the seeds.
        interval: of first minus second, percentile bootstrap. None if the metric is undefined in too many draws.
        word: "first" or "second" for the better cell, or "inconclusive" if the interval contains 0, or if fewer than
            FEWEST examples (or graphs) differ, which draws repeat and cannot outweigh.
    """

    metric: str
    first: float
    second: float
    interval: tuple[float, float] | None
    word: str


def pair_up(
    first: Sequence[Predictions], second: Sequence[Predictions], names: tuple[str, str], part: str
) -> list[SeedPair]:
    """Pairs the common seeds of two cells.

    Raises:
        RecipeError: tasks or examples differ, or there is no common seed.
    """
    if first[0].task != second[0].task:
        tasks = first[0].task, second[0].task
        problem = f"{names[0]} is {tasks[0]} and {names[1]} is {tasks[1]}: they have no common metric"
        raise RecipeError(problem, value=tasks)
    by_seed = {mine.record.run.seed: mine for mine in second}
    pairs, differing = [], []
    for mine in first:
        run = mine.record.run
        other = by_seed.get(run.seed)
        if other is None:
            continue
        rows = mine.parts[part].rows_of(other.parts[part])
        if rows is None:
            sizes = len(mine.parts[part].output), len(other.parts[part].output)
            splits = run.split, other.record.run.split
            differing.append(
                f"seed {run.seed}: {sizes[0]} examples of {run.dataset}, split {splits[0]}, and {sizes[1]} of "
                f"{other.record.run.dataset}, split {splits[1]}"
            )
        else:
            pairs.append(SeedPair(run.seed, mine, other, rows, part))
    if differing:
        means = f"`gt-bench compare {names[0]} {names[1]}`"
        raise RecipeError(
            f"{names[0]} and {names[1]} have different {part} sets ({differing[0]}): examples cannot be paired",
            value=part,
            remedy=f"compare cells of one dataset and split, or compare means: {means}",
        )
    if not pairs:
        seeds = [", ".join(str(mine.record.run.seed) for mine in side) for side in (first, second)]
        problem = f"{names[0]} has seeds {seeds[0]} and {names[1]} has seeds {seeds[1]}: no seed in common"
        raise RecipeError(problem, value=seeds)
    return pairs


def mcnemar(pair: SeedPair) -> McNemar:
    """McNemar's exact test on one seed of a classification."""
    from scipy.stats import binomtest

    first, second = pair.parts
    target = first.labels.reshape(-1)
    right, other = first.output.argmax(-1) == target, second.output[pair.rows].argmax(-1) == target
    only_first, only_second = int((right & ~other).sum()), int((other & ~right).sum())
    count = only_first + only_second
    return McNemar(only_first, only_second, float(binomtest(only_first, count).pvalue) if count else 1.0)


def bootstrap(pairs: Sequence[SeedPair], metric: str, resamples: int = RESAMPLES) -> Difference:
    """Paired bootstrap of the difference of a metric, averaged over the seeds."""
    values = [(pair.first.score(metric, pair.part), pair.second.score(metric, pair.part, pair.rows)) for pair in pairs]
    first, second = (statistics.fmean(column) for column in zip(*values, strict=True))
    draws = _draws(pairs, metric, resamples)
    known = draws[~np.isnan(draws)]
    if len(known) < 0.9 * resamples:
        return Difference(metric, first, second, None, "inconclusive")
    low, high = (float(v) for v in np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    sign = 1 if pairs[0].first.create_task(metric).direction == "max" else -1
    few = _differing(pairs, metric) < FEWEST
    word = "inconclusive" if low <= 0 <= high or few else "first" if sign * low > 0 else "second"
    return Difference(metric, first, second, (low, high), word)


def _differing(pairs: Sequence[SeedPair], metric: str) -> int:
    """Returns the largest number of drawn examples, or graphs, of a seed in which the models differ.

    For metrics that are no mean over examples, all count.
    """
    counts = []
    for pair in pairs:
        graphs, losses = graphs_of(pair.parts[0]), _per_example(pair, metric)
        differs = np.ones(len(pair.rows), dtype=bool) if losses is None else losses != 0
        counts.append(int(differs.sum()) if graphs is None else sum(bool(differs[rows].any()) for rows in graphs))
    return max(counts)


def _draws(pairs: Sequence[SeedPair], metric: str, resamples: int) -> np.ndarray:
    """Returns mean differences over the seeds in draws of the examples; NaN where undefined, [resamples]."""
    draws = np.zeros(resamples)
    rng, shared = np.random.default_rng(0), _same_examples(pairs)
    per_example = [_per_example(pair, metric) for pair in pairs]
    graphs = [graphs_of(pair.parts[0]) for pair in pairs]
    for draw in range(resamples):
        common = _drawn(rng, graphs[0], len(pairs[0].rows)) if shared else None
        for pair, of, losses in zip(pairs, graphs, per_example, strict=True):
            rows = common if common is not None else _drawn(rng, of, len(pair.rows))
            draws[draw] += _difference(pair, metric, rows, losses) / len(pairs)
    return draws


def compare_runs(
    cells: tuple[str, str], records: tuple[Sequence[RunRecord], Sequence[RunRecord]], rules: Rules, store: Store,
    root: Path = ROOT,
) -> tuple[Paired, str] | None:  # fmt: skip
    """Compares the runs of two cells over their common seeds and splits.

    Args:
        cells: names of the cells.
        records: of each cell, with one metric.
        rules: settings of the tests.
        store: the run store.
        root: folder of shipped records.

    Returns:
        The comparison, and why the uncertainty of the test examples is unknown (empty if it is known). None without a
        common seed and split.
    """
    first, second = (tested_values(side) for side in records)
    common = sorted(first.keys() & second.keys())
    if not common:
        return None
    one, other = ({(record.run.seed, record.run.split): record for record in side} for side in records)
    run = one[common[0]].run
    examples: ExampleError | str = TOO_FEW  # a difference of fewer pairs is not judged
    if len(common) >= FEWEST_PAIRS:
        examples = example_error(cells, [(one[key], other[key]) for key in common], run.metric, store, root)
    known = examples if isinstance(examples, ExampleError) else None
    values = [first[key] for key in common], [second[key] for key in common]
    found = paired(*values, run.direction, rules, known, span_of(run.metric))
    return found, "" if isinstance(examples, ExampleError) else examples


def example_error(
    cells: tuple[str, str],
    runs: Sequence[tuple[RunRecord, RunRecord]],
    metric: str,
    store: Store,
    root: Path = ROOT,
) -> ExampleError | str:
    """Returns the standard error of a mean difference over draws of the test examples.

    Counts of pairs (BREC) are binomial and independent, except those of all pairs of some graphs (sr25); other
    metrics are drawn from stored predictions.

    Args:
        cells: names of the cells.
        runs: their runs of the same seeds and splits.
        metric: the metric.
        store: the run store.
        root: folder of shipped records.

    Returns:
        The error, or why it is unknown.
    """
    if metric == COUNT:
        counted = runs[0][0].run.epochs.get("pair")
        if counted is None:
            return f"{metric} counts all pairs of the same graphs, which are no independent examples"
        return ExampleError(_binomial(runs, len(counted)), shared=True)
    pairs = []
    try:
        for of_run in runs:
            first, second = (
                load(cell, record, store, shipped_file(file_of(cell, root)))
                for cell, record in zip(cells, of_run, strict=True)
            )
            rows = first.parts["test"].rows_of(second.parts["test"])
            if rows is None:
                return f"{cells[0]} and {cells[1]} have different test examples"
            pairs.append(SeedPair(first.record.run.seed, first, second, rows, "test"))
    except PredictionsError as error:
        return str(error)
    shared = _same_examples(pairs)
    if shared and _per_example(pairs[0], metric) is None:
        pairs = pairs[:FEW_SEEDS]  # what they share is what counts
    units = [len(graphs_of(pair.parts[0]) or pair.rows) for pair in pairs]
    if min(units) < 2:
        return f"{metric} is of a single test example"
    draws = _draws(pairs, metric, DRAWS)
    draws = draws[~np.isnan(draws)]
    if len(draws) < 2:
        return f"{metric} is undefined in draws of examples"
    # draws from n examples scatter by (n - 1) / n of the variance that n new examples have
    return ExampleError(float(draws.std(ddof=1)) * math.sqrt(min(units) / (min(units) - 1)), shared)


def _binomial(runs: Sequence[tuple[RunRecord, RunRecord]], pairs: int) -> float:
    """Returns the standard error of the difference of two mean counts: binomial, with 1/2 added to both outcomes."""
    sides = zip(*runs, strict=True)
    means = [statistics.fmean(record.run.test or 0.0 for record in side) for side in sides]
    shares = [(mean + 0.5) / (pairs + 1) for mean in means]
    return math.sqrt(sum(pairs * share * (1 - share) for share in shares))


def graphs_of(part: Part) -> list[np.ndarray] | None:
    """Returns the rows of each graph, if examples are nodes of many graphs; None if they are drawn one by one."""
    ids = part.example_ids
    if ids is None or len(np.unique(ids)) == len(ids):
        return None
    order = np.argsort(ids, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)


def _drawn(rng: np.random.Generator, graphs: Sequence[np.ndarray] | None, count: int) -> np.ndarray:
    """Returns the rows of one draw with replacement: of `count` examples, or all nodes of graphs."""
    if graphs is None:
        return rng.integers(0, count, count)
    return np.concatenate([graphs[n] for n in rng.integers(0, len(graphs), len(graphs))])


def _same_examples(pairs: Sequence[SeedPair]) -> bool:
    ids = [one.parts[0].example_ids for one in pairs]
    if ids[0] is None:
        return all(one is None for one in ids) and len({len(one.rows) for one in pairs}) == 1
    return all(one is not None and np.array_equal(ids[0], one) for one in ids)


def _per_example(pair: SeedPair, metric: str) -> np.ndarray | None:
    """Differences per example, [N], whose mean is the difference of the metric. None for metrics that are no mean."""
    first, second = pair.parts
    target, mine, theirs = first.labels, first.output, second.output[pair.rows]
    if metric in ("accuracy", "f1-micro") and pair.first.task.endswith("classification"):
        truth = target.reshape(-1)
        return (mine.argmax(-1) == truth).astype(float) - (theirs.argmax(-1) == truth)
    if metric in ("mae", "mse") and not np.isnan(target).any():
        target = target.reshape(mine.shape).astype(float)
        errors = [np.abs(output.astype(float) - target).reshape(len(target), -1) for output in (mine, theirs)]
        power = 1 if metric == "mae" else 2
        return (errors[0] ** power).mean(1) - (errors[1] ** power).mean(1)
    return None


def _difference(pair: SeedPair, metric: str, rows: np.ndarray, losses: np.ndarray | None) -> float:
    if losses is not None:
        return float(losses[rows].mean())
    try:
        return pair.first.score(metric, pair.part, rows) - pair.second.score(metric, pair.part, pair.rows[rows])
    except ValueError:  # undefined on this draw, for example one class
        return math.nan


def show(
    names: tuple[str, str],
    grid: Grid,
    metrics: Sequence[str],
    part: str,
    resamples: int,
    as_json: bool,
    root: Path = ROOT,
) -> None:
    """Prints the comparison of two cells.

    Raises:
        RecipeError: the cells cannot be paired.
        PredictionsError: a run has no usable predictions.
    """
    (_, first), (_, second) = (loaded(name, grid, root, part) for name in names)
    chosen = list(metrics) or [first[0].record.run.metric]
    check_metrics(chosen, first[0])
    pairs = pair_up(first, second, names, part)
    for pair in pairs:
        _ = pair.parts[0].labels  # raises if examples have no row of their own
    differences = [bootstrap(pairs, metric, resamples) for metric in chosen]
    of_graphs = graphs_of(pairs[0].parts[0]) is not None
    tests: Mapping[int, McNemar] = (
        {pair.seed: mcnemar(pair) for pair in pairs}
        if first[0].task.endswith("classification") and not of_graphs
        else {}
    )
    if as_json:
        print_json(
            {
                "first": names[0],
                "second": names[1],
                "part": part,
                "seeds": [pair.seed for pair in pairs],
                "metrics": {
                    measured.metric: {k: v for k, v in vars(measured).items() if k != "metric"}
                    for measured in differences
                },
                "mcnemar": {str(seed): vars(test) for seed, test in tests.items()},
            }
        )
        return
    print_text(f"first: {names[0]}\nsecond: {names[1]}\n{part}: the same examples; {len(pairs)} common seeds")
    drawn = "graphs" if of_graphs else "examples"
    print_wrapped(f"paired bootstrap: {resamples} draws of the {drawn}, mean over the seeds, first minus second")
    print_table(
        ["metric", "first", "second", f"difference [{100 * LEVEL:g} %]", "verdict"],
        [[metric_label(measured.metric), *_numbers(measured), _verdict(measured)] for measured in differences],
    )
    if tests:
        print_text("McNemar's exact test")
        print_table(
            ["seed", "only first right", "only second right", "p"],
            [[str(s), str(t.only_first), str(t.only_second), f"{t.p_value:.3g}"] for s, t in tests.items()],
        )


def _verdict(measured: Difference) -> str:
    return measured.word if measured.word == "inconclusive" else f"{measured.word} is better"


def _numbers(measured: Difference) -> list[str]:
    percent = measured.metric in PERCENT
    difference = difference_text(measured.first - measured.second, measured.interval, percent)
    return [*number_texts([measured.first, measured.second], percent), difference]
