"""tests/gt_bench mirrors gt_bench: where the tests of a module are.

1. The tests of `gt_bench/PACKAGE/MODULE.py` are in `tests/gt_bench/PACKAGE/test_MODULE.py`, or in a folder of the
   module's name there.
2. A module of at most `MOST_LINES` lines may be tested by the file of another one: a test imports it, or a module that
   imports it has a test file.
3. `gt_bench.cli` reads the options of commands. The tests of a command are those of the module that it calls.
"""

from functools import cache
from pathlib import Path

import pytest

from gt_bench.utils.code_digest import _imports, imports
from tests.conftest import ROOT

MOST_LINES = 400
TESTS = ROOT / "tests/gt_bench"


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Modules with code by name: an `__init__` without a function or class is tested with its package."""
    found = sorted((ROOT / "gt_bench").rglob("*.py"))
    with_code = [p for p in found if p.name != "__init__.py" or {"def", "class"} & set(p.read_text().split())]
    return {name_of(path): path for path in with_code if not name_of(path).startswith("gt_bench.cli")}


def has_its_file(path: Path) -> bool:
    name = path.parent.name if path.name == "__init__.py" else path.stem
    folder = TESTS / path.parent.relative_to(ROOT / "gt_bench")
    return any((place / f"test_{name.strip('_')}.py").is_file() for place in (folder, folder / name))


@cache
def imported_by_tests() -> set[str]:
    found = [one for path in (ROOT / "tests").rglob("test_*.py") for one in imports(path.read_bytes())]
    return {name for base, names in found for name in (base, *(f"{base}.{n}" for n in names))}


@cache
def imported_by_tested_modules() -> set[str]:
    commands = ROOT / "gt_bench/cli"
    found = [p for p in (ROOT / "gt_bench").rglob("*.py") if has_its_file(p) or p.parent == commands]
    return {name for path in found for name in _imports(name_of(path), ROOT)}


@pytest.mark.parametrize("module", modules())
def test_a_module_has_a_test_file_or_is_small_and_tested_by_another(module):
    path = modules()[module]
    if not has_its_file(path):
        assert len(path.read_text().splitlines()) <= MOST_LINES, f"{module} has no test_{path.stem}.py"
        assert module in imported_by_tests() | imported_by_tested_modules(), f"nothing tests {module}"
