"""The catalog: complete entries with unique names, found automatically."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.data.pins import new_pin, with_pin
from gt_bench.data.prepare import available
from gt_bench.data.registry import UnknownDataset, catalog, get_spec
from gt_bench.data.spec import file_entries, files
from tests.refusals import refused


@pytest.mark.parametrize("name", catalog())
def test_entries_are_complete(name):
    spec = get_spec(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert spec.task
    assert spec.metric
    assert spec.citation
    assert spec.licence
    assert len(spec.digest) == 64
    for entry in spec.files:
        assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
        if entry.derived and not entry.path.endswith(("_plain.npz", "brec_v3.npy.xz")):
            assert spec.derived, f"{entry.path} is derived, but the spec has no `derived`"
    json.dumps(dict(spec.arguments))


@pytest.mark.parametrize("name", catalog())
def test_every_file_of_a_dataset_is_available(name, tmp_path, monkeypatch):
    """Each file has a source, and a digest that is pinned now or on first use."""
    monkeypatch.setattr("gt_bench.data.download._host_answers", lambda scheme, host: True)
    spec = get_spec(name)
    derived = [entry for entry in spec.files if not entry.urls]
    assert all(entry.derived and entry.sha256 for entry in derived), "a file has neither an address nor is derived"
    for entry in derived:
        (tmp_path / "mirror" / entry.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / entry.path).touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda module: module)
    assert available(name, tmp_path / "data", [str(tmp_path / "mirror")])[0]
    for entry in spec.files:
        assert with_pin(entry, {}).sha256 or with_pin(entry, {entry.path: new_pin("0" * 64, 1)}).pinned


def test_an_unknown_name_gets_the_nearest():
    with refused(UnknownDataset, problem="no dataset named 'toloker' (did you mean 'tolokers'?)"):
        get_spec("toloker")


def test_user_supplied_data_are_among_the_nearest_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("datasets.yaml").write_text("my-shop: {source: shop}")
    with pytest.raises(UnknownDataset, match="did you mean 'my-shop'"):
        get_spec("my-shpo")


def test_the_digest_depends_on_files_and_arguments_and_not_on_notes():
    spec = get_spec("sbm-cluster")
    assert replace(spec, arguments=dict(spec.arguments) | {"seed": 1}).digest != spec.digest
    assert replace(spec, notes=("other",), citation="other").digest == spec.digest
    other = get_spec("minesweeper")
    assert replace(other, files=(replace(other.files[0], sha256="0" * 64),)).digest != other.digest


def test_checksums_equal_those_of_the_available_files(mirror):
    manifest = {entry["file"]: entry for entry in json.loads((mirror / "MANIFEST.json").read_text()) if entry["file"]}
    for path in file_entries():
        if path in manifest:
            assert files(path)[0].sha256 == manifest[path]["sha256"]
            assert files(path)[0].bytes == manifest[path]["bytes"] == (mirror / path).stat().st_size
