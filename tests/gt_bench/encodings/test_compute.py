"""One encoding: the same bytes with any number of batches, threads and processes, and nothing half-written."""

import json
import multiprocessing
import os
import re
import signal

import networkx as nx
import pytest
import torch
from safetensors.torch import load_file
from threadpoolctl import threadpool_limits

from gt_bench.data.packed import PackedDataset
from gt_bench.encodings import cache
from gt_bench.encodings import compute as encoding
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.encodings.compute import encode
from gt_bench.records.run import ComputedBy
from gt_bench.utils.errors import DatasetError
from gt_models.encodings import laplacian
from tests.gt_bench.encodings.cases import default_arguments, folder_of, make_packed
from tests.gt_models.encodings.graphs import of_networkx
from tests.refusals import refused


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
    with refused(DatasetError, file="dataset 'tiny'", place="encoding rwse"):
        encode(packed, folder_of(packed), "rwse", {"steps": 3}, jobs=2)
    assert list(folder_of(packed).iterdir()) == []


def header_of(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["header"])


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
        "laplacian-k=2-normalization=sym-which=lowest": ComputedBy(
            computed_by=laplacian["computed_by"], flags={"repeated_eigenvalue": 1}
        )
    }


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


def test_a_failed_computation_leaves_no_file(packed, monkeypatch):
    monkeypatch.setattr(
        encoding, "compute_with_flags", lambda *a, **k: (_ for _ in ()).throw(ArithmeticError("no convergence"))
    )
    with pytest.raises(ArithmeticError):
        encode(packed, folder_of(packed), "laplacian", {"k": 3})
    assert [p for p in folder_of(packed).rglob("*") if p.is_file()] == []


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
