"""Checks of packed datasets: published statistics, splits, and types of batches."""

from pathlib import Path

import torch
from hypothesis import strategies as st

from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.statistics import compare

# fields of the header that decide how a model uses the dataset
HEADER_FIELDS = (
    *("name", "task", "metric", "also", "level", "in_dim", "edge_dim", "out_dim"),
    *("split_kind", "num_splits", "extras", "row_normalise"),
)


def prepared(name: str, root: Path, mirror: Path | None) -> PackedDataset:
    """Prepare a dataset in `root` from `mirror`, and check it."""
    result = prepare(name, root, [str(mirror)] if mirror else [])
    assert result.state == "packed", result.reason
    dataset = PackedDataset.open(result.folder)
    dataset.verify()
    assert compare(get_spec(name).expected, dataset.header.statistics) == []
    assert_sound(dataset)
    return dataset


def made(spec: DatasetSpec, folder: Path, *files: Path) -> PackedDataset:
    """Prepare a dataset in `folder` from raw files, in the order of `spec.files`, and check it."""
    spec.prepare(spec, dict(zip((file.path for file in spec.files), files, strict=True)), folder)
    dataset = PackedDataset.open(folder)
    assert_sound(dataset)
    return dataset


def mutated(data: st.DataObject, content: bytes, within: int | None = None) -> bytes:
    """`content` after one to four changes, in its first `within` bytes: bytes are replaced, removed or inserted."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, min(len(changed), within or len(changed))))
        new = data.draw(st.binary(max_size=10))
        changed[start : start + data.draw(st.sampled_from([len(new), 0, 1, 40]))] = new
    return bytes(changed)


def assert_sound(dataset: PackedDataset) -> None:
    """Check that splits are disjoint, in range and not empty; and widths and types of a batch."""
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
