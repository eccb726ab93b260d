"""What is asked of every packed dataset: published statistics, symmetry, splits, and batches equal to what a plain reading gives."""

from pathlib import Path

import torch

from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import get_spec
from gt_bench.data.statistics import compare


def prepared(name: str, root: Path, mirror: Path | None) -> PackedDataset:
    """The dataset, prepared into `root` from `mirror` alone, with its general truths checked."""
    result = prepare(name, root, [str(mirror)] if mirror else [])
    assert result.state == "packed", result.reason
    dataset = PackedDataset.open(result.folder)
    dataset.verify()
    assert compare(get_spec(name).expected, dataset.header.statistics) == []
    assert_sound(dataset)
    return dataset


def assert_sound(dataset: PackedDataset) -> None:
    """Splits are disjoint, in range, not empty; a batch has the header's widths and types."""
    header = dataset.header
    count = {"node": dataset.num_nodes, "graph": dataset.num_graphs}.get(header.split_kind)
    for index in range(header.num_splits):
        parts = [dataset.split(part, index) for part in ("train", "val", "test")]
        ids = torch.cat(parts)
        assert ids.unique().numel() == ids.numel()
        assert parts[0].numel() > 0
        assert parts[2].numel() > 0
        assert count is None or ids.numel() == 0 or int(ids.max()) < count
    batch = dataset.batch(torch.arange(min(3, dataset.num_graphs)))
    assert batch.x.dim() == 2
    assert batch.x.is_floating_point() == isinstance(header.in_dim, int)
    assert batch.x.size(1) == (header.in_dim if isinstance(header.in_dim, int) else len(header.in_dim))
    if header.edge_dim is not None:
        assert batch.edge_attr.size(1) == (
            header.edge_dim if isinstance(header.edge_dim, int) else len(header.edge_dim)
        )
    if batch.y is not None and header.task.endswith("-classification"):
        assert batch.y.dtype == torch.long
        assert int(batch.y.max()) < header.out_dim
