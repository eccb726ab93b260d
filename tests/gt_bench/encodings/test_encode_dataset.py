"""The stage `encode`: cached encodings, rows by graph ids, changes of data and versions, damaged files.

Digests do not depend on last digits, and last digits do not depend on threads and processes.
"""

import hashlib
import json
import multiprocessing
import os
import re
import signal
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from threadpoolctl import threadpool_limits

from gt_bench.config.grid import load_grid
from gt_bench.data.packed import PackedDataset, PackedHeader
from gt_bench.data.packed_writer import pack
from gt_bench.encodings import cache
from gt_bench.encodings import compute as encoding
from gt_bench.encodings import encode_dataset as stage
from gt_bench.encodings.cache import EncodedDataset, encodings_digest
from gt_bench.encodings.compute import encode
from gt_bench.utils.errors import DatasetError
from gt_models.encodings import ENCODINGS, EncodingError, compute, laplacian
from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.encodings.graphs import of_networkx

SIZES = (5, 3, 9, 1, 6, 6)


@pytest.fixture
def packed(tmp_path):
    return make_packed(tmp_path / "data/packed/tiny")


def make_packed(folder, seed=0, graphs=None):
    graphs = graphs or random_graphs(SIZES, in_dim=2, density=0.4, seed=seed)
    sizes = [g.num_nodes for g in graphs]
    edges = np.concatenate([g.edge_index.numpy() for g in graphs], 1)
    header = PackedHeader(
        name=folder.name,
        task="graph-regression",
        metric="mae",
        level="graph",
        in_dim=graphs[0].x.size(1),
        out_dim=1,
        split_kind="graph",
        num_splits=1,
    )
    pack(folder, header, {
        "num_nodes": sizes, "num_edges": [g.num_edges for g in graphs], "edge_index": edges,
        "x": np.concatenate([g.x.numpy() for g in graphs]),
        "y": np.arange(len(sizes), dtype=np.float32), "split": np.array([[1] * (len(sizes) - 2) + [2, 3]]),
    })  # fmt: skip
    return PackedDataset.open(folder)


def folder_of(packed):
    return packed.folder.parent.parent / "encodings" / packed.header.name


def default_arguments(name):
    names = ENCODINGS[name].parameters
    return {
        key: value for key, value in {"steps": 4, "k": 4, "count": 1, "degree": 3, "columns": 2}.items() if key in names
    }


@pytest.mark.slow
@pytest.mark.parametrize("limit", [cache.STORE_LIMIT, 1])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_attach_gives_what_computing_the_graphs_gives(packed, name, limit, monkeypatch):
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 60)
    arguments = default_arguments(name)
    encode(packed, folder_of(packed), name, arguments, limit=limit)
    dataset = EncodedDataset(packed, folder_of(packed), {name: arguments})
    for order in ([0, 1, 2, 3, 4, 5], [4, 0, 2], [2, 3], [3], [5, 5, 1]):
        graphs = torch.tensor(order)
        batch = dataset.attach(packed.batch(graphs), graphs)
        singles = [packed.batch(g[None]) for g in graphs]
        assert list(batch.encodings) == list(ENCODINGS[name].arrays)
        for array in ENCODINGS[name].arrays:
            if array in ENCODINGS[name].offsets:
                expected = compute(name, collate(singles), **arguments)[array]
            else:
                expected = torch.cat(
                    [compute(name, s, graphs=g[None], **arguments)[array] for s, g in zip(singles, graphs)]
                )
            assert batch.encodings[array].dtype == expected.dtype
            torch.testing.assert_close(batch.encodings[array], expected, rtol=1e-5, atol=1e-6)


def test_two_encodings_for_one_array_are_refused(packed):
    for name in ("orthogonal", "random"):
        encode(packed, folder_of(packed), name, {"k": 4})
    with pytest.raises(EncodingError, match="encodings 'orthogonal' and 'random' both provide 'node_identifiers'"):
        EncodedDataset(packed, folder_of(packed), {"orthogonal": {"k": 4}, "random": {"k": 4}})


def test_small_batches_while_encoding_change_no_more_than_rounding(packed, monkeypatch):
    path = encode(packed, folder_of(packed), "rrwp", {"steps": 4})
    whole = load_file(path)["rrwp"]
    path.unlink()
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 30)
    torch.testing.assert_close(
        load_file(encode(packed, folder_of(packed), "rrwp", {"steps": 4}))["rrwp"], whole, rtol=0, atol=1e-7
    )


def test_files_are_the_same_bytes_every_time(packed):
    for name in ("rrwp", "laplacian", "shortest-path", "orthogonal"):
        path = encode(packed, folder_of(packed), name, default_arguments(name))
        content = path.read_bytes()
        path.unlink()
        assert encode(packed, folder_of(packed), name, default_arguments(name)).read_bytes() == content


def test_second_call_keeps_the_file(packed, capsys):
    path = encode(packed, folder_of(packed), "rwse", {"steps": 3})
    stamp = path.stat().st_mtime_ns
    assert encode(packed, folder_of(packed), "rwse", {"steps": 3}) == path
    assert path.stat().st_mtime_ns == stamp
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"tiny: rwse-steps=3: 6 graphs, 0\.0 MiB, \d+\.\d s", first)
    assert second.endswith("up to date, 0.0 MiB")


TREES = [nx.random_labeled_tree(n, seed=n) for n in (183, 40, 120)] + [nx.cycle_graph(30)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dense_size"),
    [("laplacian", 1500), ("laplacian", 100), ("rwse", 1500), ("orthogonal", 1500), ("rrwp", 1500)],
)
def test_the_number_of_threads_decides_no_bit(tmp_path, monkeypatch, name, dense_size):
    """LAPACK distributes a matrix of this size over threads, as numpy's BLAS does with Lanczos vectors."""
    monkeypatch.setattr(laplacian, "_DENSE_SIZE", dense_size)
    packed = make_packed(tmp_path / "data/packed/trees", graphs=[of_networkx(tree) for tree in TREES])
    arguments = {"rrwp": {"steps": 4, "squaring": True, "identity": False}, "rwse": {"steps": 20}}.get(name, {"k": 20})
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with threadpool_limits(count):
                path = encode(packed, folder_of(packed), name, arguments)
            assert torch.get_num_threads() == count
            found.append(path.read_bytes())
            path.unlink()
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_the_number_of_processes_decides_no_bit(packed, monkeypatch):
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 30)
    found = []
    for jobs, start in (
        (1, "spawn"),
        (2, "spawn"),
        (4, "fork"),
    ):  # fork is faster; the stage itself spawns, because its libraries have threads
        monkeypatch.setattr(encoding, "_START", start)
        path = encode(packed, folder_of(packed), "laplacian", {"k": 3}, jobs=jobs)
        found.append(path.read_bytes())
        path.unlink()
    assert found[0] == found[1] == found[2]


def test_the_default_number_of_processes_respects_the_cpu_quota_of_the_control_group(packed, monkeypatch):
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 30)
    monkeypatch.setattr(encoding, "_WORTH_PROCESSES", -1.0)  # processes are always worth their start
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr("gt_bench.encodings.compute.cores", lambda: 2)  # what the control group grants
    used = []
    monkeypatch.setattr(encoding._Task, "each", lambda self, ranges, jobs: used.append(jobs) or map(self.run, ranges))
    encode(packed, folder_of(packed), "degree", {})
    assert used == [2]


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_named_and_leaves_no_file(packed, monkeypatch):
    monkeypatch.setattr(cache, "_PAIRS_PER_BATCH", 30)
    monkeypatch.setattr(encoding, "_run_in_worker", die)
    monkeypatch.setattr(encoding, "_START", "fork")
    with pytest.raises(
        DatasetError, match=r"tiny: encoding rwse: a process was killed, probably out of memory; .* tiny --jobs 1"
    ):
        encode(packed, folder_of(packed), "rwse", {"steps": 3}, jobs=2)
    assert list(folder_of(packed).iterdir()) == []


def header_of(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["header"])


def rewrite(path, change=lambda header, arrays: None):
    """Rewrites a file after `change` of its header and its arrays (as bytes), with valid digests."""
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    table, arrays = json.loads(content[8:size]), bytearray(content[size:])
    header = json.loads(table.pop("__metadata__")["header"])
    for name, entry in table.items():
        assert header["arrays"][name]["sha256"] == hashlib.sha256(arrays[slice(*entry["data_offsets"])]).hexdigest()
    change(header, arrays)
    header = cache.sealed(header) if "sha256" in header else header
    path.write_bytes(encoding._preamble(table, header, size) + arrays)
    return header


def test_the_digest_is_of_what_is_computed_and_not_of_bits(packed, tmp_path):
    def last_digits(header, arrays):
        arrays[0] ^= 1
        for name, entry in header["arrays"].items():
            size = 4 * np.prod(entry["shape"])
            if name == min(header["arrays"]):
                entry["sha256"] = hashlib.sha256(arrays[:size]).hexdigest()

    requests = {"laplacian": {"k": 3}, "rwse": {"steps": 2}}
    expected = encodings_digest(packed, requests)  # nothing is computed yet
    paths = [encode(packed, folder_of(packed), name, arguments) for name, arguments in requests.items()]
    assert EncodedDataset(packed, folder_of(packed), requests).digest == expected
    before = {name: array.clone() for name, array in load_file(paths[0]).items()}
    rewrite(paths[0], last_digits)  # as with another LAPACK
    assert any(not torch.equal(before[name], array) for name, array in load_file(paths[0]).items())
    assert EncodedDataset(packed, folder_of(packed), requests).digest == expected
    stamp = paths[0].stat().st_mtime_ns
    assert encode(packed, folder_of(packed), "laplacian", {"k": 3}).stat().st_mtime_ns == stamp
    other = make_packed(tmp_path / "data/packed/other", seed=1)
    different = [
        {"laplacian": {"k": 4}, "rwse": {"steps": 2}},
        {"laplacian": {"k": 3}},
        {"laplacian": {"k": 3, "which": "both"}, "rwse": {"steps": 2}},
    ]
    assert len({expected, encodings_digest(other, requests), *(encodings_digest(packed, r) for r in different)}) == 5


def test_a_digest_that_the_header_does_not_give_is_refused(packed):
    path = encode(packed, folder_of(packed), "rwse", {"steps": 3})
    rewrite(path, lambda header, arrays: header.update(digest="0" * 64))
    with pytest.raises(DatasetError, match="out of date: algorithm changed; run: python -m stages.encode tiny"):
        EncodedDataset(packed, folder_of(packed), {"rwse": {"steps": 3}})


def test_the_header_states_which_library_decided_last_digits_and_what_is_not_unique(tmp_path, capsys):
    packed = make_packed(
        tmp_path / "data/packed/trees", graphs=[of_networkx(graph) for graph in (*TREES, nx.path_graph(4))]
    )
    laplacian = header_of(encode(packed, folder_of(packed), "laplacian", {"k": 2}))
    assert laplacian["flags"] == {"repeated_eigenvalue": 1}  # the cycle
    assert "repeated eigenvalue in 1 of the graphs: their vectors are chosen by a fixed rule" in capsys.readouterr().out
    # Polynormer-v2's encoding too
    assert header_of(encode(packed, folder_of(packed), "second-eigenvector", {}))["flags"] == {"repeated_eigenvalue": 1}
    assert laplacian["computed_by"]["torch"].startswith(f"{torch.__version__}, ")
    assert not {"flags", "computed_by"} & header_of(encode(packed, folder_of(packed), "degree", {})).keys()
    dataset = EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 2}, "degree": {}})
    assert dataset.computed_by == {
        "laplacian-k=2-normalization=sym-which=lowest": {
            "computed_by": laplacian["computed_by"],
            "flags": {"repeated_eigenvalue": 1},
        }
    }


def test_what_killed_writers_left_is_swept(packed, tmp_path):
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}"})
    folder, old = folder_of(packed), time.time() - 7200
    left = [
        folder / ".rwse-steps=2.safetensors.abcd_123",
        folder / ".rwse-steps=9.json.abcd1234",
        folder / "cells/.s-tiny-a.json.abcd1234",
    ]
    busy, new, foreign = (
        folder / ".order.safetensors.abcd1234",
        folder / "cells/.s-tiny-b.json.abcd1234",
        folder / ".notes",
    )
    (folder / "cells").mkdir(parents=True)
    for path in (*left, busy, new, foreign):
        path.touch()
    os.utime(left[2], (old, old))
    (folder.parent / ".locks").mkdir()
    with FileLock(folder.parent / ".locks/tiny-order.lock"):  # its writer is running
        assert run(tmp_path) == 0
        assert [path.exists() for path in (*left, busy, new, foreign)] == [False] * 3 + [True] * 3
    assert run(tmp_path) == 0
    assert not busy.exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_that_is_none_is_refused(packed, tmp_path, capsys, jobs):
    make_grid(tmp_path, {"a": "{}"})
    with pytest.raises(SystemExit):
        run(tmp_path, "--jobs", jobs)
    assert f"'{jobs}' is not a number of processes: use 1 or more" in capsys.readouterr().err


def test_on_the_fly_is_reported_and_has_a_digest_of_the_algorithm(packed, capsys):
    path = encode(packed, folder_of(packed), "rrwp", {"steps": 4}, limit=1)
    assert path.suffix == ".json"
    assert (
        "computed for each batch on its device: it would use 0.0 MiB on disk, more than the limit of 0.0 MiB"
        in capsys.readouterr().out
    )
    there = EncodedDataset(packed, folder_of(packed), {"rrwp": {"steps": 4}}).digest
    encode(packed, folder_of(packed), "rrwp", {"steps": 5}, limit=1)
    assert EncodedDataset(packed, folder_of(packed), {"rrwp": {"steps": 5}}).digest != there
    encode(packed, folder_of(packed), "rrwp", {"steps": 4})
    assert not path.exists()
    assert EncodedDataset(packed, folder_of(packed), {"rrwp": {"steps": 4}}).digest != there


def test_stale_when_the_data_change(packed, capsys):
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    other = make_packed(packed.folder, seed=1)
    with pytest.raises(DatasetError, match=r"out of date: data changed; run: python -m stages.encode tiny"):
        EncodedDataset(other, folder_of(other), {"laplacian": {"k": 3}})
    encode(other, folder_of(other), "laplacian", {"k": 3})
    assert "computed again: its data changed" in capsys.readouterr().out
    EncodedDataset(other, folder_of(other), {"laplacian": {"k": 3}})


def test_stale_when_the_version_changes(packed, monkeypatch, capsys):
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    monkeypatch.setattr(cache, "version_of", lambda module: 2)
    with pytest.raises(DatasetError, match="out of date: algorithm changed"):
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert "computed again: its algorithm changed" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "flip", "library", "key", "seal"])
def test_a_damaged_file_is_named_and_computed_again(packed, damage, capsys):
    path = encode(packed, folder_of(packed), "laplacian", {"k": 3})
    good = path.read_bytes()

    def flipped(place: int) -> bytes:
        return good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]

    bad = {
        "cut": good[:-8], "header": b"\xff" * 64 + good[64:], "empty": b"", "flip": flipped(-2 % len(good)),
        "library": flipped(good.index(b"numpy")), "key": flipped(good.index(b"computed_by")),
        "seal": flipped(good.rindex(b'sha256\\": \\"') + 1),
    }[damage]  # fmt: skip
    path.write_bytes(bad)
    with pytest.raises(DatasetError, match=r"laplacian.*damaged.*run: python -m stages.encode tiny"):
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert "computed again" in capsys.readouterr().out
    assert path.read_bytes() == good


def test_the_arrays_are_read_again_only_when_their_file_has_changed(packed, monkeypatch):
    path, read = encode(packed, folder_of(packed), "laplacian", {"k": 3}), []
    whole = cache.damaged
    monkeypatch.setattr(cache, "damaged", lambda *arguments: read.append(1) or whole(*arguments))
    for _ in range(2):
        EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    assert len(read) == 1
    os.utime(path, (1, 1))
    EncodedDataset(packed, folder_of(packed), {"laplacian": {"k": 3}})
    assert len(read) == 2
    assert [p for p in folder_of(packed).iterdir()] == [path]  # a change in this folder would run DVC stages


def test_a_failed_computation_leaves_no_file(packed, monkeypatch):
    monkeypatch.setattr(
        encoding, "compute_with_flags", lambda *a, **k: (_ for _ in ()).throw(ArithmeticError("no convergence"))
    )
    with pytest.raises(ArithmeticError):
        encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert [p for p in folder_of(packed).rglob("*") if p.is_file()] == []


def test_missing_encoding_states_which_command(packed):
    with pytest.raises(
        DatasetError, match=r"tiny: the encoding rwse-steps=4 has not been computed; run: python -m stages.encode tiny"
    ):
        EncodedDataset(packed, folder_of(packed), {"rwse": {"steps": 4}})


def test_nothing_requested_is_fine(packed):
    batch = packed.batch(torch.arange(2))
    assert EncodedDataset(packed, folder_of(packed), {}).attach(batch, torch.arange(2)).encodings == {}


def encode_in_process(folder, queue):
    torch.set_num_threads(1)
    dataset = PackedDataset.open(folder)
    queue.put(encode(dataset, folder_of(dataset), "laplacian", {"k": 3}).stat().st_mtime_ns)


def test_two_processes_do_the_work_once(packed):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=encode_in_process, args=(packed.folder, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    stamps = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert stamps[0] == stamps[1]


RECIPE = """
model: {{name: mlp}}
encodings: {encodings}
optimizer: {{lr: 0.1}}
epochs: 1
seeds: [0]
"""


def make_grid(root, recipes, datasets=("tiny",)):
    cells = "".join(
        f"  s-tiny-{m}: {{cell: s/tiny/{m}, dataset: tiny, model: {m}, settings: recipes}}\n" for m in recipes
    )
    (root / "params.yaml").write_text(f"datasets: [{', '.join(datasets)}]\nsuites: [s]\ncells:\n{cells}")
    for model, encodings in recipes.items():
        path = root / f"suites/s/recipes/tiny/{model}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECIPE.format(encodings=encodings))
    return load_grid(root / "params.yaml")


def run(root, *more):
    return stage.main(["tiny", "--data-root", str(root / "data"), "--params", str(root / "params.yaml"), *more])


def test_adding_an_encoding_touches_no_other_cell(packed, tmp_path):
    make_grid(tmp_path, {"a": "{rrwp: {steps: 3}}", "b": "{rrwp: {steps: 3}, laplacian: {k: 2}}", "c": "{}"})
    assert run(tmp_path) == 0
    cells = folder_of(packed) / "cells"
    before = {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder_of(packed).rglob("*")) if p.is_file()
    }
    rrwp = "rrwp-dual=false-edges=all-identity=true-normalization=rw-squaring=false-steps=3"
    assert list(json.loads((cells / "s-tiny-a.json").read_text())) == [rrwp]
    assert list(json.loads((cells / "s-tiny-b.json").read_text())) == [
        "laplacian-k=2-normalization=sym-which=lowest",
        rrwp,
    ]
    assert json.loads((cells / "s-tiny-c.json").read_text()) == {}
    make_grid(
        tmp_path, {"a": "{rrwp: {steps: 3}, rwse: {steps: 2}}", "b": "{rrwp: {steps: 3}, laplacian: {k: 2}}", "c": "{}"}
    )
    assert run(tmp_path) == 0
    after = {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder_of(packed).rglob("*")) if p.is_file()
    }
    assert {n for n in after if before.get(n) != after[n]} == {"s-tiny-a.json", "rwse-steps=2.safetensors"}


def test_what_nothing_asks_for_is_listed_and_pruned_on_request(packed, tmp_path, capsys):
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}", "b": "{}"})
    run(tmp_path)
    make_grid(tmp_path, {"a": "{}"})
    assert run(tmp_path) == 0
    assert "rwse-steps=2.safetensors: no recipe requests it; --prune deletes it" in capsys.readouterr().out
    assert (folder_of(packed) / "rwse-steps=2.safetensors").exists()
    assert not (folder_of(packed) / "cells/s-tiny-b.json").exists()
    assert run(tmp_path, "--prune") == 0
    assert not (folder_of(packed) / "rwse-steps=2.safetensors").exists()


def test_unavailable_dataset_becomes_a_reason_per_cell(tmp_path, capsys):
    folder = tmp_path / "data/packed/tiny"
    folder.mkdir(parents=True)
    (folder / "unavailable.json").write_text(
        json.dumps({"dataset": "tiny", "reason": "no source", "tried": [], "remedy": "place it by hand"})
    )
    make_grid(tmp_path, {"a": "{rwse: {steps: 2}}"})
    assert run(tmp_path) == 0
    content = json.loads((tmp_path / "data/encodings/tiny/cells/s-tiny-a.json").read_text())
    assert list(content) == ["unavailable"]
    assert "no source" in content["unavailable"]
    assert "place it by hand" in capsys.readouterr().out


def test_search_over_an_encodings_arguments_computes_all_of_them(packed, tmp_path):
    make_grid(
        tmp_path, {"a": "{rwse: {steps: 2}}\nsearch: {trials: 2, space: {encodings.rwse.steps: {choices: [2, 3]}}}"}
    )
    assert run(tmp_path) == 0
    assert sorted(p.name for p in folder_of(packed).glob("*.safetensors")) == [
        "rwse-steps=2.safetensors",
        "rwse-steps=3.safetensors",
    ]


@pytest.mark.parametrize(
    ("encodings", "message"),
    [
        (
            "{rrpw: {steps: 2}}",
            r"suites/s/recipes/tiny/a.yaml: encodings: no encoding named 'rrpw' \(did you mean 'rrwp'\?\)",
        ),
        ("{rrwp: {step: 2}}", r"encoding 'rrwp' has no argument 'step' \(did you mean 'steps'\?\)"),
        ("{rrwp: {}}", "encoding 'rrwp' needs the argument 'steps'"),
        ("{rrwp: {steps: two}}", "encoding 'rrwp': steps must be int, not 'two'"),
        ("{rrwp: {steps: true}}", "encoding 'rrwp': steps must be int, not True"),
        ("{rrwp: {steps: 0}}", "encoding 'rrwp': steps must be at least 1, not 0"),
        ("{laplacian: {k: 2, which: middle}}", "which must be one of 'lowest', 'highest', 'both', not 'middle'"),
    ],
)
def test_wrong_request_names_file_key_and_nearest(packed, tmp_path, capsys, encodings, message):
    make_grid(tmp_path, {"a": encodings})
    assert run(tmp_path) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not folder_of(packed).exists()


def test_unknown_dataset_names_the_nearest(packed, tmp_path, capsys):
    make_grid(tmp_path, {"a": "{}"})
    assert stage.main(["tyni", "--params", str(tmp_path / "params.yaml")]) == 1
    assert "no dataset 'tyni' in grid.yaml (did you mean 'tiny'?)" in capsys.readouterr().err


def test_a_recipe_that_cannot_be_read_is_named_and_keeps_no_other_cell_from_its_encodings(project, capsys):
    asks = {
        "encodings": {"laplacian": {"k": 2}},
        "model": {"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2},
    }
    for row in ("mlp", "other"):
        project.recipe(row=row, **asks)
    grid, cells = load_grid(), Path("data/encodings/web/cells")
    stage.encode_dataset("web", grid)
    before = (cells / "small-web-mlp.json").read_bytes()
    assert (cells / "small-web-other.json").read_bytes() == before
    Path("suites/small/recipes/web/other.yaml").write_text("model: [")
    capsys.readouterr()
    stage.encode_dataset("web", grid)
    said = capsys.readouterr()
    assert (cells / "small-web-mlp.json").read_bytes() == before
    assert (
        "suites/small/recipes/web/other.yaml: invalid YAML"
        in json.loads((cells / "small-web-other.json").read_text())["unreadable"]
    )
    assert "small/web/other is not encoded; the other cells continue" in said.err
    # the requests of the invalid recipe are unknown
    Path("suites/small/recipes/web/mlp.yaml").write_text("model: [")
    stage.encode_dataset("web", grid)
    assert "no recipe requests it" not in capsys.readouterr().out
