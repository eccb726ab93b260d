"""Rows of leaderboards on a terminal."""

from collections.abc import Sequence

from gt_bench.leaderboard.columns import SHOWN, cells, shown_columns
from gt_bench.leaderboard.row import NoteKind, Row
from gt_bench.leaderboard.words import reason_of, remarks_of
from gt_bench.utils.format import print_text
from gt_bench.utils.terminal import print_table

# `cell` and `from` are shown instead of dataset and model; the files have all columns
NAMES = ("cell", "metric", "from", "status")
ALWAYS = ("mean ± std", "runs", "verdict", "published", "difference [95 %]")
PRIORITY = ("expected", "chance", "claim", "seeds needed")
WRAPPED = ("expected", "verdict", "metric", "status", "claim", "margin (power)", "device")
RIGHT = ("mean ± std", "runs", "published", "parameters", "s/epoch", "peak MiB")


def print_rows(title: str, rows: Sequence[Row], notes: bool = True) -> None:
    """Print rows of leaderboards as a table.

    Args:
        title: of the table.
        rows: the rows.
        notes: whether all remarks are printed below the table, each once; otherwise only why rows have no number.
    """
    columns = [SHOWN[i] for i in shown_columns(rows)]
    names = ["cell", "from", *(name for name in columns if name not in ("dataset", "model", "as expected?", "verdict"))]
    names.insert(names.index("runs") + 1, "verdict")  # of a published number, or of what theory expects
    texts = []
    for row in rows:
        text = dict(zip(SHOWN, cells(row), strict=True)) | {"cell": row.cell, "from": row.source or "–"}
        text["verdict"] = (row.outlook and row.outlook.agreement) or text["verdict"]
        texts.append([text[name] for name in names])
    print_table(
        names,
        texts,
        *PRIORITY,
        wrapped=WRAPPED,
        right=RIGHT,
        title=title,
        files=" (--json)",
        always=ALWAYS,
        above=NAMES,
    )
    if any(row.chosen_on_test for row in rows):
        print_text("mean !: the epoch was chosen on the test split")
    if any(row.published and row.published.flags for row in rows):
        print_text("published !: a remark on this number is among the notes")
    averaged = {row.cell: note.values[1] for row in rows for note in row.notes if note.kind == NoteKind.AVERAGED}
    for size in sorted(set(averaged.values())) if not notes else ():
        of_size = ", ".join(cell for cell, each in averaged.items() if each == size)
        print_text(f"runs: each is an average of {size} runs, as in the published number: {of_size}")
    remarks = dict.fromkeys(remark for row in rows for remark in remarks_of(row))
    reasons = dict.fromkeys(reason for row in rows for reason in reason_of(row))
    for remark in remarks if notes else reasons:
        print_text(f"  {remark}")
    if not notes and len(remarks) > len(reasons):
        print_text(f"{len(remarks) - len(reasons)} notes on these rows: --notes prints them")
