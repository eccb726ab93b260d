"""Files hosted by torch_geometric: miniatures in the official formats, and the safe unpickler."""

import contextlib
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.data.safe_pickle import load_pickle, load_torch
from gt_bench.utils.errors import DatasetError
from gt_models.encodings import compute
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import Malicious, saved, zipped
from tests.refusals import refused


def edges(n, m=12):
    pairs = torch.randint(0, n, (2, m))
    return torch.unique(torch.cat([pairs, pairs.flip(0)], 1)[:, torch.cat([pairs[0] != pairs[1]] * 2)], dim=1)


def run(name, folder, member, content) -> PackedDataset:
    return made(get_spec(name), folder / "out", *zipped(folder / "file.zip", **{member: content}))


def test_qm9_is_standardised_with_its_training_part(tmp_path):
    def graph(n):
        e = edges(n)
        return {
            "x": torch.rand(n, 11),
            "edge_index": e,
            "edge_attr": torch.nn.functional.one_hot(torch.randint(4, (e.size(1),)), 4).float(),
            "pos": torch.randn(n, 3),
            "y": 3 + 2 * torch.randn(1, 19),
            "name": "gdb",
            "idx": n,
        }

    graphs = [graph(int(n)) for n in torch.randint(2, 9, (40,))]
    dataset = run("qm9", tmp_path, "qm9_v3.pt", saved(graphs))
    train, y = dataset.split("train", 0), dataset.array("y")
    assert [dataset.split(part, 0).numel() for part in ("train", "val", "test")] == [32, 4, 4]
    torch.testing.assert_close(y[train].mean(0), torch.zeros(12), atol=1e-5, rtol=0)
    torch.testing.assert_close(y[train].std(0), torch.ones(12), atol=1e-5, rtol=0)
    raw = torch.cat([g["y"][:, :12] for g in graphs])
    torch.testing.assert_close(
        y * dataset.array("target_deviation") + dataset.array("target_mean"), raw, atol=1e-4, rtol=1e-4
    )
    # graphs are complete; bonds have their channels, every pair has its distance
    batch, data = dataset.batch(torch.tensor([5])), graphs[5]
    n, (i, j) = len(data["x"]), batch.edge_index
    assert torch.equal(batch.edge_index, (1 - torch.eye(n)).nonzero().T)
    channels, bonds = torch.zeros(n, n, 4), torch.zeros(n, n, dtype=torch.uint8)
    channels[tuple(data["edge_index"])], bonds[tuple(data["edge_index"])] = data["edge_attr"], 1
    assert torch.equal(batch.edge_attr[:, :4], channels[i, j])
    assert torch.equal(batch.extras["bond"], bonds[i, j])
    torch.testing.assert_close(batch.edge_attr[:, 4], (data["pos"][i] - data["pos"][j]).norm(dim=1))
    walks = compute("rrwp", batch, steps=2, edges="bonds")["rrwp"].view(n, n, 3)
    assert torch.equal(walks[:, :, 1] > 0, bonds.bool())


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(DatasetError, file="x", value="posix.system"):
        load_pickle(pickle.dumps({"train": Malicious()}), "x")
    with refused(DatasetError, file="x"):
        load_torch(saved([Malicious()]), "x")
    smuggled = pickle.dumps(torch.zeros(3)).replace(b"_rebuild_tensor_v2", b"_rebuild_parameter")
    with refused(DatasetError, file="x", value="torch._utils._rebuild_parameter"):
        load_pickle(smuggled, "x")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        (b"\x80\x04Nr\xff\xff\xff\x0f.", "byte 3", "index above the number of objects"),  # LONG_BINPUT
        (b"N}p268435455\n.", "byte 2", "index above the number of objects"),  # PUT
        (b"Np" + b"9" * 30 + b"\n.", "byte 1", "index above the number of objects"),
        (b"\x80\x05\x96\xff\xff\xff\xff\x00\x00\x00\x00.", "byte 2", "length of 4,294,967,295"),  # BYTEARRAY8
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.", "byte 2", f"length of {2**60 - 1:,}"),  # BINBYTES8
        (b"\x80\x04\x8b\xff\xff\xff\x7f.", "byte 2", "length of 2,147,483,647"),  # LONG4
        # an array of four billion numbers
        (b"\x80\x04cnumpy\nndarray\n(I4294967296\ntR.", "", "'NoneType' object is not callable"),
        (
            b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I4294967296\nt\x8c\x01btR\x88b.",
            "",
            "__setstate__",
        ),
    ],
)
def test_a_pickle_that_allocates_more_memory_than_it_fills(content, place, problem):
    tracemalloc.start()
    with refused(DatasetError, file="x", place=place) as error:
        load_pickle(content, "x")
    assert problem in error.value.problem
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_tensor_of_more_entries_than_it_holds():
    content = pickle.dumps(torch.zeros(1).expand(1 << 40))
    with refused(DatasetError, value=1 << 40):
        load_pickle(content, "x")


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_are_read(protocol):
    value = {"a": np.arange(4), "b": [b"x" * 300, "text", "\u00e9\n", 1.5, 2**70, -1, None, True, (), np.float32(2)]}
    if protocol < 3:
        value["b"] = value["b"][1:]
    found = load_pickle(pickle.dumps(value, protocol), "x")
    assert found["b"] == value["b"]
    np.testing.assert_array_equal(found["a"], value["a"])
    long = load_pickle(pickle.dumps([[str(i), i] for i in range(3000)], protocol), "x")
    assert long[-1] == ["2999", 2999]


def test_the_official_split_file_is_read(mirror):
    splits = load_pickle((mirror / "peptides_func/splits_random_stratified_peptide.pickle").read_bytes(), "split")
    assert {part: len(ids) for part, ids in splits.items()} == {"train": 10873, "val": 2331, "test": 2331}
    with np.load(mirror / "peptides_func/peptides_func_ogb_graphs.npz") as raw:
        np.testing.assert_array_equal(splits["test"], raw["test_idx"])


VALUE = {"a": np.arange(4), "b": [torch.ones(2), "text", 1.5]}
# made once: the pickle of a tensor contains its address
CONTENTS = [pickle.dumps(VALUE), pickle.dumps(VALUE, 2), saved(VALUE["b"])]


@settings(max_examples=120)
@given(data=st.data())
def test_mutated_pickles_end_in_data_or_a_clean_error(data):
    content = bytearray(data.draw(st.sampled_from(CONTENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(content) - 1))
        content[where] = data.draw(st.integers(0, 255))
    for load in (load_pickle, load_torch):
        with contextlib.suppress(DatasetError):
            load(bytes(content), "x")
