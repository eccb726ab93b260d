"""A summary of a dataset as it is read, printed before training and by `gt-bench describe`."""

import tempfile
from pathlib import Path
from typing import Any

import yaml

from gt_bench.data.custom.description import Description
from gt_bench.data.custom.source import Reader
from gt_bench.data.packed import PackedDataset, PackedHeader
from gt_bench.data.prepare import prepared_dataset
from gt_bench.data.readers import located
from gt_bench.plugins.datasets import undeclared
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_bytes
from gt_bench.utils.redact import printable

MOST_COUNTS = 10  # classes whose sizes are listed one by one
MOST_COLUMNS = 40  # of user-supplied data, listed one by one


def described(text: str, options: Description) -> tuple[PackedHeader, Reader | None]:
    """Read a dataset as `gt-bench try` would, without keeping anything of user-supplied data.

    Args:
        text: DATASET of the command.
        options: what is declared about it.

    Returns:
        The header of the packed dataset, and the reader of user-supplied data.
    """
    spec = undeclared(text, options)
    if (reader := spec.arguments.get("reader")) is None:
        return prepared_dataset(spec.name, "data", (), print).header, None
    with tempfile.TemporaryDirectory() as folder, located(f"dataset {spec.name!r}"):
        spec.prepare(spec, {}, Path(folder, spec.name))
        return PackedDataset.open(Path(folder, spec.name)).header, reader


def written(path: Path, reader: Reader | None, header: PackedHeader) -> None:
    """Write the description of user-supplied data that declares each role and type which `described` found.

    Raises:
        DatasetError: it is a dataset of the benchmark.
    """
    if reader is None:
        problem = "is a dataset of the benchmark, which needs no description"
        raise DatasetError(problem, file=f"dataset {header.name!r}")
    declared: dict[str, Any] = {"task": header.task, "metric": header.metric}
    columns = header.provenance["columns"]
    if not reader.of_arrays:
        for column in columns:
            name, role = column["name"], column["role"]
            if role in ("id", "weight", "time", "group"):
                declared[role] = name
            elif role == "label":
                declared.setdefault("target", []).append(name)
            elif role == "feature":
                key = "categories" if column["kind"] == "category" else "numbers"
                declared.setdefault(key, []).append(f"{column['table']}.{name}")
            elif role == "not used":
                declared.setdefault("drop", []).append(f"{column['table']}.{name}")
        declared["ends"] = [c["name"] for end in ("source", "target") for c in columns if c["role"] == f"{end} node"]
    if header.statistics["symmetric"] or reader.description.undirected is not None:
        declared["undirected"] = bool(header.statistics["symmetric"])
    content = Description.parsed(reader.description.content() | declared, str(path)).content()
    write_bytes(path, yaml.safe_dump(content, sort_keys=False, width=100).encode())


def summary(header: PackedHeader) -> list[str]:
    """Return columns of user-supplied data, nodes, edges, features, targets and splits of a dataset, a line each."""
    sizes, lines = header.statistics, [f"{header.name}: {header.task}, {header.metric}"]
    lines += _table(header.provenance.get("columns", []))
    lines.append(f"  nodes     {_nodes(sizes)}")
    direction = "symmetric: each has its reverse" if sizes["symmetric"] else "directed: some have no reverse"
    loops = (
        f", {sizes['self_loops']:,} self-loop{'s' if sizes['self_loops'] > 1 else ''}" if sizes["self_loops"] else ""
    )
    lines.append(f"  edges     {sizes['edges']:,}, {direction}{loops}; {_width(header.edge_dim, 'edge')}")
    lines.append(f"  features  {_width(header.in_dim, 'node')}")
    if "label_counts" in sizes:
        unlabelled = f"; {sizes['unlabelled']:,} without one" if sizes["unlabelled"] else ""
        lines.append(
            f"  classes   {_classes(sizes['label_counts'], header.provenance.get('arguments', {}).get('labels'))} "
            f"{header.level}s{unlabelled}"
        )
    elif "targets" in sizes:
        missing = f"; {sizes['missing_targets']:,} not known" if sizes["missing_targets"] else ""
        lines.append(f"  targets   {sizes['targets']} per {header.level}{missing}")
    elif "target_edges" in sizes:
        negatives = header.provenance.get("arguments", {}).get("negatives")
        lines.append(f"  targets   {sizes['target_edges']:,} edges; {negatives} negatives of each on val and test")
    if header.num_splits:
        parts = ", ".join(f"{part} {sizes[part]:,}" for part in ("train", "val", "test"))
        first = " (the first)" if header.num_splits > 1 else ""
        lines.append(f"  splits    {header.num_splits}: {parts} {header.split_kind}s{first}")
        if stated := header.provenance.get("arguments", {}).get("split_made"):
            lines.append(f"            {printable(stated)}")
    return lines


def _table(columns: list[dict[str, Any]]) -> list[str]:
    """Return the table of columns."""
    if not columns:
        return []
    names = ("table", "column", "role", "type", "values", "missing")
    rows = [[printable(str(cell)) for cell in column.values()] for column in columns[:MOST_COLUMNS]]
    rows = [[*row[:5], "" if row[5] == "0" else row[5]] for row in rows]
    widths = [max(len(row[number]) for row in [names, *rows]) for number in range(6)]
    lines = ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [names, *rows]]
    more = len(columns) - MOST_COLUMNS
    return lines + ([f"  ... and {more} more columns"] if more > 0 else [])


def _nodes(sizes: dict[str, int]) -> str:
    if sizes["graphs"] == 1:
        return f"{sizes['nodes']:,} in one graph"
    return f"{sizes['nodes']:,} in {sizes['graphs']:,} graphs of {sizes['min_nodes']:,} to {sizes['max_nodes']:,}"


def _width(dim: int | list[int] | None, what: str) -> str:
    if dim is None:
        return f"no features of {what}s"
    if isinstance(dim, int):
        return f"{dim:,} number{'s' if dim > 1 else ''} per {what}"
    values = ", ".join(f"{count:,}" for count in dim[:MOST_COUNTS]) + (", ..." if len(dim) > MOST_COUNTS else "")
    return f"{len(dim)} categor{'ies' if len(dim) > 1 else 'y'} per {what}, of {values} values"


def _classes(counts: list[int], labels: list[str] | None) -> str:
    if len(counts) > MOST_COUNTS:
        return f"{len(counts)}: {min(counts):,} to {max(counts):,}"
    names = [f" {printable(label)}" for label in labels] if labels else [""] * len(counts)
    return f"{len(counts)}: {', '.join(f'{count:,}{name}' for count, name in zip(counts, names, strict=True))}"
