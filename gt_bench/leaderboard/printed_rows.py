"""Rows of leaderboards on a terminal."""

from collections.abc import Mapping, Sequence
from functools import cache

from gt_bench.config.suite import load_suite
from gt_bench.leaderboard.columns import reason_of, remarks_of, terminal_table
from gt_bench.schemas import Row
from gt_bench.utils import terminal
from gt_bench.utils.format import print_text
from gt_bench.utils.paths import suite_folders

NAME_LENGTH = 20  # characters of a shortened name


def print_rows(title: str, rows: Sequence[Row], notes: bool = True) -> None:
    """Print rows of leaderboards as a table.

    Args:
        title: of the table.
        rows: the rows.
        notes: whether all remarks are printed below the table, each once; otherwise only why rows have no number.
    """
    out = terminal.console()
    names = {"model": [row["model"] for row in rows], "dataset": [row["dataset"] for row in rows]}
    out.print(terminal_table(title, rows, out.width, {name: short_names(texts) for name, texts in names.items()}))
    remarks = dict.fromkeys(remark for row in rows for remark in remarks_of(row))
    reasons = dict.fromkeys(reason for row in rows for reason in reason_of(row))
    for remark in remarks if notes else reasons:
        print_text(f"  {remark}")
    if not notes and len(remarks) > len(reasons):
        print_text(f"{len(remarks) - len(reasons)} notes on these rows: --notes prints them")


def short_names(names: Sequence[str]) -> list[str]:
    """Shorten names of models and suites for a narrow terminal.

    Suites are abbreviated (suite.yaml), and long names lose their middle. Different names stay different.
    """
    short = {name: _short(name) for name in names}
    return [short[name] if list(short.values()).count(short[name]) == 1 else name for name in names]


def _short(name: str) -> str:
    for suite, abbreviation in _abbreviations().items():
        name = name.replace(suite, abbreviation)
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 9]}…{name[-8:]}"


@cache
def _abbreviations() -> Mapping[str, str]:
    """Suite -> its abbreviation, if it has one."""
    return {name: short for name in suite_folders() if (short := load_suite(name).abbreviation)}
