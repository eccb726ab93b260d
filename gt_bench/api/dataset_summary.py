"""A summary of a dataset as it is read, printed before training."""

from gt_bench.data.packed import PackedHeader
from gt_bench.utils.redact import printable

MOST_COUNTS = 10  # classes whose sizes are listed one by one


def summary(header: PackedHeader) -> list[str]:
    """Return nodes, edges and their direction, features, classes or targets, and splits of a dataset, a line each."""
    sizes, lines = header.statistics, [f"{header.name}: {header.task}, {header.metric}"]
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
