"""`python -m stages.download DATASET`: raw files -> data/packed/DATASET. A dataset that cannot be had becomes a note, not a failure.

--list, --plan and --verify tell what exists, what would be fetched, and whether what is on disk is whole.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from stages.datasets.catalog import catalog, get_spec
from stages.datasets.inspection import DatasetError
from stages.datasets.packed import PackedHeader
from stages.datasets.prepare import Prepared, available, prepare, valid, verify
from stages.datasets.sources import _is_url, mirrors_in_order
from stages.datasets.spec import DatasetSpec
from stages.files import WriteError
from stages.recipe import RecipeError, load_grid

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
)
SHOWN += ("label_counts", "missing_targets", "pairs", "hyperedges", "splits", "train", "val", "test")


@app.command()
def main(
    datasets: Annotated[list[str] | None, typer.Argument(help="names of datasets; with --plan also of a suite")] = None,
    data_root: Annotated[Path, typer.Option(help="where raw/ and packed/ live")] = Path("data"),
    mirror: Annotated[
        list[str] | None, typer.Option(help="folder laid out like data/raw, or the beginning of a URL; several are tried in order")
    ] = None,
    strict: Annotated[bool, typer.Option(help="exit 1 when a dataset cannot be had")] = False,
    check: Annotated[bool, typer.Option("--verify", help="read everything on disk again; exit 1 if anything is wrong")] = False,
    show: Annotated[bool, typer.Option("--list", help="all datasets that exist")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="what would be fetched, from where, how much, and what will be on disk after")
    ] = False,
) -> None:
    """Prepare datasets, or tell about them."""
    try:
        mirrors = mirror or _mirrors_of_params()
        if check:
            raise typer.Exit(_verify(data_root))
        if show:
            console.print(listing(data_root))
            return
        if not datasets:
            raise DatasetError("name a dataset, or use --list, --plan or --verify")
        if plan:
            console.print(planning(_expand(datasets), data_root, mirrors))
            return
        failed = False
        for name in datasets:
            result = prepare(name, data_root, mirrors, console.print)
            report(result)
            failed |= result.state == "unavailable"
    except (DatasetError, WriteError, RecipeError) as error:
        console.print(f"[red]error[/red]: {_plain(error)}")
        raise typer.Exit(1) from None
    if failed and strict:
        raise typer.Exit(1)


def report(result: Prepared) -> None:
    """Prints what came of a preparation."""
    name = result.folder.name
    if result.state == "unavailable":
        console.print(f"{name}: [yellow]not at hand[/yellow]; its cells will say `not run: data`\n{_plain(result.reason)}")
        return
    header = result.header
    size = sum(path.stat().st_size for path in result.folder.iterdir())
    how = (
        "kept: it is already packed from the same files by the same code" if result.state == "kept" else f"packed in {result.seconds:.1f} s"
    )
    console.print(f"{name}: {how}; {_size(size)} in {result.folder}")
    console.print(statistics_table(get_spec(name), header))
    if header.derived:
        console.print(f"[yellow]derived[/yellow]: {_plain(header.derived)}")
    for note in header.notes:
        console.print(f"note: {_plain(note)}")


def statistics_table(spec: DatasetSpec, header: PackedHeader) -> Table:
    """Measured statistics beside the published ones."""
    table = Table("statistic", "measured", "published", title=f"{header.name}: {header.task}, {header.metric}", title_justify="left")
    for key in SHOWN:
        if key in header.statistics:
            table.add_row(key, _number(header.statistics[key]), _number(spec.expected[key]) if key in spec.expected else "")
    return table


def listing(data_root: Path) -> Table:
    """All datasets with what is known before they are prepared; measured numbers where they are on disk."""
    table = Table("name", "task", "metric", "graphs", "nodes", "edges", "size", "licence", "source", "on disk")
    for name, spec in catalog().items():
        header = valid(spec, data_root / "packed" / name)
        numbers = header.statistics if header else spec.expected
        size = header.data_bytes if header else sum(file.bytes or 0 for file in spec.files)
        source = "generated" if not spec.files else spec.homepage or spec.files[0].path
        here = "yes" if header else "other version" if (data_root / "packed" / name / "header.json").exists() else "no"
        cells = [
            _number(numbers.get(key, 1 if key == "graphs" and spec.split_kind == "node" else "")) for key in ("graphs", "nodes", "edges")
        ]
        label = name + (" (derived)" if spec.derived else "")
        table.add_row(label, spec.task, spec.metric, *cells, _size(size) if size else "", _plain(spec.licence), source, here)
    return table


def planning(names: Sequence[str], data_root: Path, mirrors: Sequence[str]) -> Table:
    """What preparing `names` would do."""
    table = Table("dataset", "does", "from", "to fetch", "on disk after", title=f"into {data_root}", title_justify="left")
    fetch_total = disk_total = 0
    for name in names:
        spec = get_spec(name)
        header = valid(spec, data_root / "packed" / name)
        missing = [file for file in spec.files if not (data_root / "raw" / file.path).exists()]
        raw = sum(file.bytes or 0 for file in spec.files)
        if header:
            table.add_row(name, "nothing", "already packed", _size(0), _size(raw + header.data_bytes))
            disk_total += raw + header.data_bytes
            continue
        found, where = available(name, data_root, mirrors)
        amount = sum(file.bytes or 0 for file in missing)
        unknown = "" if all(file.bytes for file in missing) else " or more (a size is not published)"
        does = "generates" if not spec.files else f"fetches {len(missing)} of {len(spec.files)} files" if found else "not at hand"
        origin = where if not found or not spec.files else f"{_origin(where)} ({len(spec.files)} files)"
        table.add_row(name, does, _plain(origin), _size(amount) + unknown, f"{_size(raw)} raw, and the packed form")
        if found:
            fetch_total, disk_total = fetch_total + amount, disk_total + raw
    table.add_section()
    table.add_row("total", "", ", ".join(mirrors_in_order(mirrors)), _size(fetch_total), _size(disk_total) + " raw and packed where known")
    return table


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
        datasets += [cell.dataset for cell in cells] or [name]
    return list(dict.fromkeys(datasets))


def _cells() -> list:
    return list(load_grid().cells.values()) if Path("params.yaml").exists() else []


def _mirrors_of_params() -> list[str]:
    return list(load_grid().run.mirrors) if Path("params.yaml").exists() else []


def _origin(where: str) -> str:
    return "/".join(where.split("/")[:3]) if _is_url(where) else where


def _number(value) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _plain(text) -> str:
    """Text in which rich sees no markup."""
    from rich.markup import escape

    return escape(str(text))


if __name__ == "__main__":
    app()
