"""Shareable addresses: no credentials and no home folder in anything that is printed or written."""

import json
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from gt_bench.data.packed import DatasetUnavailable, PackedDataset
from gt_bench.data.prepare import available, prepare
from gt_bench.pipeline import state
from gt_bench.pipeline.download import planning
from gt_bench.tracking.uri import warn
from gt_bench.utils.redact import CONFIGURED, shareable, without_credentials

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://ann:{SECRET}@host:8080/a/b", "https://host:8080/a/b"),
        (f"https://{SECRET}@host/a", "https://host/a"),
        (f"postgresql+psycopg://ann:{SECRET}@db/x", "postgresql+psycopg://db/x"),
        (f"http://ann:{SECRET}@@host/a and http://b:{SECRET}@c", "http://host/a and http://c"),
        (f"https://host/a?token={SECRET}&part=1", "https://host/a?token=***&part=1"),
        (f"https://host/a?X-Amz-Signature={SECRET}", "https://host/a?X-Amz-Signature=***"),
        (f"(url: /a?api_key={SECRET} (Caused by ...))", "(url: /a?api_key=*** (Caused by ...))"),
        (
            "https://host/download?id=1dNs&export=download&confirm=t",
            "https://host/download?id=1dNs&export=download&confirm=t",
        ),
        ("https://host/user@name/x", "https://host/user@name/x"),
        (f"https://host/a#token={SECRET}", "https://host/a#token=***"),
        (f"MLflow at databricks://{SECRET} failed", "MLflow at databricks://*** failed"),
        (f"databricks-uc://{SECRET}", "databricks-uc://***"),
    ],
)
def test_credentials_are_cut(text, shown):
    assert without_credentials(text) == shown


@pytest.mark.parametrize("between", ["'", '"', "/", " ", "@", "?", "#", "%2F"])
@pytest.mark.parametrize("variable", CONFIGURED)
def test_configured_credentials_are_cut_whatever_their_characters(monkeypatch, variable, between):
    uri = f"http://ann:{SECRET}{between}{SECRET[::-1]}@host:5000"
    monkeypatch.setenv(variable, uri)
    said = f"{uri}, {uri!r}, {unquote(uri)}: invalid port '{SECRET}', no host '{SECRET[::-1]}@host'"
    shown = without_credentials(said)
    assert SECRET not in shown
    assert SECRET[::-1] not in shown
    assert without_credentials(uri) == "http://host:5000"
    monkeypatch.delenv(variable)
    assert SECRET not in without_credentials(said, uri)


@pytest.mark.parametrize("home", ["/home/ann", "/home/ann maria"])
@pytest.mark.parametrize("workspace", ["{home}/bench", "{home}/my bench", "/scratch/b"])
def test_neither_home_nor_workspace_nor_name_is_shared(monkeypatch, home, workspace):
    workspace = workspace.format(home=home)
    monkeypatch.setattr(Path, "home", lambda: Path(home))
    monkeypatch.setattr(Path, "cwd", lambda: Path(workspace))
    said = (
        f"{workspace}/data/raw/x.npz, file://{workspace}/a/b c/d.csv, file://{quote(workspace)}/e.csv: no; "
        f"at {workspace}; {home}/my data/raw/x.npz, '{home}/y.csv', {home}, file://{home}/z/z.csv, "
        f"/mnt/{Path(home).name}/my data/x.csv"
    )
    shown = shareable(said)
    for private in (home, quote(home), workspace, quote(workspace), Path(home).name, "file://"):
        assert private not in shown
    for kept in ("data/raw/x.npz, a/b c/d.csv", "my data/raw/x.npz", "y.csv", "z/z.csv", "my data/x.csv", "at .;"):
        assert kept in shown
    assert shareable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/mirror/webkb/x.txt: no such file", "…/webkb/x.txt: no such file"),
        ("cp FILE /home/ann/data/raw/a/b.npz\nor", "cp FILE …/a/b.npz\nor"),
        (f"{Path.cwd()}/data/raw/a/b.npz", "data/raw/a/b.npz"),
        ("https://host/a/b/c/d.zip", "https://host/a/b/c/d.zip"),
        ("data/raw/webkb/texas/x.txt", "data/raw/webkb/texas/x.txt"),
        ("3 of 4 files and/or more", "3 of 4 files and/or more"),
    ],
)
def test_paths_say_nothing_of_the_machine(text, shown):
    assert shareable(text) == shown
    assert shareable(shown) == shown


def test_reasons_of_unavailable_data_are_redacted(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home/ann/mirror"
    monkeypatch.setenv(
        "GT_DATA_MIRROR", f"{home},http://ann:{SECRET}@127.0.0.1:9/data,http://127.0.0.1:9/x?token={SECRET}"
    )
    said = []
    result = prepare("texas", tmp_path / "data", say=said.append)
    with pytest.raises(DatasetUnavailable) as caught:
        PackedDataset.open(result.folder)
    written = (result.folder / "unavailable.json").read_text()
    assert "home/ann" not in written + str(caught.value)
    assert str(tmp_path) not in written
    assert SECRET not in written + result.reason + str(caught.value) + "".join(said) + str(
        available("texas", tmp_path / "data")
    )
    assert SECRET not in str(planning(["texas"], tmp_path / "data", []))
    assert "…/texas/out1_node_feature_label.txt" in str(caught.value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ann:{SECRET}@127.0.0.1:9")
    assert state._tracking_store() == "http://127.0.0.1:9"
    warn(f"http://ann:{SECRET}@127.0.0.1:9", "s", f"no route to http://ann:{SECRET}@127.0.0.1:9/api")
    assert SECRET not in capsys.readouterr().err
    assert json.loads(written)["tried"]
