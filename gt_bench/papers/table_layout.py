"""The papers' tables as they are laid out: which methods over which columns, in the order of results.yaml."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from gt_bench.config.schema import RecipeError, nearest
from gt_bench.papers.published import Published, everything
from gt_bench.papers.results_file import files_state


class Column(NamedTuple):
    """A column of a published table."""

    dataset: str
    metric: str
    split: str


@dataclass(frozen=True)
class Layout:
    """A published table.

    Attributes:
        paper: the paper.
        table: name of the table in results.yaml.
        methods: rows, in the order of results.yaml.
        columns: columns, in the order of results.yaml.
        printed: {(method, column): number}. A method may have no number in a column.
    """

    paper: str
    table: str
    methods: tuple[str, ...]
    columns: tuple[Column, ...]
    printed: Mapping[tuple[str, Column], Published]

    @property
    def title(self) -> str:
        """Title of the table, such as `Table 3`."""
        return self.table.removeprefix("table:").replace("_", " ")

    @property
    def name(self) -> str:
        """Name of the table in file names and URLs."""
        return f"{self.paper}-{self.title}".replace(" ", "-").lower()

    def only(self, methods: Collection[str], columns: Collection[Column]) -> "Layout":
        """Returns the table with only these methods and columns."""
        printed = {(m, c): number for (m, c), number in self.printed.items() if m in methods and c in columns}
        kept = tuple(m for m in self.methods if m in methods), tuple(c for c in self.columns if c in columns)
        return replace(self, methods=kept[0], columns=kept[1], printed=printed)

    def varies(self, key: str) -> bool:
        """Returns whether columns differ in this key (metric, split). A common value is shown once."""
        return len({getattr(column, key) for column in self.columns}) > 1


def layouts() -> tuple[Layout, ...]:
    """Returns all tables, paper by paper.

    Raises:
        PublishedError: a file is invalid.
    """
    return _layouts(files_state())


@lru_cache(maxsize=1)
def _layouts(_state: tuple[object, ...]) -> tuple[Layout, ...]:
    found: dict[tuple[str, str], list[Published]] = {}
    for entry in everything():
        found.setdefault((entry.paper, entry.table), []).append(entry)
    return tuple(
        Layout(
            paper,
            table,
            tuple(dict.fromkeys(e.method for e in entries)),
            tuple(dict.fromkeys(Column(e.dataset, e.metric, e.split) for e in entries)),
            {(e.method, Column(e.dataset, e.metric, e.split)): e for e in entries},
        )
        for (paper, table), entries in found.items()
    )


def of_paper(paper: str) -> list[Layout]:
    """Returns the tables of a paper.

    Raises:
        RecipeError: there is no such paper.
    """
    if not (found := [layout for layout in layouts() if layout.paper == paper]):
        known = list(dict.fromkeys(layout.paper for layout in layouts()))
        raise RecipeError(f"no paper {paper!r}{nearest(paper, known)}; known: {', '.join(known)}", value=paper)
    return found


def find(paper: str, table: str) -> Layout:
    """Returns the table with this name, title or number.

    Raises:
        RecipeError: there is no such table.
    """
    tables = of_paper(paper)
    for layout in tables:
        if table.lower() in (
            layout.table.lower(),
            layout.title.lower(),
            layout.title.lower().removeprefix("table "),
            layout.name,
        ):
            return layout
    known = [layout.title for layout in tables]
    raise RecipeError(f"{paper} has no table {table!r}{nearest(table, known)}; known: {', '.join(known)}", value=table)
