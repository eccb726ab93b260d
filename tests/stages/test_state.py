"""The first stage of `dvc repro`: what is wrong stops it in one line."""

from dataclasses import replace

from stages import state
from stages.datasets.catalog import catalog, get_spec
from stages.files import WriteError


def test_a_task_that_does_not_exist_stops_the_first_stage_by_its_names(repository, monkeypatch, capsys):
    monkeypatch.setitem(catalog(), "chains", replace(get_spec("chains"), task="graph-regresion"))
    assert state.main() == 1
    said = capsys.readouterr().err
    assert "error: recipes/embedded/chains/mlp.yaml, dataset 'chains': no task named 'graph-regresion'" in said


def test_a_full_disk_stops_the_first_stage_in_one_line(repository, monkeypatch, capsys):
    def full(path, content):
        raise WriteError(f"{path}: the disk is full")

    monkeypatch.setattr(state, "write_bytes", full)
    assert state.main() == 1
    assert capsys.readouterr().err.endswith(": the disk is full\n")
