"""Miniatures: every dataset of the catalog has one, with the header of the real dataset."""

import os
from pathlib import Path

import pytest
import torch

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.data.standin import measure, miniature, shape_of, shapes, write_shapes
from gt_bench.testing.datasets import DATASETS, spec_of
from gt_bench.utils.errors import DatasetError
from tests.conftest import ROOT
from tests.gt_bench.data.checks import HEADER_FIELDS
from tests.refusals import refused

PACKED = Path(os.environ.get("GT_PACKED", ROOT / "data" / "packed"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sorted(catalog()), *DATASETS])
def test_every_dataset_has_a_miniature_in_which_every_part_is_filled(name, tmp_path):
    spec = spec_of(name)
    miniature(spec, tmp_path / "mini")
    packed = PackedDataset.open(tmp_path / "mini")
    packed.verify()
    assert packed.num_nodes < 3000
    batch = packed.batch(torch.arange(min(4, packed.num_graphs)))
    assert (batch.edge_attr is None) == (packed.header.edge_dim is None)
    for index in range(packed.header.num_splits):
        for part in ("train", "val", "test"):
            ids = packed.split(part, index)
            assert len(ids) >= 3
            if spec.task.endswith("-classification") and packed.header.level == packed.header.split_kind:
                assert packed.array("y")[ids].unique().numel() >= 2
    # the shape agrees with the spec
    shape, expected = shape_of(spec), spec.expected
    width = len(shape.in_dim) if isinstance(shape.in_dim, list) else None
    assert expected.get("features", shape.in_dim) in (shape.in_dim, width)
    names = {"splits": "num_splits", "classes": "out_dim", "targets": "targets"}
    for theirs in ("nodes", "graphs", "splits", "train", "classes", "targets"):
        ours = getattr(shape, names.get(theirs, theirs))
        assert (ours is None and theirs not in names) or expected.get(theirs, ours) == ours, theirs


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(catalog()))
def test_a_miniature_has_directed_edges_self_loops_and_isolated_nodes_like_the_dataset(name, tmp_path):
    spec = catalog()[name]
    miniature(spec, tmp_path / "mini")
    shape, found = shape_of(spec), measure(PackedDataset.open(tmp_path / "mini"))
    assert found.directed == shape.directed
    assert (found.self_loops > 0) == (shape.self_loops > 0)
    assert (found.isolated > 0) == (shape.isolated > 0 or not found.edges)
    expected = spec.expected
    assert expected.get("symmetric", not shape.directed) == (not shape.directed)
    assert expected.get("self_loops", shape.self_loops) == shape.self_loops


@pytest.mark.parametrize(
    ("name", "parts"), [("zinc", (83, 8, 8)), ("peptides-func", (70, 15, 15)), ("mnist", (80, 10, 10))]
)
def test_at_life_size_parts_have_the_dataset_s_shares(name, parts, tmp_path):
    """The share of the training part decides the time of an epoch. It is 8 : 1 : 1 if unknown."""
    miniature(catalog()[name], tmp_path / "mini", life_size=100)
    packed = PackedDataset.open(tmp_path / "mini")
    for index in range(packed.header.num_splits):
        found = [len(packed.split(part, index)) for part in ("train", "val", "test")]
        assert sum(found) == 100
        assert found == pytest.approx(parts, abs=1)


@pytest.mark.parametrize("name", sorted(catalog()))
def test_the_header_equals_that_of_the_real_dataset(name, tmp_path):
    if not (PACKED / name / "header.json").exists():
        pytest.skip(f"{PACKED / name} is not packed here; set GT_PACKED")
    real = PackedDataset.open(PACKED / name)
    if real.header.provenance.get("spec") != catalog()[name].digest:
        pytest.skip("packed by other code")
    made = miniature(catalog()[name], tmp_path / "mini")
    assert {k: getattr(made, k) for k in HEADER_FIELDS} == {k: getattr(real.header, k) for k in HEADER_FIELDS}
    mini = PackedDataset.open(tmp_path / "mini")
    assert mini.array("x").is_floating_point() == (isinstance(made.in_dim, int) and not made.row_normalise)
    first = torch.tensor([0])
    one, other = mini.batch(first), real.batch(first)
    assert (one.y is None) == (other.y is None)
    assert one.y is None or (one.y.dtype, one.y.dim()) == (other.y.dtype, other.y.dim())
    assert measure(real) == shapes()[name]


def test_a_dataset_without_a_known_shape(tmp_path):
    spec = DatasetSpec(name="mine", task="graph-regression", metric="mae", prepare=print)
    with refused(DatasetError, file="dataset 'mine'"):
        miniature(spec, tmp_path / "mini", data=tmp_path)


def test_write_shapes_updates_only_packed_datasets(tmp_path, monkeypatch):
    before = shapes()
    target = tmp_path / "shapes.json"
    target.write_bytes((ROOT / "gt_bench/data/shapes.json").read_bytes())
    monkeypatch.setattr("gt_bench.data.standin.SHAPES", target)
    miniature(catalog()["texas"], tmp_path / "packed" / "texas")
    assert write_shapes(tmp_path / "packed") == ["texas"]
    shapes.cache_clear()
    after = shapes()
    assert after["texas"].nodes == 42
    assert {k: v for k, v in after.items() if k != "texas"} == {k: v for k, v in before.items() if k != "texas"}
    shapes.cache_clear()
