"""The safe unpickler of files that torch_geometric and others host."""

import contextlib
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.data.safe_pickle import load_pickle, load_torch
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import mutated
from tests.gt_bench.data.raw_files import Malicious, saved
from tests.refusals import refused


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
        (b"\x80\x04cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I4294967296\nt\x8c\x01btR\x88b.", "",
         "__setstate__"),
    ],
)  # fmt: skip
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
    content = mutated(data, data.draw(st.sampled_from(CONTENTS)))
    for load in (load_pickle, load_torch):
        with contextlib.suppress(DatasetError):
            load(content, "x")
