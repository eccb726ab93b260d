"""`gt-bench rank`: one ranking of models over datasets.

A *block* is one dataset of one suite: results of one protocol, with one metric. Metrics and parts of a dataset (BREC's
categories, jets of one flavour) depend on each other, so one of them counts: that which most models have, and of these
the first (or `--metric`). If two suites have the same runs of their common models on a dataset, both are one block.
Blocks of a dataset in several suites are one observation of every test (`gt_bench.stats.ranking`).

Missing results: a pair of models is compared on the blocks that both have (win rates, Bradley-Terry), and average ranks
are over the blocks that all models have. `--missing worst` counts a missing result as worse than every known one.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gt_bench.analysis.dataset_numbers import PUBLISHED, Block, DatasetNumber
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.data.registry import catalog
from gt_bench.stats import ranking

PAIRS, WORST = "pairs", "worst"
TOTAL = "-total"  # ending of the name of all parts of a dataset together


@dataclass(frozen=True)
class Ranked:
    """A model in a ranking.

    Attributes:
        model: its name.
        datasets: number of datasets with a result.
        published: number of its results that are published numbers.
        rank: average rank; None if no dataset has all models.
        win_rate: share of comparisons won, ties count half; None without a comparison.
        elo: strength.
        interval: its 95 % interval; None if it has none (`gt_bench.stats.ranking.strengths`).
    """

    model: str
    datasets: int
    published: int
    rank: float | None
    win_rate: float | None
    elo: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Ranking:
    """A ranking, best model first.

    Attributes:
        models: the models in order of strength.
        blocks: the blocks of the comparison.
        datasets: number of datasets of the blocks.
        ranked_datasets: number of datasets of the average ranks, those that all models have.
        missing: number of results that are missing.
        rule: PAIRS or WORST.
        p_value: of Friedman's test; None for two models or too few datasets.
        critical: critical difference of Nemenyi; None as above.
        different: pairs of models whose difference is significant (Wilcoxon, Holm).
        tested: pairs that could be tested.
        agreement: Kendall's tau of the orders under both rules, 1 if they are equal; None for equal strengths.
        other_first: the best model under the other rule.
        left_out: {why: models that are not comparable}.
    """

    models: list[Ranked]
    blocks: list[Block]
    datasets: int
    ranked_datasets: int
    missing: int
    rule: str
    p_value: float | None
    critical: float | None
    different: list[tuple[str, str, float]]
    tested: int
    agreement: float | None
    other_first: str
    left_out: Mapping[str, list[str]]


def rank(
    entries: Sequence[DatasetNumber],
    rule: str = PAIRS,
    draws: int = 200,
    level: float = 0.05,
    at_least: int = 1,
    metric: str | None = None,
) -> Ranking:
    """Ranks models.

    Args:
        entries: numbers; blocks with one model are left out.
        rule: PAIRS or WORST.
        draws: of the bootstrap.
        level: of the tests.
        at_least: number of datasets that a model needs. More than there are datasets count as all of them.
        metric: only this metric.

    Raises:
        RecipeError: no block has two models.
        OptionError: no number is of `metric`.
    """
    kept, left_out = _comparable(one_block_each(_same_runs_once(entries), metric), at_least)
    if not kept:
        remedy = "`gt-bench list` shows what was run, `--source published` ranks the numbers of the papers"
        raise RecipeError("no dataset has results of two models under these filters", remedy=remedy)
    models = sorted({entry.model for entry in kept})
    blocks = list(dict.fromkeys(entry.block for entry in kept))
    names = list(dict.fromkeys(whole_dataset(block.dataset) for block in blocks))
    datasets = np.array([names.index(whole_dataset(block.dataset)) for block in blocks])
    values = _matrix(kept, blocks, models)
    used = values if rule == PAIRS else ranking.with_worst(values)
    ranks = _ranks(used, datasets)
    won = ranking.wins(used, datasets)
    elo, total = ranking.strengths(won, draws), won.sum(0)
    met = total.sum(1) + total.sum(0)
    # the signs of metrics of different kinds are comparable, their differences are not: within-block scale
    p_values = ranking.wilcoxon_holm(_scaled(used), datasets)
    order = np.argsort(-elo[0], kind="stable").tolist()
    ranked = []
    for i in order:
        mine = [entry for entry in kept if entry.model == models[i]]
        ends = None if np.isnan(elo[1:, i]).any() else (float(elo[1, i]), float(elo[2, i]))
        ranked.append(
            Ranked(
                models[i],
                len({whole_dataset(entry.block.dataset) for entry in mine}),
                sum(entry.source == PUBLISHED for entry in mine),
                float(ranks[:, i].mean()) if len(ranks) else None,
                float(total[i].sum() / met[i]) if met[i] else None,
                float(elo[0, i]),
                ends,
            )
        )
    other = ranking.bradley_terry(
        ranking.wins(ranking.with_worst(values) if rule == PAIRS else values, datasets).sum(0)
    )
    pairs = [(i, j) for i in range(len(models)) for j in range(i) if not math.isnan(p_values[i, j])]
    different = []
    for i, j in pairs:
        if p_values[i, j] < level:
            better, worse = (i, j) if elo[0, i] > elo[0, j] else (j, i)
            different.append((models[better], models[worse], float(p_values[i, j])))
    return Ranking(
        ranked, blocks, len(names), len(ranks), int(np.isnan(values).sum()), rule, ranking.friedman(ranks),
        ranking.critical_difference(len(models), len(ranks), level), sorted(different, key=lambda pair: pair[2]),
        len(pairs), _agreement(elo[0], other), models[int(other.argmax())], left_out,
    )  # fmt: skip


def _ranks(values: np.ndarray, datasets: np.ndarray) -> np.ndarray:
    """Returns the ranks on the datasets that have a block with all models, [datasets, models]."""
    whole = ~np.isnan(values).any(1)
    if not whole.any():
        return np.empty((0, values.shape[1]))
    return ranking.ranks_of(-ranking.mean_by_dataset(ranking.ranks_of(values[whole]), datasets[whole]))


def whole_dataset(dataset: str) -> str:
    """Returns the dataset that a published name is a part of, such as brec for brec-cfi."""
    known = catalog()
    wholes = [name for name in known if dataset.startswith(f"{name}-")]
    return dataset if dataset in known else max(wholes, key=len, default=dataset)


def one_block_each(entries: Sequence[DatasetNumber], metric: str | None = None) -> list[DatasetNumber]:
    """Keeps one metric and one part of each dataset in a suite.

    Args:
        entries: numbers.
        metric: only this metric, in any unit.

    Returns:
        Of each dataset the numbers of all its parts together (`brec-total`) if there are any, otherwise of the block
        with the most models, and of these of the first.

    Raises:
        OptionError: no number is of `metric`.
    """
    known = list(dict.fromkeys(entry.block.metric.partition(" (")[0] for entry in entries))
    if metric is not None and metric not in known:
        problem = f"has no result here{nearest(metric, known)}; known: {', '.join(known)}"
        raise OptionError(problem, place="--metric", value=metric)
    counts = Counter(entry.block for entry in entries)
    taken: dict[tuple[str, str], Block] = {}
    for block in counts:
        if metric is not None and block.metric.partition(" (")[0] != metric:
            continue
        key = block.suite, whole_dataset(block.dataset)
        if key not in taken or _preferred(block, counts) > _preferred(taken[key], counts):
            taken[key] = block
    return [entry for entry in entries if entry.block in taken.values()]


def _preferred(block: Block, counts: Mapping[Block, int]) -> tuple[bool, int]:
    return block.dataset.endswith(TOTAL), counts[block]


def _same_runs_once(entries: Sequence[DatasetNumber]) -> list[DatasetNumber]:
    """Joins the blocks of one dataset and metric whose common models all have the same runs."""
    joined: dict[Block, dict[str, DatasetNumber]] = {}
    for block in dict.fromkeys(entry.block for entry in entries):
        mine = {entry.model: entry for entry in entries if entry.block == block}
        same = [
            other
            for other, theirs in joined.items()
            if other[1:] == block[1:]
            and (common := mine.keys() & theirs.keys())
            and all(mine[model].runs == theirs[model].runs != frozenset() for model in common)
        ]
        to = same[0] if same else block
        joined[to] = {model: replace(entry, block=to) for model, entry in mine.items()} | joined.get(to, {})
    return [entry for entries_of in joined.values() for entry in entries_of.values()]


def _comparable(entries: Sequence[DatasetNumber], at_least: int) -> tuple[list[DatasetNumber], dict[str, list[str]]]:
    """Returns the numbers of models that can be compared, and {why: the other models}."""
    few: set[str] = set()
    kept = list(entries)
    while True:  # leaving out a model can leave a block with one model
        blocks = Counter(entry.block for entry in kept)
        shared = [entry for entry in kept if blocks[entry.block] > 1]
        places = {(entry.model, whole_dataset(entry.block.dataset)) for entry in shared}
        counts = Counter(model for model, _ in places)
        needed = min(at_least, len({dataset for _, dataset in places}))
        again = [entry for entry in shared if counts[entry.model] >= needed]
        few |= {entry.model for entry in kept} - {entry.model for entry in again}
        if len(again) == len(kept):
            break
        kept = again
    left_out = {f"on fewer than {at_least} datasets with another model": sorted(few)} if few else {}
    if kept:
        models = sorted({entry.model for entry in kept})
        values = _matrix(kept, list(dict.fromkeys(entry.block for entry in kept)), models)
        linked = {models[i] for i in ranking.linked(values)}
        if apart := [model for model in models if model not in linked]:
            left_out["no chain of comparisons links them to the others"] = apart
        kept = [entry for entry in kept if entry.model in linked]
    return kept, left_out


def _matrix(entries: Sequence[DatasetNumber], blocks: Sequence[Block], models: Sequence[str]) -> np.ndarray:
    """Returns the numbers, larger is better, NaN where one is missing, [blocks, models]."""
    values = np.full((len(blocks), len(models)), np.nan)
    for entry in entries:
        sign = 1 if entry.direction == "max" else -1
        values[blocks.index(entry.block), models.index(entry.model)] = sign * entry.value
    return values


def _agreement(one: np.ndarray, other: np.ndarray) -> float | None:
    from scipy.stats import kendalltau

    tau = float(kendalltau(one, other).statistic)
    return None if math.isnan(tau) else tau


def _scaled(values: np.ndarray) -> np.ndarray:
    """Maps each block to 0 for its lowest and 1 for its highest value: differences of metrics become comparable."""
    low = np.nanmin(values, axis=1, keepdims=True)
    spread = np.nanmax(values, axis=1, keepdims=True) - low
    return (values - low) / np.where(spread > 0, spread, 1.0)
