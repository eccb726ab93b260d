"""Untrusted files: correct arrays or one clean error, fuzzed over npz, npy and tables."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.data.readers import both_directions, ids_to_split, masks_to_split, read_npz, read_table
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import mutated
from tests.refusals import refused


def test_npz(tmp_path):
    arrays = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "c": np.array(["x", "yy"]),
        "d": np.array(5),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    read = read_npz(tmp_path / "a.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
    assert list(read_npz(tmp_path / "a.npz", ["c"])) == ["c"]
    with refused(DatasetError, value="z", remedy="it has: a, b, c, d"):
        read_npz(tmp_path / "a.npz", ["z"])
    with refused(DatasetError, file=str(tmp_path / "a.npz")):
        read_npz(tmp_path / "a.npz", max_bytes=100)
    np.savez(tmp_path / "o.npz", o=np.array([{}, None], dtype=object))
    with refused(DatasetError, file=str(tmp_path / "o.npz"), place="array 'o'"):
        read_npz(tmp_path / "o.npz")


def test_an_npy_header_that_promises_more_than_there_is_allocates_nothing(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
    with refused(DatasetError, place="array 'a'"):
        read_npz(tmp_path / "a.npz")


def test_tables(tmp_path):
    (tmp_path / "t.tsv").write_text("x\ty\n1\t2\n\n3\t4\n")
    assert read_table(tmp_path / "t.tsv", 2) == [["1", "2"], ["3", "4"]]
    with refused(DatasetError, file=str(tmp_path / "t.tsv"), place="line 2", value=2):
        read_table(tmp_path / "t.tsv", 3)


@settings(max_examples=100)
@given(nodes=st.integers(1, 12), data=st.data())
def test_both_directions_is_the_symmetric_closure(nodes, data):
    edges = data.draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=30))
    for loops in (False, True):
        got = both_directions(np.array(edges, int).reshape(-1, 2).T, nodes, loops)
        want = {p for a, b in edges for p in ((a, b), (b, a)) if loops or a != b}
        assert list(map(tuple, got.T.tolist())) == sorted(want)
    with refused(DatasetError, value=nodes):
        both_directions(np.array([[0], [nodes]]), nodes)


@pytest.mark.parametrize(("ids", "wrong"), [([[0, 1], [1], [2]], 1), ([[0, 0], [1], [2]], 0), ([[0], [1], [5]], 5)])
def test_splits_refuse_overlaps(ids, wrong):
    with refused(DatasetError, value=wrong):
        ids_to_split(5, *map(np.array, ids))


def test_masks():
    with refused(DatasetError, problem="a node is in two parts of one split"):
        masks_to_split(np.array([1, 0]), np.array([1, 0]), np.array([0, 1]))
    assert masks_to_split(np.array([1, 0, 0]), np.array([0, 1, 0]), np.array([0, 0, 1])).tolist() == [1, 2, 3]


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_mutated_files_end_in_data_or_a_clean_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.arange(40), b=np.eye(3))
    kinds = {"a.npz": stream.getvalue(), "t.tsv": b"x\ty\n1\t2\n3\t4\n"}
    name = data.draw(st.sampled_from(sorted(kinds)))
    (folder / name).write_bytes(mutated(data, kinds[name]))
    read = {"a": lambda p: read_npz(p, max_bytes=1 << 20), "t": lambda p: read_table(p, 2)}[name[0]]
    try:
        value = read(folder / name)
    except DatasetError as caught:
        value = caught
    if isinstance(value, DatasetError):
        assert value.file == str(folder / name)
    elif name == "a.npz":
        assert all(array.nbytes <= 1 << 20 for array in value.values())
