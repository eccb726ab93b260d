"""Means of models on datasets, from own and shipped runs and from published numbers.

Models are rows of recipes (`gcn`), or methods as the papers name them. Rows whose epoch was chosen on the test split
are left out. Runs and published numbers are mixed only if `--source all` requests it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gt_bench.analysis.datasets import Filter
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import nearest
from gt_bench.leaderboard.collect import OWN, SHIPPED, summarise, user_data_digest, versions_of
from gt_bench.leaderboard.words import status_of
from gt_bench.papers.published import METRIC_NAMES, published_of
from gt_bench.papers.results_file import paper_titles
from gt_bench.store.shipped_files import ROOT, check_folder

RUNS, PUBLISHED, ALL = "runs", "published", "all"


class Block(NamedTuple):
    """Results of one protocol: a dataset in a suite, with a metric, in its unit."""

    suite: str
    dataset: str
    metric: str


@dataclass(frozen=True)
class DatasetNumber:
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


def entries(
    grid: Grid, cells: Sequence[Cell], accepts: Filter, source: str = RUNS, root: Path = ROOT
) -> tuple[list[DatasetNumber], list[str]]:
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
    by_place: dict[tuple[str, Block], DatasetNumber] = {}
    problems: list[str] = []
    if source != PUBLISHED:
        for cell in cells:
            entry = _of_runs(cell, source, root, problems)
            if entry is not None:
                by_place[entry.model, entry.block] = entry
    by_place = _on_same_data(by_place, problems)
    if source in (PUBLISHED, ALL):
        for entry in _published(grid, cells, accepts):
            by_place.setdefault((entry.model, entry.block), entry)
    return list(by_place.values()), problems


def _on_same_data(
    by_place: Mapping[tuple[str, Block], DatasetNumber], problems: list[str]
) -> dict[tuple[str, Block], DatasetNumber]:
    """Leaves out numbers on other data than the packed ones, or else than those of most models of the block."""
    counts: dict[Block, Counter[str]] = {}
    for entry in by_place.values():
        counts.setdefault(entry.block, Counter())[entry.data] += 1
    kept = {}
    for place, entry in by_place.items():
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


def _of_runs(cell: Cell, source: str, root: Path, problems: list[str]) -> DatasetNumber | None:
    """Returns the number of a cell's own or shipped runs."""
    sources = (source,) if source in (OWN, SHIPPED) else (OWN, SHIPPED)
    versions = {version.source: version for version in versions_of(cell, root, problems, sources)}
    rows = {name: summarise(version.result, version.records) for name, version in versions.items()}
    whole = [name for name in (OWN, SHIPPED) if name in rows and rows[name].state.complete]
    for name in [*whole, *rows]:
        row = rows[name]
        if row.chosen_on_test:
            return None
        if row.summary.mean is not None and math.isfinite(row.summary.mean):
            targets = versions[name].result.recipe.get("targets")
            unit = f" (targets: {targets})" if targets else ""
            if row.state.partial:
                problems.append(f"{cell.cell}: {status_of(row.state)}: ranked by the mean of the runs that ended well")
            block = Block(cell.suite, cell.dataset, f"{row.metric or ''}{unit}")
            data = versions[name].records[0].run.digests.data
            mean, runs = row.summary.mean, frozenset(row.summary.digests)
            return DatasetNumber(cell.model, block, mean, row.direction or "max", name, row.cost.parameters, data, runs)
    return None


def _published(grid: Grid, cells: Sequence[Cell], accepts: Filter) -> list[DatasetNumber]:
    """Returns the published numbers of the suites of `cells`. A method that a recipe refers to is named as its row."""
    papers = paper_titles()  # a suite may have no published numbers
    suites = [suite for suite in dict.fromkeys(cell.suite for cell in cells) if suite in papers]
    rows: dict[tuple[str, str], str] = {}
    for cell in grid.cells.values():
        if cell.suite in suites and (said := load_recipe(cell.recipe_path).published):
            for place in said.references(cell.dataset):
                rows[str(place["paper"]), str(place["method"])] = cell.model
    ours = {theirs: name for name, theirs in METRIC_NAMES.items()}
    by_place: dict[tuple[str, Block], DatasetNumber] = {}
    for suite in suites:
        for number in published_of(suite):
            if number.split != "test" or number.measured or number.mean is None or not accepts.accepts(number.dataset):
                continue
            name = rows.get((suite, number.method)) or number.canonical or number.method
            block = Block(suite, number.dataset, ours.get(number.metric, number.metric))
            by_place.setdefault((name, block), DatasetNumber(name, block, number.mean, number.direction, PUBLISHED))
    return list(by_place.values())


def chosen(
    entries: Sequence[DatasetNumber], models: Sequence[str], most_parameters: int | None
) -> tuple[list[DatasetNumber], list[str]]:
    """Filters numbers by model and by number of parameters.

    Returns:
        The numbers, and remarks on what was left out.

    Raises:
        OptionError: a model has no number.
    """
    known = sorted({entry.model for entry in entries})
    for model in models:
        if model not in known:
            problem = f"has no result here{nearest(model, known)}; known: {', '.join(known)}"
            raise OptionError(problem, place="--models", value=model)
    kept = [entry for entry in entries if not models or entry.model in models]
    if most_parameters is None:
        return kept, []
    unknown = sorted({entry.model for entry in kept if entry.parameters is None})
    small = [entry for entry in kept if entry.parameters is not None and entry.parameters <= most_parameters]
    remarks = [f"{len(kept) - len(small)} results left out: more than {most_parameters:,} parameters, or unknown"]
    return small, [*remarks, *([f"unknown number of parameters: {', '.join(unknown)}"] if unknown else [])]
