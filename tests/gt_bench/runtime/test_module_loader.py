"""A user's file is imported once per content, with the files of its folder."""

import os
import sys

import pytest
import torch

from gt_bench.runtime.module_loader import ImportFails, imported
from tests.refusals import refused


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside_of_test_imported.py").write_text("VALUE = 1\n")
    path = tmp_path / "net.py"
    path.write_text("from beside_of_test_imported import VALUE\n")
    before = list(sys.path)
    yield path
    assert sys.path == before


def test_the_same_text_is_the_same_module_and_another_is_another(file):
    first = imported(file, "net.py")
    assert imported(file, "net.py") is first
    file.write_text(file.read_text() + "MORE = 2\n")
    assert imported(file, "net.py").MORE == 2


def test_a_change_of_what_lies_next_to_it_counts_within_the_same_second_and_size(file):
    assert imported(file, "net.py").VALUE == 1
    (file.parent / "beside_of_test_imported.py").write_text("VALUE = 7\n")
    assert imported(file, "net.py").VALUE == 7


def test_a_file_of_the_same_name_next_to_another_one_is_another_file(file):
    assert imported(file, "net.py").VALUE == 1
    other = file.parent / "other"
    other.mkdir()
    (other / "beside_of_test_imported.py").write_text("VALUE = 3\n")
    (other / "net.py").write_text(file.read_text())
    assert imported(other / "net.py", "other/net.py").VALUE == 3
    assert imported(file, "net.py").VALUE == 1


@pytest.mark.parametrize("package", [True, False])
@pytest.mark.parametrize("line", ["from pack_of_test.part import VALUE", "from pack_of_test import part"])
def test_a_change_in_a_package_of_its_folder_counts(file, line, package):
    pack = file.parent / "pack_of_test"
    pack.mkdir()
    if package:
        (pack / "__init__.py").write_text("")
    file.write_text(f"{line}\nVALUE = part.VALUE\n" if line.endswith("part") else f"{line}\n")
    for number in (1, 2):
        (pack / "part.py").write_text(f"VALUE = {number}\n")
        assert number == imported(file, "net.py").VALUE


def test_changes_that_a_file_makes_to_the_process_are_undone(file):
    folder = os.getcwd()
    file.write_text("import os, torch\nos.chdir('/')\ntorch.set_default_dtype(torch.float64)\n")
    imported(file, "net.py")
    assert (os.getcwd(), torch.get_default_dtype()) == (folder, torch.float32)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\ny = 1 / 0\n", 2),
        ("x = (\n", 1),
        ("\nimport no_such_package_at_all\n", 2),
        ("import sys\nsys.exit(3)\n", 2),
    ],
    ids=["raises", "is no Python", "imports what is not there", "exits"],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line_and_leaves_nothing(file, text, line):
    file.write_text(text)
    before = set(sys.modules)
    with refused(ImportFails, file="net.py", place=f"line {line}"):
        imported(file, "net.py")
    assert not {name for name in set(sys.modules) - before if name.startswith("_own_")}
