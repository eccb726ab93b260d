"""`gt-bench board SUITE --table TABLE`: a published table in one of several formats, or the list of tables."""

from collections.abc import Sequence

from gt_bench.leaderboard.row import Row
from gt_bench.papers.table_layout import find, layouts
from gt_bench.reports.html.build import table_html
from gt_bench.reports.paper_table import caption, entries, legend, paper_table, to_csv, to_markdown, to_terminal, to_tex
from gt_bench.utils import terminal
from gt_bench.utils.format import print_json, print_text, terminal_text


def show(paper: str, name: str, rows: Sequence[Row], form: str) -> None:
    """Print a table.

    Args:
        paper: name of the suite.
        name: name, title or number of the table.
        rows: rows of leaderboards.
        form: "terminal", "md", "tex", "html", "csv" or "json".

    Raises:
        RecipeError: there is no such paper or table.
    """
    table = paper_table(find(paper, name), rows)
    if form == "terminal":
        out = terminal.console()
        for block in to_terminal(table, out.width):
            out.print(block)
        for line in legend(table):
            out.print(terminal_text(line), markup=False, highlight=False)
    elif form == "json":
        content = {"paper": table.layout.paper, "table": table.layout.table, "caption": caption(table.layout)}
        print_json(content | {"entries": list(entries(table))})
    elif form == "html":
        print_text(table_html(table), end="")
    else:
        print_text({"md": to_markdown, "tex": to_tex, "csv": to_csv}[form](table), end="")


def show_list(rows: Sequence[Row], as_json: bool = False) -> None:
    """Print the tables of all papers, with their numbers and how many of them have a run."""
    content, lines = [], []
    for layout in layouts():
        numbers, run = len(layout.printed), paper_table(layout, rows).run
        content.append(
            {"paper": layout.paper, "table": layout.table, "title": layout.title, "numbers": numbers, "run": run}
        )
        datasets = list(dict.fromkeys(column.dataset for column in layout.columns))
        over = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if datasets[3:] else "")
        lines.append((layout.paper, layout.title, over, str(numbers), str(run)))
    if as_json:
        print_json(content)
        return
    names = ("paper", "table", "over", "numbers", "run")
    terminal.print_table(names, lines, wrapped=("over",), right=("numbers", "run"), always=names[3:], above=names[:2])
    print_text("gt-bench board SUITE shows all rows of a suite, --table TABLE one of its tables")
