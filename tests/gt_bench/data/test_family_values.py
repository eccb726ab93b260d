"""The output of dataset families for fabricated raw files equals families.json, with the same version."""

import json

import pytest

from gt_bench.data.registry import catalog
from tests.gt_bench.data import family_values
from tests.gt_bench.data.family_values import compute, main, problem, sealed, stored
from tests.gt_bench.data.raw_files import RAW

NAME = "wikics"


@pytest.mark.slow
@pytest.mark.parametrize("name", RAW)
def test_the_output_of_a_family_equals_the_saved_values(name):
    assert problem(name, stored().get(name), compute(name)) is None


def test_every_function_that_prepares_a_dataset_is_compared():
    def functions(names):
        return {(catalog()[name].prepare.__module__, catalog()[name].prepare.__qualname__) for name in names}

    assert functions(catalog()) == functions(catalog().keys() & RAW.keys())
    assert stored().keys() == RAW.keys()


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A copy of families.json with one dataset, which the command reads and writes."""
    path = tmp_path / "families.json"
    path.write_text(json.dumps({NAME: stored()[NAME]}))
    monkeypatch.setattr(family_values, "STORED", path)
    return path


def with_other_labels(name):
    """The entry of a dataset with other labels."""
    entry = compute(name)
    entry["values"]["y"]["sha256"] = "0" * 16
    return sealed(entry)


def test_other_values_need_a_higher_version(saved, monkeypatch, capsys):
    assert main([NAME]) == 0
    monkeypatch.setattr(family_values, "compute", with_other_labels)
    before = saved.read_text()
    for arguments in ([NAME], [NAME, "--update"]):
        assert main(arguments) == 1
        output = capsys.readouterr().out
        assert "y.sha256 was " in output
        assert "raise VERSION in gt_bench/data/families/wikics.py" in output
    assert json.loads(saved.read_text()) == json.loads(before)
    monkeypatch.setattr(family_values, "version_of", lambda module: 2)
    assert main([NAME]) == 1
    assert "has version 2, its saved values have version 1" in capsys.readouterr().out
    assert main([NAME, "--update"]) == 0
    assert stored()[NAME]["version"] == 2
    assert main([NAME]) == 0
    monkeypatch.setattr(family_values, "version_of", lambda module: 1)
    for arguments in ([NAME], [NAME, "--update"]):
        assert main(arguments) == 1
        assert "a version is never lowered" in capsys.readouterr().out


def test_a_new_dataset_and_an_edited_entry(saved, capsys):
    assert main(["gps"]) == 1
    assert "gps has no entry" in capsys.readouterr().out
    assert main(["gps", "--update"]) == 0
    assert stored().keys() == {"gps", NAME}
    content = json.loads(saved.read_text())
    content[NAME]["values"]["y"]["sha256"] = "0" * 16
    saved.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="the entry of wikics was edited by hand"):
        main([NAME])
    with pytest.raises(SystemExit):
        main(["wiki"])
