"""`gt-bench ablate FACTOR`: the effect of one recipe value or encoding, over pairs of cells.

Two cells are a pair if dataset, data, metric, versions of the code and all values of the recipe are equal, except the
factor. The parts of a task that are tested, `targets` (the unit) and `split` are no factors. Arguments that a recipe
leaves at their default count as given. The effect is the mean difference of the test metric over common seeds and
splits, with Student's interval (`gt_bench.stats.paired`). Nothing is computed.
"""

import io
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gt_bench.analysis.paired_examples import compare_runs
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.protocols import PROTOCOLS
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import tested_values, versions_of
from gt_bench.papers.units import PERCENT, difference_text, metric_label
from gt_bench.records.run import RunRecord
from gt_bench.stats.paired import EQUAL, FIRST, SECOND, TOO_FEW, Paired, paired
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_json, print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.nested import flat
from gt_bench.utils.terminal import print_table, print_wrapped

ABSENT = "absent"
OF_DATA = ("in_dim", "out_dim", "edge_dim", "level")  # arguments that the dataset decides
PLOTS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Arm:
    """One version of a cell.

    Attributes:
        cell: its name.
        source: own or shipped.
        protocol: what two cells of a pair must share besides their recipes.
        recipe: {dotted key: value}, with the defaults of the model's arguments.
        records: its runs whose metric is defined.
    """

    cell: str
    source: str
    protocol: tuple[object, ...]
    recipe: Mapping[str, object]
    records: Sequence[RunRecord]

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.records[0].run.metric

    @cached_property
    def runs(self) -> Set[tuple[int, int]]:
        """Seed and split of each run."""
        return tested_values(self.records).keys()


@dataclass(frozen=True)
class Effect:
    """The effect of the factor in one pair of cells: `after` instead of `before`.

    Attributes:
        first: the cell with `before`.
        second: the cell with `after`.
        before: value of the factor.
        after: other value of the factor.
        found: paired differences; positive differences favour `after`.
    """

    first: Arm
    second: Arm
    before: str
    after: str
    found: Paired


def arms(grid: Grid, cells: Sequence[Cell], root: Path = ROOT) -> tuple[list[Arm], list[str]]:
    """Reads own and shipped versions of cells. Equal runs count once.

    Returns:
        The versions, and what could not be read.
    """
    by_runs: dict[tuple[str, ...], Arm] = {}
    problems: list[str] = []
    for cell in cells:
        for version in versions_of(cell, root, problems):
            good = [record for record in version.records if tested_values([record])]
            if good:
                by_runs.setdefault(tuple(sorted(record.digest for record in good)), _arm(cell, version.source, good))
    return list(by_runs.values()), problems


def _arm(cell: Cell, source: str, records: Sequence[RunRecord]) -> Arm:
    run, measured = records[0].run, records[0].measured
    digests = run.digests
    tested = [(run.recipe.get(section.KEY) or {}).get(section.TESTED) for section in PROTOCOLS.values()]
    protocol = (
        # `targets` decides the unit of the metric, and `tested` the parts of a task: they are no factors
        cell.dataset, digests.data, digests.modified, digests.files, run.metric,
        run.recipe.get("targets"), json.dumps(tested),
        json.dumps(run.versions, sort_keys=True),
    )  # fmt: skip
    defaults = {key: value for key, value in (measured.arguments or {}).items() if key not in OF_DATA}
    recipe = run.recipe | {"model": defaults | run.recipe["model"]}
    # runs of the same seed and split do not depend on `split`
    values = {key: value for key, value in flat(recipe) if value != {} and key != "split"}
    # an encoding without arguments is a value, too
    values |= {f"encodings.{name}": "present" for name in recipe.get("encodings") or ()}
    return Arm(cell.cell, source, protocol, values, records)


def _is_of(key: str, factor: Sequence[str]) -> bool:
    return any(key == part or key.startswith(f"{part}.") for part in factor)


def value_of(arm: Arm, factor: Sequence[str]) -> str:
    """Returns the values of a factor as text."""
    own = {key: value for key, value in arm.recipe.items() if _is_of(key, factor)}
    if not own:
        return ABSENT
    inner = {key: value for key, value in own.items() if not (value == "present" and len(own) > 1)}
    if set(inner) == {factor[0]}:
        return str(inner[factor[0]])
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in sorted(inner.items()))


def _order(arm: Arm, factor: Sequence[str]) -> tuple[int, float, str]:
    """Sorts values: absent, numbers, words."""
    text = value_of(arm, factor)
    number = arm.recipe.get(factor[0])
    if text == ABSENT:
        return (0, 0.0, "")
    return (1, float(number), "") if isinstance(number, bool | int | float) else (2, 0.0, text)


def effects(arms: Sequence[Arm], factor: Sequence[str], rules: Rules, root: Path = ROOT) -> list[Effect]:
    """Compares all pairs that differ in the factor alone and have common seeds and splits."""
    store = Store()
    groups: dict[object, list[Arm]] = {}
    for arm in arms:
        rest = {k: v for k, v in arm.recipe.items() if not _is_of(k, factor)}
        groups.setdefault((arm.protocol, json.dumps(rest, sort_keys=True)), []).append(arm)
    pairs = []
    for group in groups.values():
        group.sort(key=lambda arm: _order(arm, factor))
        for i, first in enumerate(group):
            for second in group[i + 1 :]:
                before, after = value_of(first, factor), value_of(second, factor)
                if before == after:
                    continue
                cells, records = (second.cell, first.cell), (second.records, first.records)
                if found := compare_runs(cells, records, rules, store, root):
                    pairs.append(Effect(first, second, before, after, found[0]))
    return pairs


def factors(arms: Sequence[Arm]) -> Counter[str]:
    """Counts pairs by the one value or encoding in which they differ."""
    counts: Counter[str] = Counter()
    for i, first in enumerate(arms):
        for second in arms[i + 1 :]:
            if first.protocol != second.protocol or not first.runs & second.runs:
                continue
            if len(keys := _differing(first, second)) == 1:
                counts[keys[0]] += 1
    return counts


def _differing(first: Arm, second: Arm) -> list[str]:
    """Returns the keys in which two recipes differ; the arguments of an encoding are one key."""
    keys = {k for k in first.recipe.keys() | second.recipe.keys() if first.recipe.get(k) != second.recipe.get(k)}
    return sorted({".".join(key.split(".")[:2]) if key.startswith("encodings.") else key for key in keys})


def nothing_to_compare(arms: Sequence[Arm], factor: Sequence[str]) -> RecipeError:
    """Returns the error for a factor without pairs: what it should be, or what else the nearest pair differs in."""
    name = ",".join(factor)
    counts = factors(arms)
    known = sorted(
        {".".join(key.split(".")[: i + 1]) for arm in arms for key in arm.recipe for i in range(key.count(".") + 1)}
    )
    available = ", ".join(f"{key} ({count})" for key, count in counts.most_common(8)) or "none"
    for part in factor:
        if not any(_is_of(key, [part]) for arm in arms for key in arm.recipe):
            problem = f"no recipe has the value {part!r}{nearest(part, known)}; factors with pairs: {available}"
            return RecipeError(problem, place=f"gt-bench ablate {name}", value=part)
    best: tuple[int, str] | None = None
    for i, first in enumerate(arms):
        for second in arms[i + 1 :]:
            if first.protocol == second.protocol and value_of(first, factor) != value_of(second, factor):
                others = [key for key in _differing(first, second) if not _is_of(key, factor)]
                shown = ", ".join(others[:4]) + (" ..." if others[4:] else "")
                text = f"{first.cell} and {second.cell} differ also in {shown}"
                if others and (best is None or len(others) < best[0]):
                    best = len(others), text
    hint = f"; the nearest: {best[1]} (name several values with commas to vary them together)" if best else ""
    problem = f"no two cells differ in {name} alone and share seeds{hint}; factors with pairs: {available}"
    return RecipeError(problem, place=f"gt-bench ablate {name}", value=name)


def summary(pairs: Sequence[Effect], rules: Rules) -> list[str]:
    """Returns, for each change of the value, in how many pairs it helps, and the mean difference by metric."""
    from scipy.stats import binomtest

    lines = []
    changes = dict.fromkeys((effect.before, effect.after) for effect in pairs)
    for before, after in changes:
        mine = [effect for effect in pairs if (effect.before, effect.after) == (before, after)]
        up, down = (sum(sign * effect.found.difference > 0 for effect in mine) for sign in (1, -1))
        sure = Counter(effect.found.word for effect in mine)
        p = f", sign test p = {binomtest(up, up + down).pvalue:.2g}" if up + down > 1 else ""
        lines.append(
            f"{before} -> {after}: better in {up} of {len(mine)} pairs, worse in {down}{p}; significant alone: "
            f"{sure[FIRST]} better, {sure[SECOND]} worse"
        )
        for metric in dict.fromkeys(effect.first.metric for effect in mine):
            differences = [effect.found.difference for effect in mine if effect.first.metric == metric]
            if len(differences) > 1:
                over = paired(differences, [0.0] * len(differences), "max", rules)
                mean = difference_text(statistics.fmean(differences), over.interval, metric in PERCENT)
                lines.append(f"  {metric_label(metric)}: mean {mean} over pairs")
    return lines


def show(
    factor: str | None, grid: Grid, cells: Sequence[Cell], plot: Path | None, as_json: bool, root: Path = ROOT
) -> list[str]:
    """Prints the effects of a factor, or without one the factors that have pairs. Returns what could not be read.

    Raises:
        OptionError: the file of the plot has another ending than PLOTS, or there is no factor to plot.
        RecipeError: there is no pair.
    """
    if plot is not None and plot.suffix not in PLOTS:
        raise OptionError(f"expected a file that ends with {', '.join(PLOTS)}", place="--plot", value=plot)
    if plot is not None and factor is None:
        raise OptionError(f"of which factor? gt-bench ablate FACTOR --plot {plot}", place="--plot", value=plot)
    every_arm, problems = arms(grid, cells, root)
    rules = grid.run.verdict
    if factor is None:
        counts = factors(every_arm)
        if as_json:
            print_json(counts.most_common())
        else:
            print_table(
                ["factor", "pairs"], [[key, str(count)] for key, count in counts.most_common()], right=("pairs",)
            )
            print_wrapped(f"{len(every_arm)} cells with runs; pairs differ in this value alone and share seeds")
        return problems
    names = [name.strip() for name in factor.split(",") if name.strip()]
    if not names:
        problem = "expected a dotted key of a recipe, such as model.dropout or encodings.rrwp"
        raise RecipeError(problem, place="gt-bench ablate", value=factor)
    pairs = effects(every_arm, names, rules, root)
    if not pairs:
        raise nothing_to_compare(every_arm, names)
    pairs.sort(key=lambda effect: (effect.before, effect.after, effect.first.metric, -effect.found.difference))
    if as_json:
        print_json([_row(effect) for effect in pairs])
    else:
        print_wrapped(
            f"{factor}: {len(pairs)} pairs of cells that differ in nothing else; "
            "positive differences favour the new value"
        )
        difference = f"difference [{100 * (1 - rules.level):g} %]"
        print_table(
            ["cell", "change", difference, "seeds", "verdict"],
            [
                [
                    _names(effect),
                    f"{effect.before} -> {effect.after}",
                    f"{metric_label(metric := effect.first.metric)} "
                    + difference_text(effect.found.difference, effect.found.interval, metric in PERCENT),
                    str(effect.found.pairs),
                    _verdict(effect.found),
                ]
                for effect in pairs
            ],
            difference, "verdict", "change", "cell", "seeds", wrapped=("cell", "change", difference, "verdict"),
        )  # fmt: skip
        for line in summary(pairs, rules):
            print_wrapped(line)
    if plot is not None:
        print_text(f"written: {write_bytes(plot, forest(factor, pairs, plot.suffix))}")
    return problems


def _row(effect: Effect) -> dict[str, object]:
    return {
        "first": effect.first.cell, "first_source": effect.first.source, "second": effect.second.cell,
        "second_source": effect.second.source, "before": effect.before, "after": effect.after,
        "metric": effect.first.metric,
        "difference": effect.found.difference, "interval": effect.found.interval, "pairs": effect.found.pairs,
        "p_value": effect.found.p_value,
    }  # fmt: skip


def _names(effect: Effect) -> str:
    suite, dataset, row = effect.first.cell.split("/")
    other, _, second = effect.second.cell.split("/")
    rows = [row, second if other == suite else f"{other}/{second}"]
    return f"{suite} {dataset}: {', '.join(dict.fromkeys(rows))}"


def _verdict(result: Paired) -> str:
    more = f" (+{result.more_pairs})" if result.more_pairs else ""
    return {FIRST: "better", SECOND: "worse", EQUAL: "equal", TOO_FEW: TOO_FEW}.get(result.word, f"inconclusive{more}")


def forest(factor: str, pairs: Sequence[Effect], suffix: str) -> bytes:
    """Draws differences with their intervals, one line per pair, one panel per metric.

    Args:
        factor: the factor, for the title.
        pairs: the pairs.
        suffix: one of PLOTS.
    """
    metrics = list(dict.fromkeys(effect.first.metric for effect in pairs))
    panels = [(metric, [effect for effect in pairs if effect.first.metric == metric]) for metric in metrics]
    # the object interface needs no global state and no display, unlike pyplot
    from matplotlib import rc_context, style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heights = [len(pairs) + 1 for _, pairs in panels]
    with style.context("default", after_reset=True), rc_context({"svg.hashsalt": "forest"}):
        figure = Figure(figsize=(9, 1.2 + 0.28 * sum(heights)), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (metric, pairs) in zip(axes, panels, strict=True):
            labels, middle, low, high = _points(metric, pairs)
            axis.errorbar(middle, range(len(labels)), xerr=[low, high], fmt="o", color="black", markersize=4, capsize=2)
            axis.axvline(0, color="grey", linestyle=":", linewidth=1)
            axis.set_yticks(range(len(labels)), labels, fontsize="small")
            axis.set_ylim(len(labels) - 0.5, -0.5)
            axis.set_xlabel(f"difference of {metric_label(metric)}, positive: new value better", fontsize="small")
        figure.suptitle(factor, fontsize="medium")
        file = io.BytesIO()
        metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
        figure.savefig(file, format=suffix[1:], metadata=metadata)
    return file.getvalue()


def _points(metric: str, pairs: Sequence[Effect]) -> tuple[list[str], list[float], list[float], list[float]]:
    """Returns labels, differences, and the lengths of both arms of the intervals."""
    scale = 100 if metric in PERCENT else 1
    labels = [f"{_names(effect)}: {effect.before} -> {effect.after}" for effect in pairs]
    middle = [scale * effect.found.difference for effect in pairs]
    ends = [effect.found.interval or (effect.found.difference, effect.found.difference) for effect in pairs]
    low = [m - scale * end[0] for m, end in zip(middle, ends, strict=True)]
    return labels, middle, low, [scale * end[1] - m for m, end in zip(middle, ends, strict=True)]
