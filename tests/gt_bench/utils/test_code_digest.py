"""The code digest covers all imports of a run, and no comments; the same for a user's file."""

import json
import os

import pytest

from gt_bench.utils import code_digest as module
from gt_bench.utils.code_digest import closure, code_digest, files_of, imports, meaning, project_modules, text_digest


@pytest.fixture
def tree(tmp_path):
    files = {
        "gt_models/__init__.py": "",
        "gt_models/one.py": (
            '"""Doc."""\nfrom gt_models.layers import part\nfrom gt_models.layers.other import thing\n\n\n'
            'def f(x):\n    """Doc of f."""\n    return part.g(x) + 1\n'
        ),
        "gt_models/two.py": "import torch\n",
        "gt_models/layers/__init__.py": "",
        "gt_models/layers/part.py": "def g(x):\n    return x\n",
        "gt_models/layers/other.py": "thing = 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_closure_follows_imports_within_the_project(tree):
    assert closure(["gt_models.one"], tree) == {"gt_models.one", "gt_models.layers.part", "gt_models.layers.other"}
    with pytest.raises(ModuleNotFoundError, match="gt_models.absent"):
        closure(["gt_models.absent"], tree)


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("gt_models/one.py", "return part.g(x) + 1", "return  part.g( x )+1  # a comment", True),
        ("gt_models/one.py", '"""Doc of f."""', '"""Another text."""', True),
        ("gt_models/one.py", '"""Doc."""', "# none", True),
        ("gt_models/one.py", "+ 1", "+ 2", False),
        ("gt_models/layers/part.py", "return x", "return -x", False),
        ("gt_models/two.py", "import torch", "import numpy", True),
    ],
)
def test_what_changes_the_digest(tree, file, old, new, same):
    before = code_digest(["gt_models.one"], tree)
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    assert (code_digest(["gt_models.one"], tree) == before) is same


@pytest.fixture
def new_process(tree, monkeypatch):
    """`new_process()` forgets what was read, as in a process that has just been started in the tree."""

    def forget() -> None:
        module._read_version.cache_clear()
        module._parsed.cache_clear()

    monkeypatch.setattr(module, "ROOT", tree)
    monkeypatch.setattr(module, "PARSED", tree / ".golden" / "parsed.json")
    forget()
    yield forget
    forget()


def test_a_file_is_parsed_once_for_all_processes(tree, new_process, monkeypatch):
    before, part, parsed = code_digest(["gt_models.one"], tree), tree / "gt_models/layers/part.py", []
    monkeypatch.setattr(module, "_parse", lambda text, parse=module._parse: parsed.append(text) or parse(text))
    new_process()
    assert code_digest(["gt_models.one"], tree) == before
    assert not parsed
    stat = part.stat()
    part.write_text("def g(x):\n    return y\n")
    os.utime(part, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # size and time are the same
    new_process()
    assert code_digest(["gt_models.one"], tree) != before
    assert parsed == [part.read_bytes()]


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"parser": 1', "entries", "parser"])
def test_a_damaged_cache_of_parsed_files_changes_no_digest(tree, new_process, damage):
    before, cache = code_digest(["gt_models.one"], tree), tree / ".golden/parsed.json"
    content = json.loads(cache.read_text())
    if damage == "entries":
        content["files"] = dict(zip(content["files"], (None, [], [1, 2, 3], {"a": 1})))
    elif damage == "parser":
        content |= {"parser": "another", "files": {name: [k, "x", i] for name, (k, _, i) in content["files"].items()}}
    cache.write_bytes(damage if isinstance(damage, bytes) else json.dumps(content).encode())
    new_process()
    assert code_digest(["gt_models.one"], tree) == before
    assert len(json.loads(cache.read_text())["files"]) == 3


def test_only_the_named_packages_count(tree):
    def digest() -> str:
        return code_digest(["gt_models.one"], tree, packages=["gt_models.one", "gt_models.no"])

    before = digest()
    (tree / "gt_models/layers/part.py").write_text("def g(x):\n    return -x\n")
    assert digest() == before
    (tree / "gt_models/one.py").write_text("from gt_models.layers import part\n")
    assert digest() != before


@pytest.fixture
def lab(tmp_path):
    """A model that imports from its folder, its package and the parent of its package; nothing imports `notes.py`."""
    texts = {
        "lab/__init__.py": "",
        "lab/models/__init__.py": "from . import parts",
        "lab/models/net.py": "import helper\nfrom lab.models import parts\nfrom ..data import load\nimport numpy\n",
        "lab/models/helper.py": "def f():\n    import late\n",
        "lab/models/late.py": "A = 1\n",
        "lab/models/parts.py": "from gt_models.layers.mlp import MLP\nimport gt_models\n",
        "lab/data.py": "B = 2\n",
        "lab/notes.py": "C = 3\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed_wherever_they_are_and_nothing_else_counts(lab):
    found = {str(file.relative_to(lab)) for file in files_of(lab / "lab/models/net.py", lab)}
    models = {
        "lab/models/net.py",
        "lab/models/helper.py",
        "lab/models/late.py",
        "lab/models/parts.py",
        "lab/models/__init__.py",
    }
    assert found - {"lab/__init__.py"} == models | {"lab/data.py"}


def test_nothing_outside_of_the_root_is_followed(lab):
    found = {file.name for file in files_of(lab / "lab/models/net.py", lab / "lab/models")}
    assert "data.py" not in found
    assert {"net.py", "helper.py", "late.py"} <= found


def test_a_package_is_followed_by_from_dot_import_and_for_a_submodule(lab):
    (lab / "lab/models/net.py").write_text("from . import helper\n")
    assert lab / "lab/models/late.py" in files_of(lab / "lab/models/net.py", lab)
    (lab / "net.py").write_text("import lab.data\n")
    assert {file.name for file in files_of(lab / "net.py", lab)} == {"net.py", "data.py"}  # lab/__init__.py is empty
    (lab / "lab/__init__.py").write_text("from .notes import C\n")
    assert {file.name for file in files_of(lab / "net.py", lab)} == {"net.py", "data.py", "__init__.py", "notes.py"}


def test_the_user_s_modules_elsewhere_on_the_path_are_followed_and_installed_ones_are_not(lab, monkeypatch):
    monkeypatch.syspath_prepend(str(lab))
    model = lab / "work/models/net.py"
    model.parent.mkdir(parents=True)
    model.write_text("import numpy, ast\nfrom lab.data import B\nfrom lab.models import helper\n")
    found = {str(file.relative_to(lab)) for file in files_of(model, model.parent)}
    models = {f"lab/models/{name}.py" for name in ("__init__", "helper", "late", "parts")}
    assert found == models | {"work/models/net.py", "lab/data.py"}
    before = text_digest(model, model.parent)
    (lab / "lab/data.py").write_text("B = 3\n")
    assert text_digest(model, model.parent) != before


def test_packages_next_to_an_installed_one_are_not_followed(tmp_path):
    site = tmp_path / "site-packages"
    for name, text in {
        "acme/net.py": "import other\nfrom acme.sizes import A\n",
        "acme/sizes.py": "",
        "other.py": "",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert {file.name for file in files_of(site / "acme/net.py", site)} == {"net.py", "sizes.py"}


@pytest.mark.parametrize("name", ["helper.py", "late.py", "../data.py"])
def test_each_of_them_decides_the_digest_by_what_it_means(lab, name):
    path, model = lab / "lab/models" / name, lab / "lab/models/net.py"
    before, text = text_digest(model, lab), path.read_text()
    path.write_text('"""Said."""\n# a comment\n' + text)
    assert text_digest(model, lab) == before
    path.write_text(text + "D = 4\n")
    assert text_digest(model, lab) != before


def test_a_file_that_nobody_imports_decides_nothing(lab):
    before = text_digest(lab / "lab/models/net.py", lab)
    (lab / "lab/notes.py").write_text("C = 4\n")
    assert text_digest(lab / "lab/models/net.py", lab) == before


def test_what_it_imports_of_this_project_is_named(lab):
    assert project_modules(files_of(lab / "lab/models/net.py", lab)) == ["gt_models.layers.mlp"]


def test_an_import_is_its_module_with_its_dots_and_names():
    assert imports("import a.b, c\nfrom .. import d\nfrom .e import f, g") == [
        ("a.b", ()),
        ("c", ()),
        ("..", ("d",)),
        (".e", ("f", "g")),
    ]


def test_meaning_is_of_the_code_alone():
    assert meaning("x = 1  # one\n\n") == meaning('"""About x."""\nx = 1')
    assert meaning("x = 1") != meaning("x = 2")
    with pytest.raises(SyntaxError):
        meaning("x = ")
