"""Compare and judge: rows, claims of papers, two attempts at a cell, saved weights with their record."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import RECORDS, AsJson, CellName, Paper, Records, Trust, every_cell
from gt_bench.utils.format import print_json, print_text


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="rows (gcn), SUITE/ROW or cells, also tried/DATASET/ROW; add @own, @shipped or @2 for a version or "
            "attempt",
        ),
    ],
    dataset: Annotated[list[str] | None, typer.Option(metavar="DATASET", help="only this dataset; repeatable")] = None,
    bayes: Annotated[
        bool, typer.Option("--bayes", help="also the probability that the first is better, equal, worse")
    ] = False,
    rope: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            min=0,
            help="with --bayes: smaller differences count as equal, in raw units; default: 0.01, one per cent",
        ),
    ] = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Test whether models differ: the others against the first, paired over common seeds and splits. Trains nothing."""
    from gt_bench.config.option_text import OptionError
    from gt_bench.config.schema import RecipeError
    from gt_bench.pipeline.gather import gather
    from gt_bench.reports import show_paired_runs
    from gt_bench.reports.paired_runs import named_cells

    if len(set(names)) != len(names) or len(names) < 2:
        raise RecipeError("expected two or more different names: gt-bench compare A B", value=names)
    if rope is not None and not bayes:
        raise OptionError("is for --bayes", place="--rope", value=rope, remedy="add --bayes")
    rope = 0.01 if rope is None else rope
    grid = every_cell()
    compared = {cell.key for name in names for cell in named_cells(name, grid)}
    cells = {key: cell for key, cell in grid.cells.items() if key in compared or cell.dataset in (dataset or ())}
    held = gather(grid.model_copy(update={"cells": cells}), root=records)
    for problem in held.problems:
        print_text(problem, file=sys.stderr)
    made = show_paired_runs.comparisons(names, grid, held, dataset or [], rope if bayes else None, records)
    if as_json:
        print_json(show_paired_runs.as_json(made))
    else:
        show_paired_runs.show(made)


def claims(
    paper: Paper = None,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="write them to this Markdown file")] = None,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="folder with packed/, for claims that need data")] = Path(
        "data"
    ),
    records: Records = RECORDS,
    recompute: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="compute this finding (suites/SUITE/findings) again; exit 1 if it differs from the stored one",
        ),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(metavar="CASE", help="with --recompute: only this case; repeatable")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show the claims of papers, each with a verdict from published numbers, shipped records, data and experiments."""
    from gt_bench.config.option_text import OptionError

    unused = {
        "SUITE": recompute and paper,
        "--json": recompute and as_json,
        "--write": (recompute or as_json) and write,
    }
    if given := [name for name, value in unused.items() if value]:
        problem = f"no effect with {'--recompute' if recompute else '--json'}"
        raise OptionError(problem, place=given[0], remedy="leave one out")
    if recompute:
        from gt_bench.claims.experiments import registry

        if not registry.recompute(recompute, case or (), data):
            raise typer.Exit(1)
        return
    from gt_bench.claims.checks.registry import trust_suites
    from gt_bench.claims.show import show_claims
    from gt_bench.config.grid import load_grid

    if case:
        raise OptionError("needs the finding: --recompute NAME", place="--case", value=case[0])
    if trust:
        trust_suites()
    show_claims(paper, load_grid(), records, data, write, as_json)


def diff(
    cell: CellName,
    before: Annotated[
        int,
        typer.Argument(
            metavar="N", help="number of an attempt (`gt-bench history CELL`); -1 is the one before the last"
        ),
    ] = -1,
    after: Annotated[int, typer.Argument(metavar="N", help="number of another; 0 is the last")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two attempts at a cell: recipe, code, data, machine and result."""
    from gt_bench.reports import attempt_history

    attempts = attempt_history.attempts_at(every_cell().find(cell))
    if not as_json:
        print_text("\n".join(attempt_history.difference_lines(attempts, before, after)))
        return
    first, second = attempt_history.pair_of(attempts, before, after)
    sides = {"before": attempt_history.as_json(first), "after": attempt_history.as_json(second)}
    print_json(sides | {"changes": attempt_history.changes(first, second)})


def score(
    cell: Annotated[
        str, typer.Argument(metavar="CELL", help="suite/dataset/row; with @own or @shipped that version of its records")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="compute this metric from stored predictions; may be repeated"),
    ] = None,
    by: Annotated[
        Literal["class", "graph-size"] | None, typer.Option(help="one line per class, or per range of graph sizes")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="CELL", help="compare with this cell on the same examples: McNemar, paired bootstrap"),
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="also of the mean prediction of all seeds")] = False,
    part: Annotated[Literal["test", "val"], typer.Option(help="which examples")] = "test",
    resamples: Annotated[
        int | None,
        typer.Option(metavar="N", min=100, help="with --against: draws of the bootstrap; default: 1000"),
    ] = None,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Compute metrics of a cell again, without training.

    With an option: from its stored predictions, per seed and their mean. Without one: from the saved weights of its
    best seed. Exit 1 if the numbers are not those of the record.
    """
    from gt_bench.config.option_text import OptionError

    grid = every_cell()
    if resamples is not None and against is None:
        raise OptionError("is for --against", place="--resamples", value=resamples, remedy="add --against CELL")
    if against is not None:
        from gt_bench.analysis import paired_examples

        if by or ensemble:
            problem = f"cannot be combined with --{'by' if by else 'ensemble'}"
            raise OptionError(problem, place="--against", value=against, remedy="remove one")
        paired_examples.show((cell, against), grid, metric or [], part, resamples or 1000, as_json, records)
        return
    if metric or by or ensemble or as_json or part != "test" or "@" in cell:
        from gt_bench.analysis.score import show

        if not show(cell, grid, metric or [], by, part, ensemble, as_json, records):
            raise typer.Exit(1)
        return
    from gt_bench.analysis.score import check_own_runs

    check_own_runs(grid.find(cell), records)
    from gt_bench.experiment.pretrained import score_cell  # loads torch

    if not score_cell(grid.find(cell), grid):
        raise typer.Exit(1)
