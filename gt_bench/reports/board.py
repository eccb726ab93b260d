"""`gt-bench board`: the results of suites, datasets and cells, own and shipped, next to published numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.leaderboard.collect import Gathered
from gt_bench.leaderboard.coverage import published_numbers
from gt_bench.leaderboard.export import tally, write_reports
from gt_bench.leaderboard.printed_rows import print_rows
from gt_bench.leaderboard.references import references_of
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.rows import absent
from gt_bench.papers.published import Published, everything
from gt_bench.papers.units import arrow
from gt_bench.records.state import CellStatus
from gt_bench.utils.format import print_text
from gt_bench.utils.terminal import print_table


@dataclass(frozen=True)
class Board:
    """Results of one suite, dataset or cell.

    Attributes:
        name: of the suite, dataset or cell.
        cells: its cells in the grid.
        rows: the version of each cell that counts, own or shipped; a row without a number for the other cells.
        others: the other versions.
        published: published numbers on a dataset that no cell has run; empty for suites and cells.
        problems: what could not be read.
    """

    name: str
    cells: list[Cell]
    rows: list[Row]
    others: list[Row] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def readable(self) -> bool:
        """Whether all results of its cells were read."""
        return not any(row.state.damaged or (row.state.absent and self.problems) for row in self.rows)

    @property
    def shown(self) -> list[Row]:
        """The rows with a result; both versions of a cell are next to each other."""
        order = {cell.cell: i for i, cell in enumerate(self.cells)}
        rows = [row for row in (*self.rows, *self.others) if not row.state.absent]
        return sorted(rows, key=lambda row: order[row.cell])


def board(name: str, grid: Grid, gather: Callable[[Grid], Gathered]) -> Board:
    """Return the results of a suite, a dataset or a cell. Nothing is computed.

    Args:
        name: SUITE, DATASET, SUITE/DATASET or SUITE/DATASET/ROW.
        grid: the grid.
        gather: returns the results of the cells of a grid, `gt_bench.pipeline.gather.gather`.

    Raises:
        RecipeError: there is no such suite, dataset or cell.
    """
    if name.startswith("suites/"):
        problem = f"{name}: expected a name, not a path: gt-bench board {name.split('/')[1]}"
        raise RecipeError(problem, value=name)
    published: list[Published] = []
    if name in grid.suites or "/" in name or name in grid.cells:
        cells = grid.chosen([name])
    else:
        published = [number for number in everything() if number.dataset == name]
        papers = {number.paper for number in published}
        # a published dataset may be a part of a test set: jets of one flavour
        cells = [
            cell
            for cell in grid.cells.values()
            if cell.dataset == name
            or (cell.suite in papers and any(number.dataset == name for number in published_numbers(cell)))
        ]
        if not cells and not published:
            known = [*grid.suites, *grid.datasets]
            problem = f"no suite, dataset or cell {name!r:.200}{nearest(name, known)}"
            remedy = "`gt-bench list` shows those of the grid, and `gt-bench try` runs other datasets"
            raise RecipeError(problem, value=name, remedy=remedy)
    # claims compare with all rows of a suite
    suites = {cell.suite for cell in cells}
    whole = {key: cell for key, cell in grid.cells.items() if cell.suite in suites}
    gathered = gather(grid.model_copy(update={"cells": whole}))
    wanted = {cell.cell for cell in cells}
    rows, others = (
        [
            row
            for row in part
            if row.cell in wanted
            and (not published or name == row.dataset or (row.published and name == row.published.dataset))
        ]
        for part in (gathered.rows, gathered.others)
    )
    stored = {row.cell for row in rows}
    missing = [cell.cell for cell in cells if cell.cell not in stored]
    rows += [absent(cell, CellStatus.NOT_RUN, None, references_of(cell)) for cell in missing]
    run = {row.published.place for row in rows if row.published and row.summary.mean is not None}
    return Board(name, cells, rows, others, [n for n in published if n.place not in run], gathered.problems)


def show(board: Board, grid: Grid, notes: bool = False) -> None:
    """Print the results, and published numbers without a run.

    Args:
        board: the results.
        grid: the grid, whose rules of verdicts are used.
        notes: also print the notes on rows, how many verdicts are expected by chance, and the cells without a result.
    """
    if shown := board.shown:
        print_rows(board.name, shown, notes)
        if verdicts := tally(board.rows, grid.run.verdict) if notes else _verdicts(board.rows):
            print_text(verdicts)
    if shown and [cell.cell for cell in board.cells] == [board.name]:
        print_text(f"reproduce: gt-bench work {board.name}")
    if board.published:
        print()
        _show_published(board.published)
    without = [row.cell for row in board.rows if row.state.absent]
    if len(without) == len(board.cells) > 0:
        is_name = "/" in board.name or board.name in grid.suites
        names = board.name if is_name else " ".join(cell.cell for cell in board.cells)
        print_text(f"{board.name}: no results yet; compute them: gt-bench work {names}")
    elif without:
        print_text(
            f"{len(without)} of {len(board.cells)} cells have no result{':' if notes else ': --notes names them'}"
        )
        for cell in without if notes else ():
            print_text(f"  {cell}")
    for problem in board.problems:
        print_text(problem)


def write(board: Board, folder: Path, grid: Grid) -> list[Path]:
    """Write the rows as SUITE.json, .csv and .md; return the files.

    Raises:
        RecipeError: the results are not those of a suite.
    """
    if board.name not in grid.suites:
        raise RecipeError(f"expected a suite, not {board.name}", place="--write", value=board.name)
    return write_reports(board.name, board.rows, folder, grid.run.verdict)


def _verdicts(rows: Iterable[Row]) -> str:
    """Return the number of complete verdicts of each kind; empty if there are none."""
    words: Counter[str] = Counter()
    for row in rows:
        if row.outlook and row.outlook.agreement:
            words[row.outlook.agreement] += 1
        elif row.verdict and row.counts:
            words[row.verdict.word] += 1
    return f"verdicts: {', '.join(f'{n} {word}' for word, n in words.most_common())}" if words else ""


def _show_published(numbers: Sequence[Published]) -> None:
    names = ("paper: method", "metric", "published", "table")
    lines = [
        (
            f"{number.paper}: {number.method}",
            f"{number.metric} {arrow(number.direction)}{' %' if number.unit == 'percent' else ''}",
            number.printed,
            f"{number.table}{'' if number.split == 'test' else f', {number.split} split'}",
        )
        for number in numbers
    ]
    print_table(names, lines, right=("published",), title="Published numbers without a run", always=names)
