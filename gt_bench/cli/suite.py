"""`gt-bench suite`: papers and other sets of cells, each a folder of data."""

from collections.abc import Callable
from typing import Annotated

import typer

from gt_bench.cli.options import Trust
from gt_bench.utils.format import print_text

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="name of a suite, such as hot")]


def suite_list() -> None:
    """List the suites with their folder and content."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.suite import load_suite
    from gt_bench.papers.published import published_of
    from gt_bench.papers.results_file import papers
    from gt_bench.utils.paths import suite_folders

    grid, published = load_grid(), papers()
    for name, folder in suite_folders().items():
        cells = len(grid.suite(name)) if name in grid.suites else 0
        numbers = f", {len(published_of(name))} published numbers" if name in published else ""
        print_text(f"{name}: {load_suite(name).title}\n    {folder}: {cells} cells{numbers}")


def suite_new(
    name: SuiteName,
    title: Annotated[str | None, typer.Option(metavar="TITLE", help="title of the paper or suite")] = None,
    authors: Annotated[
        str | None, typer.Option(metavar="AUTHORS", help="authors of a paper; also writes results.yaml and claims.yaml")
    ] = None,
) -> None:
    """Write the files of a new suite to suites/SUITE/, valid, with comments that explain what to add."""
    from gt_bench.suites.new import new_suite

    for path in new_suite(name, title, authors):
        print_text(path)
    print_text(f"next: docs/add_a_paper.md; `gt-bench suite check {name}` shows problems")


def suite_check(name: SuiteName, trust: Trust = False) -> None:
    """Check the files of a suite: recipes, published numbers, flags and claims. Exit 1 on problems."""
    from gt_bench.claims.checks.registry import SUITE_CHECKS, is_withheld, trust_suites
    from gt_bench.config.grid import load_grid
    from gt_bench.suites.check import suite_problems
    from gt_bench.utils.paths import suite_folders

    if trust:
        trust_suites()
    grid = load_grid()
    problems = suite_problems(name, grid)
    for problem in problems:
        print_text(problem)
    if is_withheld(folder := suite_folders()[name]):
        print_text(f"{folder / SUITE_CHECKS}: not run, because it is code; read it and use --trust")
    cells = sum(cell.suite == name for cell in grid.cells.values())
    print_text(f"{name}: {cells} cells, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


SUITE: dict[str, Callable[..., None]] = {
    "list": suite_list,
    "new": suite_new,
    "check": suite_check,
}
