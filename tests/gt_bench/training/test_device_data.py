"""Batches that are gathered on the device: the same bits as on the host, and no work on the host per graph."""

import threading
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gt_bench.config.recipe_sections import BatchSection
from gt_bench.data.packed import PackedDataset, PackedHeader
from gt_bench.data.packed_writer import pack
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.encodings.compute import encode
from gt_bench.training import loader as module
from gt_bench.training.device_data import DeviceData
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader
from gt_bench.training.prefetch import prefetch
from gt_models.batch import GraphBatch

CPU = torch.device("cpu")
ENCODINGS = {
    "rwse": {"steps": 3},
    "rrwp": {"steps": 2},
    "shortest-path": {},
    "laplacian": {"k": 2},
    "order": {},
    "random": {"k": 3},
}


def dataset(folder, kind="categorical", graphs=40, seed=0):
    """Graphs of 1 to 9 nodes with everything that a batch can have."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 10, graphs)
    degrees = np.where(sizes > 1, 2 * sizes, 0)
    edges = [np.stack([rng.integers(0, n, d), rng.integers(0, n, d)]) for n, d in zip(sizes, degrees, strict=True)]
    nodes, num_edges = int(sizes.sum()), int(degrees.sum())
    values = {
        "name": kind, "task": "graph-regression", "metric": "mae", "level": "graph", "in_dim": [5, 3],
        "edge_dim": [4], "out_dim": 2, "split_kind": "graph", "num_splits": 1,
        "extras": {"mass": "node", "bond": "edge", "weight": "graph"},
    }  # fmt: skip
    arrays = {
        "num_nodes": sizes, "num_edges": degrees, "edge_index": np.concatenate(edges, 1),
        "x": rng.integers(0, 3, (nodes, 2)), "edge_attr": rng.integers(0, 4, num_edges),
        "y": rng.normal(size=(graphs, 2)).astype(np.float32), "split": (np.arange(graphs) % 3 + 1)[None],
        "mass": rng.normal(size=nodes).astype(np.float32), "bond": rng.integers(0, 9, num_edges),
        "weight": rng.normal(size=graphs),
    }  # fmt: skip
    if kind == "counts":
        values |= {"in_dim": 6, "edge_dim": 2, "row_normalise": True, "level": "node", "task": "node-regression"}
        arrays |= {"x": rng.integers(0, 4, (nodes, 6)), "edge_attr": rng.normal(size=(num_edges, 2)).astype(np.float32)}
        arrays["y"] = rng.normal(size=(nodes, 2)).astype(np.float32)
    if kind == "pairs":
        values |= {"level": "pair", "task": "set-to-graph", "metric": "f1", "out_dim": 1}
        pairs = [np.unique(rng.integers(0, n, (n, 2)), axis=0).T for n in sizes]
        del arrays["y"]
        arrays |= {"num_pairs": [p.shape[1] for p in pairs], "pair_index": np.concatenate(pairs, 1)}
    pack(folder / "packed" / kind, PackedHeader(**values), arrays)
    packed = PackedDataset.open(folder / "packed" / kind)
    for name, arguments in ENCODINGS.items():
        encode(packed, folder / "encodings" / kind, name, arguments)
    return packed, EncodedDataset(packed, folder / "encodings" / kind, ENCODINGS)


def loaders(packed, encoded, dtype=torch.float32, **section):
    """Returns a loader from the host and one from the device."""
    batch = BatchSection(**({"graphs": 7} | section))
    both = [Loader(SplitData(packed, encoded, 0, batch, 3, CPU, dtype)) for _ in range(2)]
    both[1].place("device")
    return both


def assert_same(one: GraphBatch, other: GraphBatch):
    """Fails if two batches differ in a bit, a type, or a size that is not a tensor."""
    for field in fields(GraphBatch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        a, b = (value if isinstance(value, dict) else {"": value} for value in (a, b))
        assert a.keys() == b.keys()
        for key in a:
            assert (a[key] is None) == (b[key] is None), (field.name, key)
            if a[key] is not None:
                assert (a[key].dtype, a[key].shape) == (b[key].dtype, b[key].shape), (field.name, key)
                assert torch.equal(a[key].nan_to_num(), b[key].nan_to_num()), (field.name, key)
    for name in ("max_nodes", "max_edges", "num_pairs"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["categorical", "counts", "pairs"])
def test_the_same_bits_as_from_the_host(tmp_path, kind, dtype):
    packed, encoded = dataset(tmp_path, kind)
    for section in ({}, {"graphs": None, "nodes": 20}, {"graphs": None, "nodes": 20, "bucket": True}, {"graphs": None}):
        host, device = loaders(packed, encoded, dtype, **section)
        for mine, theirs in ((host.training(1), device.training(1)), *(
            (host.evaluation(part), device.evaluation(part)) for part in ("train", "val", "test")
        )):  # fmt: skip
            count = 0
            for (a, _), (b, _) in zip(mine, theirs, strict=True):
                assert_same(a, b)
                count += 1
            assert count
    for ids in (torch.tensor([4]), torch.tensor([5, 6, 7]), torch.tensor([3, 3, 0])):
        assert_same(host.load(ids), device.load(ids))


class Operations(TorchDispatchMode):
    """Counts operations."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found += 1
        return func(*args, **(kwargs or {}))


def operations(packed, encoded, batch_size):
    """The number of operations of each batch of an epoch on the meta device, where a value cannot be read."""
    data = DeviceData(packed, encoded, torch.device("meta"), torch.float32)
    counts, batches = [], data.batches(list(torch.randperm(packed.num_graphs).split(batch_size)))
    while True:
        with Operations() as counter:
            batch = next(batches, None)
        if batch is None:
            return counts
        counts.append(counter.found)


@pytest.mark.parametrize("kind", ["categorical", "counts", "pairs"])
def test_a_batch_is_a_fixed_number_of_operations_none_of_which_waits(tmp_path, kind):
    """On the meta device reading a value raises, as a GPU would have to wait for it."""
    packed, encoded = dataset(tmp_path, kind)
    assert not encoded.computes
    few, (many,) = operations(packed, encoded, 2), operations(packed, encoded, 40)
    assert len(few) == 20
    assert len(set(few[1:])) == 1  # the first one moves the ids of the epoch
    assert many <= few[1] + 3
    assert few[1] < 120


def test_prefetched_batches_are_those_of_the_host_in_order(tmp_path):
    packed, encoded = dataset(tmp_path)
    host, _ = loaders(packed, encoded)
    plans = host._plan(host.ids["train"], torch.Generator().manual_seed(0))
    found = list(prefetch(plans, host._load_stored, CPU))
    assert [ids.tolist() for ids, _ in found] == [plan.tolist() for plan in plans]
    for ids, batch in found:
        assert_same(host.load(ids), encoded.attach_computed(batch, ids))


def test_an_error_while_prefetching_is_raised_at_its_batch():
    def make(plan):
        if int(plan) == 2:
            raise ValueError("batch 2 is wrong")
        return GraphBatch(torch.ones(1, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 1]))

    batches = prefetch(list(torch.arange(5)), make, CPU)
    assert [int(next(batches)[0]) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="batch 2 is wrong"):
        next(batches)


def test_an_epoch_that_is_left_early_leaves_no_thread(tmp_path):
    packed, encoded = dataset(tmp_path)
    host, _ = loaders(packed, encoded, graphs=1)
    host._prefetches = True
    batches = host.training(0)
    next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_a_dataset_that_does_not_fit(tmp_path, monkeypatch):
    packed, encoded = dataset(tmp_path)
    host, device = loaders(packed, encoded)
    needed = DeviceData.num_bytes(packed, encoded)
    held = sum(t.nbytes for t in device._on_device.arrays.values()) + sum(v.nbytes for _, v in device._on_device.stored)
    assert held <= needed
    monkeypatch.setattr(module, "free_bytes", lambda device: needed - 1)
    with pytest.raises(ValueError, match=r"run\.data_on: device: the arrays of 'categorical' .* set run\.data_on to"):
        host.place("device")
    host.device = torch.device("cuda")  # not used before a batch is made
    host.place("auto")
    assert host._prefetches
    assert host._on_device is None
