"""Several models on several datasets: `gt-bench try gcn,gat texas,cornell`."""

import sys
from collections.abc import Callable, Sequence

from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.row import Row
from gt_bench.reports.dataset_comparison import Comparison
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
from gt_bench.utils.terminal import print_table

COLUMNS = ("metric", "mean ± std", "runs", "status", "parameters", "s/epoch")


def try_each(
    models: Sequence[str], datasets: Sequence[str], compare: Callable[[str, str], Comparison]
) -> tuple[list[Comparison], list[str]]:
    """Run every pair of a model and a dataset. A pair that cannot be run is reported; the others continue.

    Args:
        models: names of models, as for `gt_bench.api.evaluate.try_pair`.
        datasets: names of datasets.
        compare: runs a model on a dataset.

    Returns:
        The comparisons, and a line for each pair that failed.
    """
    compared, failed = [], []
    for dataset in datasets:
        for model in models:
            try:
                compared.append(compare(model, dataset))
            except UserError as error:
                failed.append(f"{model} on {dataset}: {error}")
                print_text(f"error: {failed[-1]}", file=sys.stderr)
    return compared, failed


def show(compared: Sequence[Comparison], failed: Sequence[str], pairs: int) -> None:
    """Print one row per pair, dataset by dataset and the best first, and the pairs that failed."""
    rows: list[Row] = []
    best = []
    for dataset in dict.fromkeys(pair.dataset for pair in compared):
        its = [pair.here.row for pair in compared if pair.dataset == dataset]
        sign = -1 if its[0].direction == "max" else 1
        its.sort(key=lambda row: (row.summary.mean is None, sign * (row.summary.mean or 0.0)))
        best.append(len(rows))
        rows += its
    texts = [dict(zip(SHOWN, cells(row), strict=True)) for row in rows]
    lines = [[row.cell, *(text[name] for name in COLUMNS)] for row, text in zip(rows, texts, strict=True)]
    right = ("mean ± std", "runs", "parameters", "s/epoch")
    title = f"{len(compared)} of {pairs} pairs of a model and a dataset"
    print_table(("cell", *COLUMNS), lines, title=title, right=right, bold=best, always=COLUMNS[:4])
    for line in failed:
        print_text(f"failed: {line}")
