"""Compare and judge: rows with each other, what the papers say in words, two attempts at a cell, kept weights with their record."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import RECORDS, AsJson, CellName, Paper, Records, every_cell
from gt_bench.utils.format import print_text


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="rows (gcn), SUITE/ROW or cells, tried/DATASET/ROW too; @own, @shipped or @2 behind: that version or attempt",
        ),
    ],
    dataset: Annotated[list[str] | None, typer.Option(help="only this dataset; may be given several times")] = None,
    bayes: Annotated[
        bool, typer.Option("--bayes", help="probabilities that the first is better, equal, worse")
    ] = False,
    rope: Annotated[
        float,
        typer.Option(min=0, help="with --bayes: smaller differences count as equal, in raw units (0.01: one per cent)"),
    ] = 0.01,
    records: Records = RECORDS,
) -> None:
    """Is a difference real? The others against the first, paired over common seeds and splits, and mean ranks over datasets; nothing is computed."""
    from gt_bench.config.schema import RecipeError
    from gt_bench.leaderboard.collect import gather
    from gt_bench.reports.compare import show

    if len(set(names)) != len(names) or len(names) < 2:
        raise RecipeError("name two or more, and each once: gt-bench compare A B")
    grid = every_cell()
    held = gather(grid, root=records)
    for problem in held.problems:
        print_text(problem, file=sys.stderr)
    show(names, grid, held, dataset or [], rope if bayes else None)


def claims(
    paper: Paper = None,
    write: Annotated[Path | None, typer.Option(help="write all of them into this file, as Markdown")] = None,
    data: Annotated[Path, typer.Option(help="folder with packed/, for the claims that take data")] = Path("data"),
    records: Records = RECORDS,
    recompute: Annotated[
        str | None,
        typer.Option(help="compute this finding (suites/PAPER/findings) anew; exits 1 where it is not the kept one"),
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option(help="with --recompute: this case alone; may be given several times")
    ] = None,
) -> None:
    """What the papers say in words, each sentence with a verdict: computed from printed numbers, shipped records, data, and what was computed for them."""
    if recompute:
        from gt_bench.claims.experiments import registry

        if not registry.recompute(recompute, case or (), data):
            raise typer.Exit(1)
        return
    from gt_bench.claims.show import show_claims
    from gt_bench.config.grid import load_grid
    from gt_bench.config.schema import RecipeError

    if case:
        raise RecipeError(f"--case {case[0]}: say of which finding: --recompute NAME")
    show_claims(paper, load_grid(), records, data, write)


def diff(
    cell: CellName,
    before: Annotated[
        int, typer.Argument(help="number of an attempt (`gt-bench history CELL`); -1 is the last but one")
    ] = -1,
    after: Annotated[int, typer.Argument(help="number of another; 0 is the last")] = 0,
) -> None:
    """What changed between two attempts at a cell: in recipe, code, data and machine, and in the number."""
    from gt_bench.reports.attempt_history import attempts_at, difference_lines

    print_text("\n".join(difference_lines(attempts_at(every_cell().find(cell)), before, after)))


class Group(StrEnum):
    """What `gt-bench score --by` groups examples by."""

    class_ = "class"
    graph_size = "graph-size"


class Part(StrEnum):
    """A part of a split with stored predictions."""

    test = "test"
    val = "val"


def score(
    cell: Annotated[
        str, typer.Argument(metavar="CELL", help="suite/dataset/row; with @own or @shipped that version of its records")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="compute this metric from stored predictions; may be repeated")
    ] = None,
    by: Annotated[Group | None, typer.Option(help="one line per class, or per range of graph sizes")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="CELL", help="compare with this cell on the same examples: McNemar, paired bootstrap"),
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="also of the mean prediction of all seeds")] = False,
    part: Annotated[Part, typer.Option(help="which examples")] = Part.test,
    resamples: Annotated[int, typer.Option(min=100, help="with --against: draws of the bootstrap")] = 1000,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Computes metrics of a cell again: with an option from its stored predictions, per seed and their mean; without one from the saved weights
    of its best seed. Exits 1 if the numbers are not those of the record."""
    grid = every_cell()
    if against is not None:
        from gt_bench.analysis import paired_examples
        from gt_bench.config.schema import RecipeError

        if by or ensemble:
            raise RecipeError(
                f"--against {against}: cannot be combined with --{'by' if by else 'ensemble'}; remove one"
            )
        paired_examples.show((cell, against), grid, metric or [], part.value, resamples, as_json, records)
        return
    if metric or by or ensemble or as_json or part is not Part.test or "@" in cell:
        from gt_bench.analysis.score import show

        if not show(cell, grid, metric or [], by and by.value, part.value, ensemble, as_json, records):
            raise typer.Exit(1)
        return
    from gt_bench.experiment.pretrained import score_cell

    if not score_cell(grid.find(cell), grid):
        raise typer.Exit(1)
