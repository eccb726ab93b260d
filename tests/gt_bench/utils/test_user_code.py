"""Which files of a user are the identity of a model, a metric or a function."""

import pytest

from gt_bench.utils.user_code import project_modules, source_digest, source_files

TEXTS = {
    "lab/__init__.py": "",
    "lab/models/__init__.py": "from . import parts",
    "lab/models/net.py": """
import helper, numpy, gt_bench.cli
from lab.models import parts
from ..data import load
""",
    "lab/models/helper.py": "def f():\n    import late\n",
    "lab/models/late.py": "A = 1\n",
    "lab/models/broken.py": "x = (\n",
    "lab/models/parts.py": "from gt_models.layers.mlp import MLP\nimport gt_models\n",
    "lab/data.py": "B = 2\n",
    "gt_bench/cli/__init__.py": "",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


PACKAGE = {"lab/__init__.py", "lab/models/__init__.py", "lab/models/net.py", "lab/models/parts.py", "lab/data.py"}


@pytest.mark.parametrize(
    ("text", "of_package", "found"),
    [
        (None, False, {"net.py", "helper.py", "late.py"}),  # nothing outside of its folder
        (None, True, PACKAGE),  # nothing outside of its package
        ("from . import helper", False, {"net.py", "helper.py", "late.py", "__init__.py", "parts.py"}),
        ("from ...... import helper", False, {"net.py"}),
        ("import helper.part", False, {"net.py", "helper.py", "late.py"}),
        ("import broken", False, {"net.py", "broken.py"}),
        ("import lab.models.late", True, {"lab/models/net.py", "lab/models/late.py", *PACKAGE} - {"lab/data.py"}),
    ],
)
def test_imports_are_followed_in_the_folder_tree_of_the_file(folder, text, of_package, found):
    path = folder / "lab/models/net.py"
    if text:
        path.write_text(text)
    assert source_files(path, folder if of_package else None).keys() == found


def test_neighbours_of_an_installed_module_are_not_followed(tmp_path):
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "acme.py").write_text("import torch")
    (site / "torch.py").write_text("")
    assert source_files(site / "acme.py").keys() == {"acme.py"}


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("net.py", None, True),
        ("net.py", TEXTS["lab/models/net.py"] + "# a comment\n", False),
        ("late.py", "A = 2\n", False),
        ("broken.py", "", True),
    ],
)
def test_the_digest_is_that_of_the_bytes(folder, file, text, same):
    path = folder / "lab/models/net.py"
    before = source_digest(path)
    if text is not None:
        (path.parent / file).write_text(text)
    assert (source_digest(path) == before) is same


def test_modules_of_this_project_are_named(folder):
    assert project_modules(source_files(folder / "lab/models/net.py", folder)) == [
        "gt_bench.cli",
        "gt_models.layers.mlp",
    ]
