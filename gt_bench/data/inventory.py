"""`python -m stages.download DATASET`: raw files -> data/packed/DATASET. A dataset that cannot be had becomes a note, not a failure.

--list, --plan and --verify tell what exists, what would be fetched, and whether what is on disk is whole.
"""

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gt_bench.config.grid import Cell, load_grid
from gt_bench.config.schema import nearest
from gt_bench.data.checksums import read_pins, with_pin
from gt_bench.data.download import is_url, mirrors_in_order
from gt_bench.data.packed import PackedHeader
from gt_bench.data.prepare import Prepared, available, prepare, valid, verify
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.standin import shapes
from gt_bench.runtime.exit_status import ends_in_order
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import without_credentials

__all__ = ["app", "available", "prepare"]

app = typer.Typer(add_completion=False)
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 240)
SHOWN = (
    "graphs",
    "nodes",
    "edges",
    "edges_undirected",
    "self_loops",
    "symmetric",
    "min_nodes",
    "max_nodes",
    "features",
    "classes",
    "targets",
    *("label_counts", "missing_targets", "pairs", "hyperedges", "splits", "train", "val", "test"),
)


@app.command()
@ends_in_order
def main(
    datasets: Annotated[list[str] | None, typer.Argument(help="names of datasets; with --plan also of a suite")] = None,
    data_root: Annotated[Path, typer.Option(help="where raw/ and packed/ live")] = Path("data"),
    mirror: Annotated[
        list[str] | None,
        typer.Option(help="folder laid out like data/raw, or the beginning of a URL; several are tried in order"),
    ] = None,
    strict: Annotated[bool, typer.Option(help="exit 1 when a dataset cannot be had")] = False,
    check: Annotated[
        bool, typer.Option("--verify", help="read everything on disk again; exit 1 if anything is wrong")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="all datasets that exist")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="what would be fetched, from where, how much, and what will be on disk after")
    ] = False,
) -> None:
    """Prepare datasets, or tell about them."""
    mirrors = mirror or _mirrors_of_params()
    if check:
        raise typer.Exit(_verify(data_root))
    if show:
        show_rows(*listing(data_root))
        return
    if not datasets:
        raise DatasetError("name a dataset, or use --list, --plan or --verify")
    if plan:
        show_rows(*planning(_expand(datasets), data_root, mirrors))
        return
    failed = False
    for name in datasets:
        result = prepare(name, data_root, mirrors, console.print)
        report(result)
        failed |= result.state == "unavailable"
    if failed and strict:
        raise typer.Exit(1)


def report(result: Prepared) -> None:
    """Prints what came of a preparation."""
    name = result.folder.name
    header = result.header
    if header is None:
        console.print(
            f"{name}: [yellow]not at hand[/yellow]; its cells will say `not run: data`\n{_plain(result.reason)}"
        )
        return
    size = sum(path.stat().st_size for path in result.folder.iterdir())
    how = (
        "kept: it is already packed from the same files by the same code"
        if result.state == "kept"
        else f"packed in {result.seconds:.1f} s"
    )
    console.print(f"{name}: {how}; {_size(size)} in {result.folder}")
    console.print(statistics_table(get_spec(name), header))
    if header.derived:
        console.print(f"[yellow]derived[/yellow]: {_plain(header.derived)}")
    if header.pinned_remark:
        console.print(f"note: {header.pinned_remark}")
    for note in header.notes:
        console.print(f"note: {_plain(note)}")


def statistics_table(spec: DatasetSpec, header: PackedHeader) -> Table:
    """Measured statistics beside the published ones."""
    table = Table(
        "statistic",
        "measured",
        "published",
        title=f"{header.name}: {header.task}, {header.metric}",
        title_justify="left",
    )
    for key in SHOWN:
        if key in header.statistics:
            table.add_row(
                key, _number(header.statistics[key]), _number(spec.expected[key]) if key in spec.expected else ""
            )
    return table


def listing(data_root: Path) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: all datasets with what is known before they are prepared; measured numbers where they are on disk."""
    pins = read_pins()
    columns = ["name", "task", "metric", "graphs", "nodes", "edges", "size", "licence", "source", "on disk"]
    rows = []
    for name, spec in catalog().items():
        folder = data_root / "packed" / name
        header = valid(spec, folder, pins)
        numbers = header.statistics if header else _known(spec)
        packed = header.data_bytes if header else numbers.get("bytes")
        source = "generated" if not spec.files else spec.homepage or spec.files[0].path
        here = "yes" if header else "other version" if (folder / "header.json").exists() else "no"
        counts = [_number(numbers.get(key, "")) for key in ("graphs", "nodes", "edges")]
        label = name + (" (derived)" if spec.derived else "")
        rows.append(
            [label, spec.task, spec.metric, *counts, _size(packed) if packed else "", spec.licence, source, here]
        )
    return columns, rows


def planning(names: Sequence[str], data_root: Path, mirrors: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: what preparing `names` would do; the last row is the total."""
    rows, fetch_total, disk_total, complete, pins = [], 0, 0, True, read_pins()
    for name in names:
        spec = get_spec(name)
        files = [with_pin(file, pins) for file in spec.files]
        header = valid(spec, data_root / "packed" / name, pins)
        missing = [file for file in files if not (data_root / "raw" / file.path).exists()]
        raw = sum(file.bytes or 0 for file in files)
        packed = header.data_bytes if header else _known(spec).get("bytes")
        known = packed is not None and all(file.bytes for file in files)
        after = f"{'' if known else 'more than '}{_size(raw + (packed or 0))}"
        if header:
            rows.append([name, "nothing", "already packed", _size(0), after])
            disk_total += raw + (packed or 0)
            continue
        found, where = available(name, data_root, mirrors)
        if not found:
            rows.append([name, "not at hand", where, "", ""])
            continue
        amount = sum(file.bytes or 0 for file in missing)
        if spec.files:
            does, origin = (
                f"fetches {len(missing)} of {len(spec.files)} files",
                f"{_origin(where)} ({len(spec.files)} files)",
            )
            new = sum(file.sha256 is None for file in files)
            does += f"; pins {new} digest{'s' if new > 1 else ''} on first use" if new else ""
            fetched = _size(amount) if all(file.bytes for file in missing) else f"more than {_size(amount)}"
        else:
            does, origin, fetched = "generates", "", _size(0)
        rows.append([name, does, origin, fetched, after])
        fetch_total, disk_total, complete = fetch_total + amount, disk_total + raw + (packed or 0), complete and known
    more = "" if complete else "more than "
    rows.append(
        [
            "total",
            "",
            ", ".join(map(without_credentials, mirrors_in_order(mirrors))),
            _size(fetch_total),
            more + _size(disk_total),
        ]
    )
    return ["dataset", "work", "from", "to fetch", "on disk after (raw and packed)"], rows


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table where the terminal is wide enough for it, or nothing is known of a terminal; else a paragraph per row. Nothing is ever cut."""
    width = sum(max(map(len, cells)) + 3 for cells in zip(columns, *rows)) + 1
    if not console.is_terminal or width <= console.width:
        table = Table()
        for column in columns:
            table.add_column(
                column,
                no_wrap=True,
                justify="right" if column in ("graphs", "nodes", "edges", "size", "to fetch") else "left",
            )
        for row in rows:
            table.add_row(*map(_plain, row))
        console.print(table, width=width)
        return
    for row in rows:
        facts = "; ".join(f"{column}: {cell}" for column, cell in zip(columns[1:], row[1:]) if cell)
        console.print(f"[bold]{_plain(row[0])}[/bold]")
        for line in textwrap.wrap(facts, max(console.width - 2, 20), break_long_words=False, break_on_hyphens=False):
            console.print(f"  {_plain(line)}")


def _known(spec: DatasetSpec) -> dict[str, Any]:
    """What is known of a dataset that is not on disk: measured when it once was, and published."""
    shape = asdict(shapes()[spec.name]) if spec.name in shapes() else {}
    return {key: value for key, value in shape.items() if value is not None} | dict(spec.expected)


def _verify(data_root: Path) -> int:
    wrong = verify(data_root, console.print)
    for line in wrong:
        console.print(f"[red]wrong[/red]: {_plain(line)}")
    console.print("everything on disk is as it should be" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


def _expand(names: Sequence[str]) -> list[str]:
    """Names of datasets, and of suites in params.yaml, -> names of datasets, each once."""
    datasets: list[str] = []
    for name in names:
        cells = [] if name in catalog() else [cell for cell in _cells() if cell.suite == name]
        if not cells and name not in catalog():
            suites = list(dict.fromkeys(cell.suite for cell in _cells()))
            known = [*suites, *catalog()]
            raise DatasetError(
                f"no suite or dataset named {name!r}{nearest(name, known)}; suites: {', '.join(suites)}; --list shows datasets"
            )
        datasets += [cell.dataset for cell in cells] or [name]
    return list(dict.fromkeys(datasets))


def _cells() -> list[Cell]:
    return list(load_grid().cells.values()) if Path("params.yaml").exists() else []


def _mirrors_of_params() -> list[str]:
    return list(load_grid().run.mirrors) if Path("params.yaml").exists() else []


def _origin(where: str) -> str:
    return "/".join(where.split("/")[:3]) if is_url(where) else where


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _plain(text: object) -> str:
    """Text in which rich sees no markup."""
    from rich.markup import escape

    return escape(str(text))
