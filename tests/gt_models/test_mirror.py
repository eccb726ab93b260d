"""tests/gt_models mirrors gt_models: each module has a test file of its name in the same place."""

from pathlib import Path

import pytest

from tests.conftest import ROOT


def modules() -> list[str]:
    """Modules with code. Other tests of a package cover its `__init__` if this only imports."""
    root = ROOT / "gt_models"
    found = [path.relative_to(root) for path in root.rglob("*.py")]
    return sorted(str(p) for p in found if p.name != "__init__.py" or "class " in (root / p).read_text())


@pytest.mark.parametrize("module", modules())
def test_every_module_has_a_test_file(module):
    path = Path(module)
    # a fast form is tested in the file of its reference
    name = path.parent.name if path.name == "__init__.py" else path.stem.removesuffix("_numba")
    folder = ROOT / "tests/gt_models" / path.parent
    # tests of a module with several parts are in a folder of its name
    assert any((place / f"test_{name}.py").is_file() for place in (folder, folder / name)), f"no test_{name}.py"
