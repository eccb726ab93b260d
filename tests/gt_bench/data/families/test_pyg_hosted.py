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


def edges(n, m=12):
    pairs = torch.randint(0, n, (2, m))
    return torch.unique(torch.cat([pairs, pairs.flip(0)], 1)[:, torch.cat([pairs[0] != pairs[1]] * 2)], dim=1)


def run(name, folder, member, content) -> PackedDataset:
    return made(get_spec(name), folder / "out", *zipped(folder / "file.zip", **{member: content}))


@pytest.mark.parametrize(("name", "signals", "classes"), [("pattern", 3, 2), ("cluster", 7, 6)])
def test_sbm(name, signals, classes, tmp_path):
    def graph(n):
        x = torch.nn.functional.one_hot(torch.randint(0, signals, (n,)), signals).float()
        return {"x": x, "edge_index": edges(n), "y": torch.randint(0, classes, (n,))}

    parts = [[graph(n) for n in sizes] for sizes in ((5, 9, 7), (4,), (6, 8))]
    dataset = run(name, tmp_path, f"{name.upper()}_v2.pt", saved(parts))
    assert [dataset.split(part, 0).tolist() for part in ("train", "val", "test")] == [[0, 1, 2], [3], [4, 5]]
    batch, data = dataset.batch(torch.tensor([4])), parts[2][0]
    assert torch.equal(batch.x[:, 0], data["x"].argmax(1))
    assert torch.equal(batch.y, data["y"])
    assert torch.equal(batch.edge_index, data["edge_index"])
    assert (dataset.header.metric, dataset.header.in_dim) == ("balanced-accuracy", [signals])


@pytest.mark.parametrize(("name", "colours"), [("mnist", 1), ("cifar10", 3)])
def test_superpixels(name, colours, tmp_path):
    def graph(n):
        e = torch.randint(0, n, (2, 8 * n))  # k nearest neighbours: directed
        return {
            "x": torch.rand(n, colours),
            "pos": torch.rand(n, 2),
            "edge_index": e,
            "edge_attr": torch.rand(8 * n),
            "y": torch.randint(0, 10, (1,)),
        }

    parts = [[graph(n) for n in (9, 12)], [graph(10)], [graph(11)]]
    dataset = run(name, tmp_path, f"{name.upper()}_v2.pt", saved(parts))
    batch, data = dataset.batch(torch.tensor([1])), parts[0][1]
    torch.testing.assert_close(batch.x, torch.cat([data["x"], data["pos"]], 1))
    torch.testing.assert_close(batch.edge_attr[:, 0], data["edge_attr"])
    assert batch.y.item() == data["y"].item()


def test_voc(tmp_path):
    def graph(n):
        e = edges(n)
        return torch.rand(n, 14, dtype=torch.float64), torch.rand(e.size(1), 2), e, torch.randint(0, 21, (n,)).tolist()

    parts = {part: [graph(n) for n in sizes] for part, sizes in (("train", (8, 9)), ("val", (7,)), ("test", (6, 5)))}
    spec = get_spec("pascalvoc-sp")
    members = {f"{spec.arguments['folder']}/{part}.pickle": pickle.dumps(graphs) for part, graphs in parts.items()}
    dataset = made(spec, tmp_path / "out", *zipped(tmp_path / "file.zip", **members))
    batch, data = dataset.batch(torch.tensor([3])), parts["test"][0]
    for found, place in ((batch.x, 0), (batch.edge_attr, 1)):  # mean and standard deviation of the training part
        training = torch.cat([g[place] for g in parts["train"]])
        expected = (data[place] - training.mean(0)) / training.std(0, correction=0)
        torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)
    assert batch.y.tolist() == data[3]


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
    with pytest.raises(DatasetError, match=r"posix.system|nt.system"):
        load_pickle(pickle.dumps({"train": Malicious()}), "x")
    with pytest.raises(DatasetError, match="not a readable file of tensors"):
        load_torch(saved([Malicious()]), "x")
    smuggled = pickle.dumps(torch.zeros(3)).replace(b"_rebuild_tensor_v2", b"_rebuild_parameter")
    with pytest.raises(DatasetError):
        load_pickle(smuggled, "x")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04Nr\xff\xff\xff\x0f.",  # LONG_BINPUT
        b"N}p268435455\n.",  # PUT
        b"Np" + b"9" * 30 + b"\n.",
        b"\x80\x05\x96\xff\xff\xff\xff\x00\x00\x00\x00.",  # BYTEARRAY8
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.",  # BINBYTES8
        b"\x80\x04\x8b\xff\xff\xff\x7f.",  # LONG4
        b"\x80\x04cnumpy\nndarray\n(I4294967296\ntR.",  # an array of four billion numbers
        b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I4294967296\nt\x8c\x01btR\x88b.",
    ],
)
def test_a_pickle_that_allocates_more_memory_than_it_fills(content):
    tracemalloc.start()
    with pytest.raises(DatasetError):
        load_pickle(content, "x")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_tensor_of_more_entries_than_it_holds():
    content = pickle.dumps(torch.zeros(1).expand(1 << 40))
    with pytest.raises(DatasetError, match="entries, more than it contains"):
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
