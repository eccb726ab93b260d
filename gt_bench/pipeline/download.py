"""The download stage: `python -m stages.download DATASET` prepares data/packed/DATASET.

An unavailable dataset is reported, and is not a failure. --list shows all datasets, --plan what would be fetched, and
--verify checks everything on disk.
"""

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gt_bench.config.grid import Cell, load_grid
from gt_bench.config.schema import nearest
from gt_bench.data.download import is_url, mirrors_in_order
from gt_bench.data.packed import PackedHeader
from gt_bench.data.pins import read_pins, with_pin
from gt_bench.data.prepare import Prepared, available, prepare, valid, verify
from gt_bench.data.registry import catalog, get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.standin import shapes
from gt_bench.runtime.exit_status import ends_in_order
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.format import file_size
from gt_bench.utils.redact import without_credentials

app = typer.Typer(add_completion=False)
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 240)


@app.command()
@ends_in_order
def main(
    datasets: Annotated[list[str] | None, typer.Argument(help="names of datasets; with --plan also of suites")] = None,
    data_root: Annotated[Path, typer.Option(help="folder of raw/ and packed/")] = Path("data"),
    mirror: Annotated[
        list[str] | None,
        typer.Option(help="folder with the layout of data/raw, or a URL prefix; several are tried in order"),
    ] = None,
    strict: Annotated[bool, typer.Option(help="exit 1 if a dataset is unavailable")] = False,
    check: Annotated[bool, typer.Option("--verify", help="check everything on disk; exit 1 on any problem")] = False,
    show: Annotated[bool, typer.Option("--list", help="show all datasets")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="show what would be fetched, from where, and the size on disk")
    ] = False,
) -> None:
    """Prepare datasets, or show information about them."""
    mirrors = mirror or _mirrors_of_params()
    if check:
        raise typer.Exit(_verify(data_root))
    if show:
        show_rows(*listing(data_root))
        return
    if not datasets:
        raise DatasetError("no dataset given", remedy="name a dataset, or use --list, --plan or --verify")
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
    """Print the result of a preparation."""
    name = result.folder.name
    header = result.header
    if header is None:
        console.print(
            f"{name}: [yellow]not available[/yellow]; its cells are reported as `not run: data`\n"
            f"{escape(str(result.reason))}"
        )
        return
    size = sum(path.stat().st_size for path in result.folder.iterdir())
    up_to_date = "up to date: already packed from the same files by the same version"
    how = f"packed in {result.seconds:.1f} s" if result.state == "packed" else up_to_date
    console.print(f"{name}: {how}; {file_size(size)} in {result.folder}")
    console.print(statistics_table(get_spec(name), header))
    if header.derived:
        console.print(f"[yellow]derived[/yellow]: {escape(header.derived)}")
    if header.pinned:
        console.print(f"note: digest pinned on first use, {', '.join(header.pinned)}")
    for note in header.notes:
        console.print(f"note: {escape(note)}")


def statistics_table(spec: DatasetSpec, header: PackedHeader) -> Table:
    """Make a table of the measured statistics in `header` and the published ones in `spec`."""
    title = f"{header.name}: {header.task}, {header.metric}"
    table = Table("statistic", "measured", "published", title=title, title_justify="left")
    for key, value in header.statistics.items():
        table.add_row(key, _number(value), _number(spec.expected.get(key, "")))
    return table


def listing(data_root: Path) -> tuple[list[str], list[list[str]]]:
    """List all datasets, with measured sizes if they are on disk, else with known or published ones.

    Args:
        data_root: folder of packed/.

    Returns:
        Names of columns, and rows.
    """
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
            [label, spec.task, spec.metric, *counts, file_size(packed) if packed else "", spec.licence, source, here]
        )
    return columns, rows


def planning(names: Sequence[str], data_root: Path, mirrors: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Show what preparing datasets would do.

    Args:
        names: names of datasets.
        data_root: folder of raw/ and packed/.
        mirrors: folders or URLs to try before the official addresses.

    Returns:
        Names of columns, and a row per dataset followed by the total.
    """
    rows, fetch_total, disk_total, complete, pins = [], 0, 0, True, read_pins()
    for name in names:
        spec = get_spec(name)
        files = [with_pin(file, pins) for file in spec.files]
        header = valid(spec, data_root / "packed" / name, pins)
        missing = [file for file in files if not (data_root / "raw" / file.path).exists()]
        raw = sum(file.bytes or 0 for file in files)
        packed = header.data_bytes if header else _known(spec).get("bytes")
        known = packed is not None and all(file.bytes for file in files)
        after = f"{'' if known else 'more than '}{file_size(raw + (packed or 0))}"
        if header:
            rows.append([name, "nothing", "already packed", file_size(0), after])
            disk_total += raw + (packed or 0)
            continue
        found, where = available(name, data_root, mirrors)
        if not found:
            rows.append([name, "not available", where, "", ""])
            continue
        amount = sum(file.bytes or 0 for file in missing)
        if spec.files:
            host = "/".join(where.split("/")[:3]) if is_url(where) else where
            work, origin = f"fetches {len(missing)} of {len(spec.files)} files", f"{host} ({len(spec.files)} files)"
            new = sum(file.sha256 is None for file in files)
            work += f"; pins {new} digest{'s' if new > 1 else ''} on first use" if new else ""
            fetched = file_size(amount) if all(file.bytes for file in missing) else f"more than {file_size(amount)}"
        else:
            work, origin, fetched = "generates", "", file_size(0)
        rows.append([name, work, origin, fetched, after])
        fetch_total, disk_total, complete = fetch_total + amount, disk_total + raw + (packed or 0), complete and known
    more = "" if complete else "more than "
    tried = ", ".join(without_credentials(mirror, mirror) for mirror in mirrors_in_order(mirrors))
    rows.append(["total", "", tried, file_size(fetch_total), more + file_size(disk_total)])
    return ["dataset", "work", "from", "to fetch", "on disk after (raw and packed)"], rows


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table if the terminal is wide enough or the output is not a terminal, else a paragraph per row.

    No cell is truncated.

    Args:
        columns: names of columns.
        rows: cells.
    """
    width = sum(max(map(len, cells)) + 3 for cells in zip(columns, *rows)) + 1
    if not console.is_terminal or width <= console.width:
        table = Table()
        for column in columns:
            numeric = column in ("graphs", "nodes", "edges", "size", "to fetch")
            table.add_column(column, no_wrap=True, justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table, width=width)
        return
    for row in rows:
        facts = "; ".join(f"{column}: {cell}" for column, cell in zip(columns[1:], row[1:]) if cell)
        console.print(f"[bold]{escape(row[0])}[/bold]")
        for line in textwrap.wrap(facts, max(console.width - 2, 20), break_long_words=False, break_on_hyphens=False):
            console.print(f"  {escape(line)}")


def _known(spec: DatasetSpec) -> dict[str, Any]:
    """Return the sizes of a dataset that is not on disk: published ones, and those of shapes.json."""
    shape = asdict(shapes()[spec.name]) if spec.name in shapes() else {}
    return {key: value for key, value in shape.items() if value is not None} | dict(spec.expected)


def _verify(data_root: Path) -> int:
    wrong = verify(data_root, console.print)
    for line in wrong:
        console.print(f"[red]problem[/red]: {escape(line)}")
    console.print("no problems found" if not wrong else f"problems found: {len(wrong)}")
    return 1 if wrong else 0


def _expand(names: Sequence[str]) -> list[str]:
    """Replace names of suites in params.yaml by names of their datasets, without duplicates."""
    datasets: list[str] = []
    for name in names:
        cells = [] if name in catalog() else [cell for cell in _cells() if cell.suite == name]
        if not cells and name not in catalog():
            suites = list(dict.fromkeys(cell.suite for cell in _cells()))
            known = [*suites, *catalog()]
            problem = f"no suite or dataset named {name!r}{nearest(name, known)}; suites: {', '.join(suites)}"
            raise DatasetError(problem, value=name, remedy="--list shows all datasets")
        datasets += [cell.dataset for cell in cells] or [name]
    return list(dict.fromkeys(datasets))


def _cells() -> list[Cell]:
    return list(load_grid().cells.values()) if Path("params.yaml").exists() else []


def _mirrors_of_params() -> list[str]:
    return list(load_grid().run.mirrors) if Path("params.yaml").exists() else []


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
