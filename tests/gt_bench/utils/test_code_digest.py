"""The code digest covers all imports of a run, and no comments."""

import json
import os

import pytest

from gt_bench.utils import code_digest as module
from gt_bench.utils.code_digest import closure, code_digest, imports, meaning


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
def test_only_code_that_runs_changes_the_digest(tree, file, old, new, same):
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
