"""`gt-bench rank`: one ranking of models over datasets.

A *block* is one dataset of one suite: results of one protocol, with one metric. Metrics and parts of a dataset (BREC's
categories, jets of one flavour) depend on each other, so one of them counts: that which most models have, and of these
the first (or `--metric`). If two suites have the same runs of their common models on a dataset, both are one block.
Blocks of a dataset in several suites are one observation of every test (`gt_bench.stats.ranking`). Models are rows of
recipes (`gcn`), or methods as the papers name them. A ranking never mixes runs with published numbers, unless
`--source all` requests it.

Rows whose epoch was chosen on the test split are left out.

Missing results: a pair of models is compared on the blocks that both have (win rates, Bradley-Terry), and average ranks
are over the blocks that all models have. `--missing worst` counts a missing result as worse than every known one.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gt_bench.analysis.datasets import Filter
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.data.registry import catalog
from gt_bench.leaderboard.collect import OWN, SHIPPED, user_data_digest, versions_of
from gt_bench.leaderboard.rows import summarise
from gt_bench.papers.published import METRIC_NAMES, paper_titles, published_of
from gt_bench.stats import ranking
from gt_bench.store.shipped_files import ROOT, check_folder
from gt_bench.utils.format import print_text
from gt_bench.utils.terminal import print_table, print_wrapped

RUNS, PUBLISHED, ALL = "runs", "published", "all"
PAIRS, WORST = "pairs", "worst"
TOTAL = "-total"  # ending of the name of all parts of a dataset together


class Block(NamedTuple):
    """Results of one protocol: a dataset in a suite, with a metric, in its unit."""

    suite: str
    dataset: str
    metric: str


@dataclass(frozen=True)
class Entry:
    """The mean of a model in a block.

    `source`: own, shipped or published. `parameters`: None if unknown. `data`: digest of the data of the runs. `runs`:
    digests of the runs.
    """

    model: str
    block: Block
    value: float
    direction: str
    source: str
    parameters: int | None = None
    data: str = ""
    runs: frozenset[str] = frozenset()


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


def entries(
    grid: Grid, cells: Sequence[Cell], accepts: Filter, source: str = RUNS, root: Path = ROOT
) -> tuple[list[Entry], list[str]]:
    """Collects the numbers of cells. Nothing is computed.

    Args:
        grid: the grid.
        cells: the cells.
        accepts: which datasets count.
        source: RUNS, OWN, SHIPPED, PUBLISHED or ALL. RUNS: own results where they are complete, otherwise shipped ones.
            ALL: published numbers in addition, for models without a run in a block.
        root: folder of shipped records.

    Returns:
        The numbers, and what could not be read.
    """
    if root != ROOT:
        check_folder(root)
    cells = [cell for cell in cells if accepts.accepts(cell.dataset)]
    found: dict[tuple[str, Block], Entry] = {}
    problems: list[str] = []
    if source != PUBLISHED:
        for cell in cells:
            entry = _of_runs(cell, source, root, problems)
            if entry is not None:
                found[entry.model, entry.block] = entry
    found = _on_same_data(found, problems)
    if source in (PUBLISHED, ALL):
        for entry in _published(grid, cells, accepts):
            found.setdefault((entry.model, entry.block), entry)
    return list(found.values()), problems


def _on_same_data(found: Mapping[tuple[str, Block], Entry], problems: list[str]) -> dict[tuple[str, Block], Entry]:
    """Leaves out numbers on other data than the packed ones, or else than those of most models of the block."""
    counts: dict[Block, Counter[str]] = {}
    for entry in found.values():
        counts.setdefault(entry.block, Counter())[entry.data] += 1
    kept = {}
    for place, entry in found.items():
        of_block = counts[entry.block]
        if len(of_block) > 1:
            packed = user_data_digest(entry.block.dataset)
            if entry.data != (packed if packed in of_block else of_block.most_common(1)[0][0]):
                problems.append(
                    f"{entry.block.suite}/{entry.block.dataset}/{entry.model}: left out: its runs are on other data "
                    "than those of the other models (the files changed, or are read in another way); train it again"
                )
                continue
        kept[place] = entry
    return kept


def _of_runs(cell: Cell, source: str, root: Path, problems: list[str]) -> Entry | None:
    """Returns the number of a cell's own or shipped runs."""
    sources = (source,) if source in (OWN, SHIPPED) else (OWN, SHIPPED)
    versions = {version.source: version for version in versions_of(cell, root, problems, sources)}
    rows = {name: summarise(version.result, version.records) for name, version in versions.items()}
    whole = [name for name in (OWN, SHIPPED) if name in rows and rows[name]["state"].complete]
    for name in [*whole, *rows]:
        row = rows[name]
        if row["chosen_on_test"]:
            return None
        if row["mean"] is not None and math.isfinite(row["mean"]):
            targets = versions[name].result["recipe"].get("targets")
            unit = f" (targets: {targets})" if targets else ""
            if row["state"].partial:
                problems.append(f"{cell.cell}: {row['status']}: ranked by the mean of the runs that ended well")
            block = Block(cell.suite, cell.dataset, f"{row['metric'] or ''}{unit}")
            data = versions[name].records[0]["deterministic"]["digests"]["data"]
            runs = frozenset(row["digests"])
            return Entry(cell.model, block, row["mean"], row["direction"] or "max", name, row["parameters"], data, runs)
    return None


def _published(grid: Grid, cells: Sequence[Cell], accepts: Filter) -> list[Entry]:
    """Returns the published numbers of the suites of `cells`. A method that a recipe refers to is named as its row."""
    papers = paper_titles()  # a suite may have no published numbers
    suites = [suite for suite in dict.fromkeys(cell.suite for cell in cells) if suite in papers]
    rows: dict[tuple[str, str], str] = {}
    for cell in grid.cells.values():
        if cell.suite in suites and (said := load_recipe(cell.recipe_path).published):
            for place in said.references(cell.dataset):
                rows[str(place["paper"]), str(place["method"])] = cell.model
    ours = {theirs: name for name, theirs in METRIC_NAMES.items()}
    found: dict[tuple[str, Block], Entry] = {}
    for suite in suites:
        for one in published_of(suite):
            if one.split != "test" or one.measured or one.mean is None or not accepts.accepts(one.dataset):
                continue
            name = rows.get((suite, one.method)) or one.canonical or one.method
            block = Block(suite, one.dataset, ours.get(one.metric, one.metric))
            found.setdefault((name, block), Entry(name, block, one.mean, one.direction, PUBLISHED))
    return list(found.values())


def rank(
    found: Sequence[Entry],
    rule: str = PAIRS,
    draws: int = 200,
    level: float = 0.05,
    at_least: int = 1,
    metric: str | None = None,
) -> Ranking:
    """Ranks models.

    Args:
        found: numbers; blocks with one model are left out.
        rule: PAIRS or WORST.
        draws: of the bootstrap.
        level: of the tests.
        at_least: number of datasets that a model needs. More than there are datasets count as all of them.
        metric: only this metric.

    Raises:
        RecipeError: no block has two models, or no number is of `metric`.
    """
    kept, left_out = _comparable(one_block_each(_same_runs_once(found), metric), at_least)
    if not kept:
        raise RecipeError(
            "nothing to rank: no dataset has results of two models under these filters; `gt-bench list` shows what was "
            "run, `--source published` ranks the numbers of the papers"
        )
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


def one_block_each(found: Sequence[Entry], metric: str | None = None) -> list[Entry]:
    """Keeps one metric and one part of each dataset in a suite.

    Args:
        found: numbers.
        metric: only this metric, in any unit.

    Returns:
        Of each dataset the numbers of all its parts together (`brec-total`) if there are any, otherwise of the block
        with the most models, and of these of the first.

    Raises:
        RecipeError: no number is of `metric`.
    """
    known = list(dict.fromkeys(entry.block.metric.partition(" (")[0] for entry in found))
    if metric is not None and metric not in known:
        raise RecipeError(f"--metric {metric}: has no result here{nearest(metric, known)}; known: {', '.join(known)}")
    counts = Counter(entry.block for entry in found)
    taken: dict[tuple[str, str], Block] = {}
    for block in counts:
        if metric is not None and block.metric.partition(" (")[0] != metric:
            continue
        key = block.suite, whole_dataset(block.dataset)
        if key not in taken or _preferred(block, counts) > _preferred(taken[key], counts):
            taken[key] = block
    return [entry for entry in found if entry.block in taken.values()]


def _preferred(block: Block, counts: Mapping[Block, int]) -> tuple[bool, int]:
    return block.dataset.endswith(TOTAL), counts[block]


def _same_runs_once(found: Sequence[Entry]) -> list[Entry]:
    """Joins the blocks of one dataset and metric whose common models all have the same runs."""
    joined: dict[Block, dict[str, Entry]] = {}
    for block in dict.fromkeys(entry.block for entry in found):
        mine = {entry.model: entry for entry in found if entry.block == block}
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


def _comparable(found: Sequence[Entry], at_least: int) -> tuple[list[Entry], dict[str, list[str]]]:
    """Returns the numbers of models that can be compared, and {why: the other models}."""
    few: set[str] = set()
    kept = list(found)
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


def _matrix(found: Sequence[Entry], blocks: Sequence[Block], models: Sequence[str]) -> np.ndarray:
    """Returns the numbers, larger is better, NaN where one is missing, [blocks, models]."""
    values = np.full((len(blocks), len(models)), np.nan)
    for entry in found:
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


def chosen(found: Sequence[Entry], models: Sequence[str], most_parameters: int | None) -> tuple[list[Entry], list[str]]:
    """Filters numbers by model and by number of parameters.

    Returns:
        The numbers, and remarks on what was left out.

    Raises:
        RecipeError: a model has no number.
    """
    known = sorted({entry.model for entry in found})
    for model in models:
        if model not in known:
            raise RecipeError(f"--models {model}: has no result here{nearest(model, known)}; known: {', '.join(known)}")
    kept = [entry for entry in found if not models or entry.model in models]
    if most_parameters is None:
        return kept, []
    unknown = sorted({entry.model for entry in kept if entry.parameters is None})
    small = [entry for entry in kept if entry.parameters is not None and entry.parameters <= most_parameters]
    remarks = [f"{len(kept) - len(small)} results left out: more than {most_parameters:,} parameters, or unknown"]
    return small, [*remarks, *([f"unknown number of parameters: {', '.join(unknown)}"] if unknown else [])]


def show(found: Ranking, source: str, remarks: Sequence[str], level: float = 0.05) -> None:
    """Prints a ranking. It fits 80 columns."""
    mixed = any(one.published for one in found.models)
    heads = ["model", "Elo [95 %]", "win rate", "rank", "n", *(["published"] if mixed and source == ALL else [])]
    rows = []
    for one in found.models:
        cells = [one.model, strength(one), "–" if one.win_rate is None else f"{100 * one.win_rate:.0f} %"]
        cells += ["–" if one.rank is None else f"{one.rank:.2f}", str(one.datasets)]
        rows.append(cells + ([str(one.published)] if mixed and source == ALL else []))
    print_text(f"{_count(len(found.models), 'model')} on {_count(found.datasets, 'dataset')}, source: {source}")
    print_table(heads, rows, "model", "Elo [95 %]", "win rate", "rank", "n", right=("rank", "n", "win rate"))
    for line in [*lines(found, level), *remarks]:
        print_wrapped(line)


def strength(one: Ranked) -> str:
    """Returns the strength of a model with its interval, as text."""
    return f"{one.elo:.0f} " + ("[–]" if one.interval is None else f"[{one.interval[0]:.0f}, {one.interval[1]:.0f}]")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def lines(found: Ranking, level: float = 0.05) -> list[str]:
    """Returns what the table does not show: rules, tests, and whether the rule for missing results matters."""
    total = len(found.blocks) * len(found.models)
    rule = (
        "a pair counts where both have a result; ranks: datasets that all models have"
        if found.rule == PAIRS
        else "a missing result counts as worse than every known one"
    )
    said = [f"missing: {found.missing} of {total} results. Rule `{found.rule}`: {rule}."]
    if found.missing:
        said.append(f"`--missing {WORST if found.rule == PAIRS else PAIRS}` {other_order(found)}.")
    if any(one.interval is None for one in found.models):
        said.append(
            f"[–]: no interval: it won or lost every comparison, or there are fewer than {ranking.FEWEST} datasets"
        )
    if not found.ranked_datasets:
        said.append("rank: no dataset has all models; choose --models, or --missing worst")
    elif found.ranked_datasets < ranking.FEWEST:
        said.append(f"ranks over {_count(found.ranked_datasets, 'dataset')}: a test needs {ranking.FEWEST}")
    elif found.critical is not None:
        p = "" if found.p_value is None else f"Friedman p = {found.p_value:.2g}; "
        said.append(
            f"ranks over {found.ranked_datasets} datasets: {p}ranks that differ by less than {found.critical:.2f} do "
            f"not differ significantly (Nemenyi, {level:g})"
        )
    if found.tested:
        pairs = "; ".join(f"{better} > {worse} (p = {p:.2g})" for better, worse, p in found.different[:5])
        more = f"; and {len(found.different) - 5} more" if len(found.different) > 5 else ""
        said.append(
            f"Wilcoxon with Holm: {len(found.different)} of {found.tested} pairs differ"
            f"{': ' if pairs else ''}{pairs}{more}"
        )
    return said + [f"left out, {why}: {', '.join(models)}" for why, models in found.left_out.items()]


def other_order(found: Ranking) -> str:
    """Returns what the other rule for missing results gives: the same order, or another one."""
    if found.agreement is not None and found.agreement > 1 - 1e-12:
        return "gives the same order"
    first = found.other_first if found.other_first != found.models[0].model else "the same model"
    return f"gives another order (Kendall's tau {found.agreement or 0:.2f}), with {first} first"


def as_json(found: Ranking, source: str, remarks: Sequence[str]) -> dict[str, object]:
    """Returns a ranking as documented in docs/json.md."""
    return {
        **vars(found),
        "models": [vars(one) for one in found.models],
        "blocks": [block._asdict() for block in found.blocks],
        "source": source,
        "remarks": list(remarks),
    }
