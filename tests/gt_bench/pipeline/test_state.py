"""The first stage of `dvc repro`: an error stops it with one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.config import components
from gt_bench.data.registry import catalog, get_spec
from gt_bench.pipeline import state
from gt_bench.pipeline.grid import main as write_grid
from gt_bench.utils.io import WriteError
from tests.gt_bench.cells import ET, make_record, make_result, write


def test_a_task_that_does_not_exist_stops_the_first_stage_by_its_names(repository, monkeypatch, capsys):
    monkeypatch.setitem(catalog(), "chains", replace(get_spec("chains"), task="graph-regresion"))
    assert state.main() == 1
    assert "recipes/chains/mlp.yaml: dataset 'chains': no task named 'graph-regresion'" in capsys.readouterr().err


OWN = """model: {name: lab/net.py:Net}
optimizer: {name: adam, lr: 0.01}
epochs: 1
seeds: [0]
origin: {all: 'chosen: a try'}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "error"),
    [
        (OWN, "lab/net.py: there is no such file"),  # a user's model that is gone
        ("model: [", "suites/embedded/recipes/chains/other.yaml: line 2, column 1: invalid YAML"),
    ],
)
def test_a_recipe_that_cannot_run_stops_no_other_cell(repository, capsys, content, error):
    other = Path("suites/embedded/recipes/chains/other.yaml")
    shutil.copy(other.with_name("mlp.yaml"), other)
    assert write_grid([]) == 0
    assert state.main() == 0
    names = ("cells/embedded/chains/mlp.json", "encodings/chains.json", "suites/embedded.json")
    before = [Path("state", name).read_bytes() for name in names[: 1 if content == OWN else None]]
    other.write_text(content)
    assert state.main() == 0
    assert [Path("state", name).read_bytes() for name in names[: len(before)]] == before
    assert json.loads(Path("state/cells/embedded/chains/other.json").read_text())["error"].startswith(error)
    assert (content == OWN) == (error not in capsys.readouterr().err)


def test_a_version_and_a_tracking_store_change_the_files_of_their_stages(repository, monkeypatch):
    """Each file is a dependency of one stage, which runs again only if the file changes."""

    def content():
        assert state.main() == 0
        return {str(path.relative_to("state")): path.read_bytes() for path in Path("state").rglob("*.json")}

    first = content()
    assert content() == first
    version_of = components.version_of
    monkeypatch.setattr(
        components, "version_of", lambda module: version_of(module) + (module == "gt_models.baselines.mlp")
    )
    raised = content()
    assert {name for name in raised if raised[name] != first[name]} == {"cells/embedded/chains/mlp.json"}
    shutil.rmtree("mlruns")  # deleted by the user; the leaderboard fills it again from the records
    deleted = content()
    assert {name for name in deleted if deleted[name] != raised[name]} == {"suites/embedded.json"}


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
