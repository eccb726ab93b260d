"""Datasets as Croissant metadata."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from gt_bench.data import pins
from gt_bench.data.registry import catalog, get_spec
from gt_bench.reports.exchange.croissant import metadata, write
from tests.gt_bench.shipping import run


def test_a_dataset_with_pinned_files():
    content = metadata(get_spec("texas"))
    assert (content["name"], content["conformsTo"]) == ("texas", "http://mlcommons.org/croissant/1.0")
    assert content["url"] == "https://github.com/graphdml-uiuc-jlu/geom-gcn"
    assert content["citeAs"].startswith("Pei et al.")
    assert "license" not in content  # it is not stated
    assert "nodes 183" in content["description"]
    assert "Note: edges are directed and include self-loops, as stored" in content["description"]
    spec = get_spec("texas")
    assert [(one["@id"], one["sha256"], one["contentUrl"]) for one in content["distribution"]] == [
        (file.path, file.sha256, file.urls[0]) for file in spec.files
    ]


def test_a_generated_dataset_has_the_arguments_of_its_generator():
    content = metadata(get_spec("chains"))
    assert content["distribution"] == []
    assert '"train_length": 20' in content["description"]


def test_a_file_without_checksum_is_named_and_not_listed():
    content = metadata(get_spec("jets"))
    assert content["distribution"] == []
    assert "whose host publishes no checksum, not listed: jets/training_data.root" in content["description"]
    entry = {"sha256": "0" * 64, "bytes": 7, "date": "2026-01-01"}
    pins.PATH.write_text(json.dumps({"jets/training_data.root": entry}))
    (file,) = metadata(get_spec("jets"))["distribution"]
    assert (file["@id"], file["sha256"]) == ("jets/training_data.root", "0" * 64)


def test_a_file_that_only_mirrors_have():
    file = metadata(get_spec("computer"))["distribution"][0]
    assert file["contentUrl"] == file["@id"] == "amazon_coauthor/amazon_cs_plain.npz"
    assert "only mirrors have this file" in file["description"]


def test_the_command_goes_on_after_a_dataset_that_cannot_be_described(project, monkeypatch):
    project.recipe()
    project.recipe(dataset="many", row="gin", model={"name": "gin", "hidden_dim": 8, "num_layers": 2})
    monkeypatch.setitem(catalog(), "many", get_spec("chains"))
    shown = run("export", "out", "--format", "croissant")
    assert shown.exit_code == 1
    assert "web: not exported: no dataset named 'web'" in shown.stderr
    assert shown.stdout == "1 files written to out; 1 problems\n"
    assert [path.name for path in Path("out").iterdir()] == ["many.json"]


@pytest.mark.skipif(find_spec("mlcroissant") is None, reason="pip install mlcroissant")
def test_mlcroissant_accepts_every_dataset(tmp_path):
    import mlcroissant

    paths, problems = write(catalog(), tmp_path)
    assert problems == []
    for path in paths:
        # it raises ValidationError for an error
        assert not mlcroissant.Dataset(jsonld=path).metadata.ctx.issues.errors, path
