"""Declared versions: read from the source; the default is 1."""

import pytest

from gt_bench.config.components import modules_of_run, run_versions
from gt_bench.utils import versions
from gt_bench.utils.versions import VersionError, version_of, version_text
from tests.refusals import refused


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write the text of a module and return its version."""
    path = tmp_path / "module.py"
    monkeypatch.setattr(versions, "source_file", lambda name: path)

    def written(text: str) -> int:
        path.write_text(text)
        versions._declared.cache_clear()
        return version_of("some.module")

    return written


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('"""Doc."""\nimport torch\n', 1),
        ("VERSION = 3\n", 3),
        ("VERSION: int = 2\n", 2),
        ("def f():\n    VERSION = 9\n", 1),
        ("OTHER = VERSION_OF = 5\n", 1),
    ],
)
def test_a_module_declares_its_version(module, text, version):
    assert module(text) == version


@pytest.mark.parametrize(
    "text",
    [
        "VERSION = 0",
        "VERSION = -1",
        "VERSION = True",
        'VERSION = "2"',
        "VERSION = 1 + 1",
        "VERSION: int",
        "VERSION = 1.5",
    ],
)
def test_an_invalid_version_is_named_with_its_line(module, text):
    with refused(VersionError, place="line 2"):
        module(f"import os\n{text}\n")


def test_a_run_has_the_versions_of_what_computes_it():
    assert run_versions("gcn", "node-classification") == {"model": 1, "task": 1, "trainer": 1}
    assert modules_of_run("ppgt-released", "graph-regression", {"targets": "train", "epochs": 3}) == {
        "model": "gt_models.released.ppgt",
        "task": "gt_bench.tasks.standard",
        "trainer": "gt_bench.training.trainer",
        "targets": "gt_bench.training.target_scaling",
    }
    on_the_fly = {"subgraphs": {"nodes": 8}, "encodings": {"rrwp": {"steps": 3}}}
    assert (
        modules_of_run("ppgt", "node-classification", on_the_fly)["encoding rrwp"] == "gt_models.encodings.random_walk"
    )
    assert "encoding rrwp" not in modules_of_run("ppgt", "node-classification", {"encodings": {"rrwp": {"steps": 3}}})
    assert "model" not in run_versions(None, "node-classification"), "a user's own model has the digest of its files"
    with pytest.raises(KeyError):
        run_versions("gcnn", "node-classification")
    with pytest.raises(ModuleNotFoundError):
        version_of("stages.no_such_module")
    assert version_text({"model": 2}, modified=True) == "model version 2, modified"


def test_the_modules_of_encodings_are_those_that_define_them():
    from gt_models.encodings import ENCODINGS

    assert versions.encoding_modules() == {name: encoding.module for name, encoding in ENCODINGS.items()}
