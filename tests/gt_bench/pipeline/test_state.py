"""The first stage of `dvc repro`: an error stops it with one line."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.data.registry import catalog, get_spec
from gt_bench.pipeline import state
from gt_bench.pipeline.grid import main as write_grid
from gt_bench.utils.io import WriteError
from tests.gt_bench.cells import ET, make_record, make_result, write


def test_a_task_that_does_not_exist_stops_the_first_stage_by_its_names(repository, monkeypatch, capsys):
    monkeypatch.setitem(catalog(), "chains", replace(get_spec("chains"), task="graph-regresion"))
    assert state.main() == 1
    said = capsys.readouterr().err
    assert "error: suites/embedded/recipes/chains/mlp.yaml: dataset 'chains': no task named 'graph-regresion'" in said


@pytest.mark.slow
def test_a_model_of_ones_own_that_is_gone_stops_no_other_cell(repository, capsys):
    cells = Path("state/cells/embedded/chains")
    assert state.main() == 0
    before = (cells / "mlp.json").read_bytes()
    Path("suites/embedded/recipes/chains/own.yaml").write_text(
        "model: {name: lab/net.py:Net}\noptimizer: {name: adam, lr: 0.01}\nepochs: 1\nseeds: [0]\norigin: "
        "{all: 'chosen: a try'}\n"
    )
    assert write_grid([]) == 0
    assert state.main() == 0, capsys.readouterr().err
    assert (cells / "mlp.json").read_bytes() == before
    assert '"error": "lab/net.py: there is no such file' in (cells / "own.json").read_text()


def test_a_recipe_that_cannot_be_read_is_named_and_stops_no_other_cell(repository, capsys):
    shutil.copy("suites/embedded/recipes/chains/mlp.yaml", "suites/embedded/recipes/chains/other.yaml")
    assert write_grid([]) == 0
    assert state.main() == 0
    files = [
        Path("state", name)
        for name in ("cells/embedded/chains/mlp.json", "encodings/chains.json", "suites/embedded.json")
    ]
    before = [file.read_bytes() for file in files]
    Path("suites/embedded/recipes/chains/other.yaml").write_text("model: [")
    assert state.main() == 0
    assert [file.read_bytes() for file in files] == before
    said = capsys.readouterr().err
    assert said.startswith("suites/embedded/recipes/chains/other.yaml: line 2, column 1: invalid YAML")
    assert said.endswith("embedded/chains/other cannot run until this is fixed; other cells continue\n")
    assert (
        '"error": "suites/embedded/recipes/chains/other.yaml'
        in Path("state/cells/embedded/chains/other.json").read_text()
    )


def test_a_full_disk_stops_the_first_stage_in_one_line(repository, monkeypatch, capsys):
    def full(path, content):
        raise WriteError(f"{path}: the disk is full")

    monkeypatch.setattr(state, "write_bytes", full)
    assert state.main() == 1
    assert capsys.readouterr().err.endswith(": the disk is full\n")


@pytest.mark.parametrize(
    ("spoil", "stays"),
    [
        (lambda record, result: None, True),
        (lambda record, result: record.write_text("{"), True),  # the leaderboard names it
        (lambda record, result: result.write_text("{"), True),
        (lambda record, result: record.unlink(), False),
        (lambda record, result: shutil.rmtree("store"), False),
    ],
)
def test_a_result_is_removed_if_a_record_is_missing(repository, spoil, stays):
    records = [make_record(ET, seed) for seed in (0, 1)]
    without = make_result(ET.replace("edge-transformer/", "other/", 1), [])
    write(Path(), [make_result(ET, records), without], records)
    digest = records[1].digest
    path, other = (Path("results", f"{result}.json") for result in (ET, without.cell))
    spoil(Path("store", digest[:2], digest, "record.json"), path)
    state.remove_results_without_records([SimpleNamespace(cell=ET), SimpleNamespace(cell=without.cell)])
    assert path.exists() == stays
    assert other.exists()
