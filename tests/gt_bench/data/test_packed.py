"""Packed datasets: batches equal the packed graphs; damaged or contradictory data are one clear error."""

import json
import os
import shutil
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.data import packed
from gt_bench.data.packed import DatasetUnavailable, PackedDataset
from gt_bench.data.packed_writer import PackedWriter, compact, pack, replace_folder
from gt_bench.data.prepare import prepare
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import WriteError
from tests.gt_bench.conftest import header_of
from tests.gt_bench.data.checks import mutated
from tests.refusals import refused

HEADER = header_of("toy", "graph-regression", in_dim=2, edge_dim=[4])


def random_graphs(count: int, seed: int = 0) -> tuple[dict, list[dict]]:
    rng = np.random.default_rng(seed)
    graphs = []
    for _ in range(count):
        n, m = int(rng.integers(1, 9)), int(rng.integers(0, 12))
        graph = {"x": rng.normal(size=(n, 2)).astype(np.float32), "edge_index": rng.integers(0, n, (2, m))}
        graphs.append(graph | {"edge_attr": rng.integers(0, 4, (m, 1)), "y": rng.normal(size=1).astype(np.float32)})
    joined = {key: np.concatenate([g[key] for g in graphs], int(key == "edge_index")) for key in graphs[0]}
    sizes = {"num_nodes": [len(g["x"]) for g in graphs], "num_edges": [len(g["edge_attr"]) for g in graphs]}
    arrays = sizes | joined | {"split": rng.integers(0, 4, (1, count))}
    return arrays, graphs


@pytest.fixture
def toy(tmp_path):
    arrays, graphs = random_graphs(20)
    pack(tmp_path / "toy", HEADER, arrays)
    return PackedDataset.open(tmp_path / "toy"), graphs, arrays


@pytest.mark.parametrize("ids", [[3], [0, 1, 2], list(range(20)), [7, 2, 2, 19, 0], []])
def test_batch_is_the_graphs_one_after_the_other(toy, ids):
    dataset, graphs, _ = toy
    batch = dataset.batch(torch.tensor(ids, dtype=torch.long))
    assert batch.num_graphs == len(ids)
    for position, g in enumerate(ids):
        span = slice(int(batch.ptr[position]), int(batch.ptr[position + 1]))
        np.testing.assert_array_equal(batch.x[span], graphs[g]["x"])
        edges = (batch.edge_index[0] >= span.start) & (batch.edge_index[0] < span.stop)
        np.testing.assert_array_equal(batch.edge_index[:, edges] - span.start, graphs[g]["edge_index"])
        np.testing.assert_array_equal(batch.edge_attr[edges], graphs[g]["edge_attr"])
        assert batch.y[position] == graphs[g]["y"][0]
    assert batch.x.dtype == torch.float32
    assert batch.edge_attr.dtype == torch.long


def test_split_parts_are_what_was_packed(toy):
    dataset, _, arrays = toy
    for code, part in enumerate(("train", "val", "test"), 1):
        np.testing.assert_array_equal(dataset.split(part, 0), np.flatnonzero(arrays["split"][0] == code))
    with refused(DatasetError, value=1):
        dataset.split("train", 1)
    with refused(DatasetError, value="valid"):
        dataset.split("valid", 0)
    with pytest.raises(IndexError, match=r"0\.\.19"):
        dataset.batch(torch.tensor([20]))


def test_bytes_and_digest_do_not_depend_on_when_or_where(tmp_path):
    arrays, _ = random_graphs(20)
    for place in ("a", "b/c"):
        pack(tmp_path / place, HEADER, arrays)
    for file in ("header.json", "data.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b/c" / file).read_bytes()
    first = PackedDataset.open(tmp_path / "a").digest
    arrays["y"][0] += 1
    pack(tmp_path / "a", HEADER, arrays)
    assert PackedDataset.open(tmp_path / "a").digest != first
    notes = HEADER.model_copy(update={"notes": ["seen"], "provenance": {"spec": "x"}})
    assert notes.digest == HEADER.digest
    assert HEADER.model_copy(update={"metric": "rmse"}).digest != HEADER.digest


def test_block_by_block_gives_the_same_file(tmp_path):
    arrays, graphs = random_graphs(20)
    pack(tmp_path / "whole", HEADER, arrays)
    with PackedWriter(tmp_path / "blocks") as writer:
        for g in graphs:
            parts = {name: compact(array) for name, array in g.items()} | {
                "edge_index": g["edge_index"].astype(np.uint8)
            }
            writer.graphs(num_nodes=[len(g["x"])], num_edges=[len(g["edge_attr"])], **parts)
        writer.append("split", arrays["split"].astype(np.uint8))
        writer.finish(HEADER)
    assert (tmp_path / "whole/data.safetensors").read_bytes() == (tmp_path / "blocks/data.safetensors").read_bytes()


def test_safetensors_itself_reads_the_file_and_it_is_mapped_not_loaded(tmp_path):
    import psutil
    from safetensors.torch import load_file

    arrays, _ = random_graphs(20)
    pack(tmp_path / "toy", HEADER, arrays)
    loaded = load_file(tmp_path / "toy/data.safetensors")
    np.testing.assert_array_equal(loaded["x"], arrays["x"])

    nodes = 3_000_000  # 24 MB of features
    header = header_of("big", "node-classification", in_dim=2, out_dim=2, num_splits=0)
    big = {"num_nodes": [2] * (nodes // 2), "num_edges": [0] * (nodes // 2), "x": np.zeros((nodes, 2), np.float32)}
    pack(tmp_path / "big", header, big | {"edge_index": np.zeros((2, 0), int), "y": np.zeros(nodes, int)})
    before = psutil.Process().memory_info().rss
    dataset = PackedDataset.open(tmp_path / "big")
    dataset.batch(torch.arange(100_000, 101_000))
    assert psutil.Process().memory_info().rss - before < 10 << 20


def flip_labels(folder):
    """Change all labels of a packed dataset in place: same length, same header."""
    path = folder / "data.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    low, high = json.loads(content[8:start])["y"]["data_offsets"]
    content[start + low : start + high] = bytes(b ^ 1 for b in content[start + low : start + high])
    with open(path, "r+b") as file:
        file.write(content)


@pytest.mark.parametrize("keep_mtime", [False, True])
def test_other_bytes_of_the_same_length_are_found(toy, tmp_path, keep_mtime):
    folder, path = tmp_path / "toy", tmp_path / "toy/data.safetensors"
    before = path.stat()
    flip_labels(folder)
    if keep_mtime:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    again = f"prepare it again: python -m stages.download toy --data-root {tmp_path.parent}"
    with refused(DatasetError, file=str(folder), remedy=again):
        PackedDataset.open(folder)
    flip_labels(folder)
    PackedDataset.open(folder)


def test_the_content_is_read_again_only_when_the_file_has_changed(toy, tmp_path, monkeypatch):
    path, read = tmp_path / "toy/data.safetensors", []
    whole = packed.file_digest
    monkeypatch.setattr(packed, "file_digest", lambda path: read.append(path) or whole(path))
    PackedDataset.open(tmp_path / "toy")
    assert read == []  # the fixture opened it
    # a further file in this folder would trigger DVC stages
    assert sorted(p.name for p in path.parent.iterdir()) == ["data.safetensors", "header.json"]
    os.utime(path, (1, 1))
    for _ in range(2):
        PackedDataset.open(tmp_path / "toy")
    assert read == [path]
    (tmp_path / ".toy.checked.json").write_text("damaged")
    PackedDataset.open(tmp_path / "toy")
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)  # another inode
    PackedDataset.open(tmp_path / "toy")
    assert read == [path] * 3
    monkeypatch.setattr("gt_bench.utils.io.write_json", mock.Mock(side_effect=WriteError("read-only")))
    os.utime(path, (2, 2))
    PackedDataset.open(tmp_path / "toy")


@pytest.mark.parametrize(
    "change", [{"metric": "mse"}, {"in_dim": 3}, {"notes": ["well"]}, {"header_sha256": ""}, {"data_sha256": "0" * 64}]
)
def test_an_edited_header_is_found(change, toy, tmp_path):
    path = tmp_path / "toy/header.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refused(DatasetError, problem="damaged (header.json was edited, or is of an older version)"):
        PackedDataset.open(tmp_path / "toy")


def test_damaged_data_are_prepared_again_by_the_stage(tmp_path):
    messages, first = [], prepare("chains", tmp_path)
    # shipped records from before `header_sha256` existed remain valid
    assert first.header.digest == "4787da466597847d122118a956b28ce11449205051b6a04e5eab9eba8a60b21f"
    folder = first.folder
    content = (folder / "data.safetensors").read_bytes()
    flip_labels(folder)
    assert prepare("chains", tmp_path, say=messages.append).state == "packed"
    assert messages == [f"{folder}: damaged (the content of data.safetensors does not match its header)"]
    assert (folder / "data.safetensors").read_bytes() == content
    assert prepare("chains", tmp_path).state == "up to date"


@pytest.mark.parametrize(
    ("change", "place", "value"),
    [
        ({"edge_index": np.full((2, 0), 0)}, "array 'source'", 0),
        ({"split": np.full((1, 20), 7)}, "array 'split'", None),
        ({"split": np.full((2, 20), 1)}, "array 'split'", None),
        ({"split": np.full((1, 19), 1)}, "array 'split'", 19),
        ({"y": np.full(20, np.inf, np.float32)}, "array 'y'", None),
        ({"y": np.zeros(21, np.float32)}, "array 'y'", 21),
        ({"x": "nan"}, "array 'x'", None),
        ({"edge_attr": "category"}, "array 'edge_attr': column 0", 4),
        ({"edge_index": "outside"}, "graphs 0..19", None),
    ],
)
def test_contradictions_are_errors_and_leave_no_trace(tmp_path, change, place, value):
    arrays, _ = random_graphs(20)
    for name, array in change.items():
        if isinstance(array, str):
            arrays[name] = arrays[name].copy()
            arrays[name].flat[0] = {"nan": np.nan, "category": 4, "outside": 9}[array]
        else:
            arrays[name] = array
    with refused(DatasetError, place=place, value=value):
        pack(tmp_path / "toy", HEADER, arrays)
    assert list(tmp_path.iterdir()) == []


def full(*arguments):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("disk_is_full", [True, False])
def test_a_failed_pack_keeps_the_old_folder(toy, tmp_path, disk_is_full, monkeypatch):
    before = (tmp_path / "toy/header.json").read_bytes()
    if disk_is_full:
        monkeypatch.setattr("gt_bench.data.packed_writer.shutil.copyfileobj", full)
    arrays = toy[2] | ({} if disk_is_full else {"y": np.zeros(3, np.float32)})
    with pytest.raises(WriteError if disk_is_full else DatasetError):
        pack(tmp_path / "toy", HEADER, arrays)
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["toy"]
    assert (tmp_path / "toy/header.json").read_bytes() == before
    PackedDataset.open(tmp_path / "toy").verify()


BAD_NAMES = ["", ".", "..", "../evil", "a/b", "/etc", ".hidden", "a\nb", "x" * 300]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_dataset_is_never_named_like_a_path(name, tmp_path):
    with refused(DatasetError, value=name):
        DatasetSpec(name=name, task="node-classification", metric="accuracy", prepare=print)
    grid = {"datasets": [name], "suites": [], "cells": {}}
    (tmp_path / "params.yaml").write_text(json.dumps(grid))
    with pytest.raises(RecipeError, match="invalid name"):
        load_grid(tmp_path / "params.yaml")
    with refused(DatasetError, value=name):
        prepare(name, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


@pytest.mark.parametrize(
    ("name", "value"), [("", None), (".", None), ("..", ".."), ("../evil", "evil"), ("../../evil", "evil")]
)
def test_other_folders_are_never_replaced(name, value, toy, tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/kept").touch()
    packed, new = tmp_path / "data/packed", tmp_path / "new"
    for folder in (packed / "other", new):
        folder.mkdir(parents=True)
        (folder / "header.json").touch()
    with refused(DatasetError, file=str(packed / name), value=value) as error:
        replace_folder(new, packed / name)
    expected = "not a dataset's folder" if value else "contains more than a packed dataset and was not changed"
    assert error.value.problem == expected
    assert (packed / "other/header.json").exists()
    assert (tmp_path / "evil/kept").exists()
    with refused(DatasetError, file=str(tmp_path / "data")):
        replace_folder(new, tmp_path / "data")
    assert new.exists()


def test_missing_and_unavailable_datasets_have_a_remedy(tmp_path):
    remedy = f"run: python -m stages.download nowhere --data-root {tmp_path.parent}"
    with refused(DatasetUnavailable, file=str(tmp_path / "nowhere"), remedy=remedy):
        PackedDataset.open(tmp_path / "nowhere")
    (tmp_path / "gone").mkdir()
    tried = [{"source": "http://x", "error": "silence"}]
    note = {"dataset": "gone", "reason": "no host answers", "tried": tried, "remedy": "cp FILE here"}
    (tmp_path / "gone/unavailable.json").write_text(json.dumps(note))
    problem = "is not available: no host answers\n  http://x: silence"
    with refused(DatasetUnavailable, file="dataset 'gone'", problem=problem, remedy="cp FILE here"):
        PackedDataset.open(tmp_path / "gone")
    (tmp_path / "gone/unavailable.json").write_text("[]")
    with refused(DatasetError, file=str(tmp_path / "gone/unavailable.json")):
        PackedDataset.open(tmp_path / "gone")


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_mutated_files_end_in_the_right_data_or_a_clean_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz") / "toy"
    arrays, _ = random_graphs(5)
    pack(folder, HEADER, arrays)
    path = folder / data.draw(st.sampled_from(["header.json", "data.safetensors"]))
    path.write_bytes(mutated(data, path.read_bytes(), within=900))
    try:
        dataset = PackedDataset.open(folder)
        dataset.verify()
    except DatasetError:
        return
    assert dataset.header.data_sha256
    assert dataset.num_graphs == 5
