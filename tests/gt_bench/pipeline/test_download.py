"""The command line of the download stage."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gt_bench.data.packed import DatasetUnavailable, PackedDataset
from gt_bench.data.prepare import available
from gt_bench.pipeline import download
from gt_bench.pipeline.download import app
from tests.conftest import ROOT
from tests.gt_bench.cells import write_grid


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.delenv("GT_DATA_MIRROR", raising=False)
    monkeypatch.setattr("gt_bench.data.download._host_answers", lambda scheme, host: False)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.output + str(result.exception)
        return result.output

    return call


def test_prepare_verify_and_find_damage(run, tmp_path, mirror):
    assert "note: edges are directed" in run("texas", "--mirror", str(mirror))
    stamp = (tmp_path / "data/packed/texas/header.json").stat().st_mtime_ns
    assert "texas: up to date" in run("texas", "--mirror", str(mirror))
    assert (tmp_path / "data/packed/texas/header.json").stat().st_mtime_ns == stamp
    assert "no problems found" in run("--verify")

    path = tmp_path / "data/raw/webkb/texas/out1_graph_edges.txt"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"#")
    output = run("--verify", code=1)
    assert "not the pinned" in output
    assert path.name in output
    path.write_bytes(content)
    run("--verify")


def test_the_command_of_verify_repairs_a_flipped_bit(run, tmp_path):
    for place, option in (("data", []), ("else", ["--data-root", "else"])):
        run("chains", *option)
        path = tmp_path / place / "packed/chains/data.safetensors"
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        output = run("--verify", *option, code=1)
        command = re.search(r"prepare it again: python -m stages\.download (.*)", output)[1]
        output = run(*command.split())
        assert "chains: packed in" in output
        assert "the content of data.safetensors does not match its header" in output
        assert path.read_bytes() == content
        run("--verify", *option)


def test_an_unavailable_dataset_is_reported_and_prepared_later(run, tmp_path, mirror):
    output = run("texas")
    assert "not run: data" in output
    note = json.loads((tmp_path / "data/packed/texas/unavailable.json").read_text())
    assert note["dataset"] == "texas"
    assert note["tried"][0]["source"].startswith("https://raw.githubusercontent.com/")
    assert "cp FILE data/raw/webkb/texas/out1_node_feature_label.txt" in note["remedy"]
    with pytest.raises(DatasetUnavailable, match="cp FILE"):
        PackedDataset.open("data/packed/texas")
    run("texas", "--strict", code=1)
    assert "not available" in run("--verify")
    assert not available("texas", "data")[0]

    assert available("texas", "data", [str(mirror)]) == (True, str(mirror / "webkb/texas/out1_node_feature_label.txt"))
    run("texas", "--mirror", str(mirror))
    assert sorted(p.name for p in (tmp_path / "data/packed/texas").iterdir()) == ["data.safetensors", "header.json"]
    assert available("texas", "data") == (True, "packed in data/packed/texas")


def test_list_and_plan(run, mirror):
    assert "minesweeper" in run("--list")
    output = run("--plan", "texas", "chains", "roman-empire", "--mirror", str(mirror))
    for part in ("fetches 12 of 12 files", "generates", "not available"):
        assert part in output
    run("chains")
    assert "already packed" in run("--plan", "chains")


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_no_cell_is_truncated_at_any_width(width, monkeypatch):
    look = {"highlight": False, "force_terminal": True, "color_system": None, "soft_wrap": True}
    terminal = Console(**look, width=width, file=io.StringIO())
    monkeypatch.setattr(download, "console", terminal)
    columns, rows = download.listing(Path("nowhere"))
    download.show_rows(columns, rows)
    output = terminal.file.getvalue()
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= max(width, 2 + max(len(row[8]) for row in rows) + len("source: ;"))
    for row in rows:
        for cell in row[0].split() + row[8].split():
            assert cell in output
    assert output.startswith("┏") == (width == 300)


def test_the_plan_predicts_the_size_on_disk(run, mirror):
    planned = run("--plan", "minesweeper", "--mirror", str(mirror))
    (line,) = [line for line in planned.splitlines() if "minesweeper" in line]
    raw = (mirror / "heterophilous/minesweeper.npz").stat().st_size
    packed = float(re.search(r"packed in [^;]*; ([\d.]+) KiB", run("minesweeper", "--mirror", str(mirror))).group(1))
    assert float(re.findall(r"([\d.]+) KiB", line)[-1]) == pytest.approx(raw / 1024 + packed, rel=0.01)


def test_params_give_the_mirrors_and_the_suites(run, tmp_path, mirror):
    write_grid(tmp_path, ["x/texas/mlp", "x/chains/mlp"], run={"mirrors": [str(mirror)]})
    output = run("--plan", "x")
    for part in ("texas", "generates", f"{mirror}", "fetches 12"):
        assert part in output
    assert "tolokers" not in output
    assert "texas: packed" in run("texas")
    params = tmp_path / "params.yaml"
    params.write_text(params.read_text().replace("mirrors", "mirror"))
    assert "mirrors" in run("chains", code=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["texsa"], "did you mean 'texas'"),
        (["--plan", "texsa"], "no suite or dataset named 'texsa' (did you mean 'texas'?)"),
        ([], "name a dataset"),
        (["x" * 100_000], "x"),
    ],
    ids=["download", "plan", "nothing", "long"],
)
def test_wrong_names_and_no_names(run, arguments, says):
    output = run(*arguments, code=1)
    assert says in output
    assert len(output) < 3000


def test_a_truncated_mirror_file_leaves_no_packed_folder(run, tmp_path, mirror):
    (tmp_path / "m/heterophilous").mkdir(parents=True)
    content = (mirror / "heterophilous/minesweeper.npz").read_bytes()
    (tmp_path / "m/heterophilous/minesweeper.npz").write_bytes(content[:-100])
    output = run("minesweeper", "--mirror", "m")
    assert "are expected; renamed to" in output
    assert [p.name for p in (tmp_path / "data/packed/minesweeper").iterdir()] == ["unavailable.json"]
    assert not (tmp_path / "data/raw/heterophilous/minesweeper.npz").exists()


@pytest.mark.slow
def test_two_processes_prepare_once(tmp_path):
    command = [sys.executable, "-m", "stages.download", "sbm-cluster", "--data-root", str(tmp_path)]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    output = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted("up to date: already packed" in text for text in output) == [False, True]
    assert PackedDataset.open(tmp_path / "packed/sbm-cluster").num_graphs == 300


@pytest.mark.parametrize("place", ["data", "data/packed", "data/.locks"])
def test_a_file_in_the_place_of_a_folder_is_one_line(run, tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("not a folder")
    output = run("chains", code=1)
    assert output.startswith("error: data")
    assert "cannot be written" in output
    assert (tmp_path / place).read_text() == "not a folder"
