"""What `gt-bench table` prints: a published table in one of its forms, or the list of them."""

from collections.abc import Sequence

from gt_bench.leaderboard import terminal
from gt_bench.papers.table_layout import find, layouts, of_paper
from gt_bench.reports.html.build import table_html
from gt_bench.reports.paper_table import legend, paper_table, to_csv, to_markdown, to_terminal, to_tex
from gt_bench.schemas import Row
from gt_bench.utils.format import print_text, terminal_text


def show(paper: str, name: str, rows: Sequence[Row], form: str) -> None:
    """Prints the table in a form of its own. Raises RecipeError for a paper or a table that is not printed."""
    table = paper_table(find(paper, name), rows)
    if form == "terminal":
        out = terminal.console()
        for block in to_terminal(table, out.width):
            out.print(block)
        for line in legend(table):
            out.print(terminal_text(line), markup=False, highlight=False)
    elif form == "html":
        print_text(table_html(table), end="")
    else:
        print_text({"md": to_markdown, "tex": to_tex, "csv": to_csv}[form](table), end="")


def show_list(paper: str | None, rows: Sequence[Row]) -> None:
    """Prints which tables there are, and how many of their numbers have a run."""
    lines = []
    for layout in of_paper(paper) if paper else layouts():
        datasets = list(dict.fromkeys(column.dataset for column in layout.columns))
        over = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if datasets[3:] else "")
        lines.append((layout.paper, layout.title, over, str(len(layout.printed)), str(paper_table(layout, rows).run)))
    terminal.print_table(
        ("paper", "table", "over", "numbers", "run"), lines, wrapped=("over",), right=("numbers", "run")
    )
    print("gt-bench table PAPER TABLE shows one of them")
