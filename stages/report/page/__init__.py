"""reports/index.html: everything that was printed and run, on one page that asks nothing of any network."""

from functools import cache
from pathlib import Path
from typing import Any

from stages.report.page.tables import table_content
from stages.report.paper_table import PaperTable

HERE = Path(__file__).parent


@cache
def environment() -> Any:
    """Templates in which every value is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


def table_html(table: PaperTable) -> str:
    """A published table as a piece of HTML."""
    return environment().get_template("table.html.jinja").module.paper_table(table_content(table)).strip() + "\n"
