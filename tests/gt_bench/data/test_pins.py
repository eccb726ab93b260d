"""Digests pinned on first use: after the statistics were compared; checked from then on; shown in every report."""

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.data.pins import new_pin, read_pins
from gt_bench.data.prepare import contradicted, prepare, verify
from gt_bench.data.registry import catalog, get_spec
from gt_bench.leaderboard.collect import summarise
from gt_bench.leaderboard.row import NoteKind
from gt_bench.pipeline import state
from gt_bench.pipeline.download import planning
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.cells import changed, make_result
from tests.gt_bench.data.raw_files import Malicious, saved, symmetric_edges
from tests.refusals import refused

FILE = "pyg/CLUSTER_v2.zip"
PIN = {"sha256": "0" * 64, "bytes": 1, "date": "2026-11-01"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.delenv("GT_DATA_MIRROR", raising=False)
    monkeypatch.setattr("gt_bench.data.download._host_answers", lambda scheme, host: False)


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A small `cluster`: `write(seed)` writes the host's file with six graphs into a mirror."""
    small = {"graphs": 6, "classes": 6, "symmetric": True}
    monkeypatch.setitem(catalog(), "cluster", replace(get_spec("cluster"), expected=small))

    def write(seed: int = 0, graphs: int = 3) -> Path:
        rng = np.random.default_rng(seed)

        def graph(n):
            arrays = {"x": np.eye(7, dtype=np.float32)[rng.integers(0, 7, n)], "y": rng.integers(0, 6, n)}
            arrays["edge_index"] = symmetric_edges(rng, n).copy()
            return {name: torch.from_numpy(array) for name, array in arrays.items()}

        return archive([[graph(5) for _ in range(graphs)], [graph(4)], [graph(6), graph(8)]])

    def archive(content) -> Path:
        path = tmp_path / "mirror" / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("CLUSTER_v2.pt", saved(content))
        return path

    write.archive = archive
    return write


def get(tmp_path, say=lambda line: None):
    return prepare("cluster", tmp_path / "data", [str(tmp_path / "mirror")], say)


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_first_use_pins_and_the_second_is_compared(cluster, tmp_path, lock_file):
    source, messages = cluster(), []
    result = get(tmp_path, messages.append)
    assert result.state == "packed"
    entry = json.loads(lock_file.read_text())[FILE]
    assert entry == {"sha256": sha(source), "bytes": source.stat().st_size, "date": entry["date"]}
    assert "data.lock.json, which belongs in git" in messages[-1]
    assert result.header.pinned == [entry["date"]]
    assert result.header.digest == result.header.model_copy(update={"provenance": {}}).digest
    written = lock_file.read_bytes()
    assert get(tmp_path).state == "up to date"

    # on another machine with this lock file, the host has another content
    cluster(seed=1)
    result = prepare("cluster", tmp_path / "other", [str(tmp_path / "mirror")])
    assert result.state == "unavailable"
    line = next(line for line in result.reason.splitlines() if "data.lock.json" in line)
    for part in (FILE, entry["sha256"], "pinned on first use", entry["date"], "delete that entry of data.lock.json"):
        assert part in line
    assert lock_file.read_bytes() == written

    # the remedy of the message
    lock_file.write_text("{}")
    assert prepare("cluster", tmp_path / "other", [str(tmp_path / "mirror")]).state == "packed"
    assert read_pins()[FILE].sha256 == sha(source) != entry["sha256"]


def test_a_lost_lock_file_is_written_again_from_what_is_packed(cluster, tmp_path, lock_file):
    cluster()
    get(tmp_path)
    written = lock_file.read_bytes()
    lock_file.unlink()
    assert get(tmp_path).state == "up to date"
    assert lock_file.read_bytes() == written


def test_a_later_lock_file_takes_precedence(cluster, tmp_path, lock_file):
    first = sha(cluster())
    get(tmp_path)
    second = cluster(seed=1)
    pin = PIN | {"sha256": sha(second), "bytes": second.stat().st_size}
    lock_file.write_text(json.dumps({FILE: pin}))
    assert contradicted("cluster", tmp_path / "data") == [FILE]
    result = get(tmp_path)
    assert result.state == "packed"
    assert result.header.pins[FILE]["sha256"] == sha(second) != first
    assert result.header.pinned == ["2026-11-01"]
    assert contradicted("cluster", tmp_path / "data") == []


@pytest.mark.parametrize("what", ["other statistics", "a call", "no archive"])
def test_wrong_content_is_not_pinned(what, cluster, tmp_path, lock_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if what == "other statistics":
        cluster(graphs=4)
    elif what == "a call":
        cluster.archive([[Malicious()], [], []])
    else:
        cluster().write_bytes(b"<html>confirm</html>")
    with refused(DatasetError, value=[str(tmp_path / "data/raw" / FILE)]):
        get(tmp_path)
    assert not lock_file.exists()
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "data/packed/cluster").exists()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        *(("{", ""), ("[]", ""), ("<<<<<<< HEAD\n{}\n=======\n", "")),
        *((json.dumps({FILE: PIN | wrong}), "")
          for wrong in ({"sha256": "0" * 63}, {"bytes": True}, {"date": "yesterday"})),
        (json.dumps({FILE: {"sha256": "0" * 64, "bytes": 1}}), ""),
        (json.dumps({"zinc12k/test.index": PIN}), "zinc12k/test.index"),
    ],
)  # fmt: skip
def test_an_invalid_lock_file_is_one_clear_line(content, place, cluster, tmp_path, lock_file):
    cluster()
    lock_file.write_text(content)
    data = tmp_path / "data"
    for call in (lambda: get(tmp_path), lambda: planning(["cluster"], data, []), lambda: contradicted("cluster", data)):
        with refused(DatasetError, file=str(lock_file), place=place) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert lock_file.read_text() == content


@pytest.mark.slow
def test_plan_state_and_verify_agree(cluster, tmp_path, lock_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster()
    mirrors = [str(tmp_path / "mirror")]
    assert "pins 1 digest on first use" in planning(["cluster"], tmp_path / "data", mirrors)[1][0][1]
    (tmp_path / "params.yaml").write_text(
        f"run: {{mirrors: {mirrors}}}\ndatasets: [cluster]\nsuites: []\ncells: {{}}\n"
    )

    def written() -> dict:
        state.write_state(load_grid())
        return json.loads((tmp_path / "state/datasets/cluster.json").read_text())

    before = written()
    assert before["available"]
    get(tmp_path)
    assert written() == before  # the pin does not trigger stages
    assert verify(tmp_path / "data") == []
    (tmp_path / "data/raw" / FILE).write_bytes(b"other")
    assert [line for line in verify(tmp_path / "data") if "of data.lock.json" in line]
    pin = read_pins()[FILE]
    lock_file.write_text(json.dumps({FILE: {"sha256": "0" * 64, "bytes": pin.bytes, "date": pin.date}}))
    assert written() == before | {"packed_from_other": [FILE]}


def test_reports_show_the_pin():
    result = make_result("s/cluster/gcn", [], method=None)
    row = summarise(changed(result, pinned=["2026-11-22"]), [])
    assert row.notes[0] == (NoteKind.PINNED, ("2026-11-22",))


def test_a_pin_is_of_today_in_utc():
    assert len(new_pin("0" * 64, 3).date) == 10
    with pytest.raises(ValueError, match="should match pattern"):
        new_pin("x", 3)
