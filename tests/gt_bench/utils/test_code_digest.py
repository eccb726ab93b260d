"""The hash of code sees what a run imports, and no comment."""

import pytest

from gt_bench.utils.code_digest import closure, code_digest


@pytest.fixture
def tree(tmp_path):
    files = {
        "gt_models/__init__.py": "",
        "gt_models/one.py": '"""Doc."""\nfrom gt_models.nn import part\nfrom gt_models.nn.other import thing\n\n\ndef f(x):\n    """Doc of f."""\n    return part.g(x) + 1\n',
        "gt_models/two.py": "import torch\n",
        "gt_models/nn/__init__.py": "",
        "gt_models/nn/part.py": "def g(x):\n    return x\n",
        "gt_models/nn/other.py": "thing = 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_closure_follows_imports_within_the_project(tree):
    assert closure(["gt_models.one"], tree) == {"gt_models.one", "gt_models.nn.part", "gt_models.nn.other"}
    with pytest.raises(ModuleNotFoundError, match="gt_models.absent"):
        closure(["gt_models.absent"], tree)


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("gt_models/one.py", "return part.g(x) + 1", "return  part.g( x )+1  # a comment", True),
        ("gt_models/one.py", '"""Doc of f."""', '"""Another text."""', True),
        ("gt_models/one.py", '"""Doc."""', "# none", True),
        ("gt_models/one.py", "+ 1", "+ 2", False),
        ("gt_models/nn/part.py", "return x", "return -x", False),
        ("gt_models/two.py", "import torch", "import numpy", True),
    ],
)
def test_what_changes_the_digest(tree, file, old, new, same):
    before = code_digest(["gt_models.one"], tree)
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    assert (code_digest(["gt_models.one"], tree) == before) is same


def test_only_the_named_packages_count(tree):
    def digest() -> str:
        return code_digest(["gt_models.one"], tree, packages=["gt_models.one", "gt_models.no"])

    before = digest()
    (tree / "gt_models/nn/part.py").write_text("def g(x):\n    return -x\n")
    assert digest() == before
    (tree / "gt_models/one.py").write_text("from gt_models.nn import part\n")
    assert digest() != before
