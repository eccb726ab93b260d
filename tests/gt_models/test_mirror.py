"""tests/ mirrors gt_models/: each module has a test file in the same place."""

from pathlib import Path

import pytest

from tests.conftest import ROOT

# several modules, one test file
TESTED_IN = {
    "api.py": "test_library.py",
    "__init__.py": "test_registry.py",
    "encodings/__init__.py": "encodings/test_encoding.py",
    "baselines/appnp.py": "baselines/test_gprgnn.py",
    "baselines/gat.py": "baselines/test_message_passing.py",
    "baselines/gcnii.py": "baselines/test_message_passing.py",
    "baselines/gin.py": "baselines/test_message_passing.py",
    "baselines/sage.py": "baselines/test_message_passing.py",
    "edge_transformer.py": "edge_transformer/test_edge_transformer.py",
    "encodings/blocks.py": "encodings/test_laplacian.py",
    "metadata.py": "test_library.py",
    "kernels/autocast.py": "kernels/test_multi_linear.py",
    "layers/equivariant_basis.py": "test_tokengt_attention.py",
    "layers/dropout_hash.py": "kernels/test_dropout.py",
    "layers/identifiers.py": "test_tokengt.py",
    "released/ppgt_node2subgraph.py": "released/test_ppgt.py",
    "transforms.py": "test_library.py",
}


def modules() -> list[str]:
    """Modules with code: the `__init__` of a package may contain only a docstring."""
    root = ROOT / "gt_models"
    found = [path.relative_to(root) for path in root.rglob("*.py")]
    return sorted(str(p) for p in found if p.name != "__init__.py" or "def " in (root / p).read_text())


def file_of(module: str) -> Path:
    path = Path(module)
    # a fast form is tested in the file of its reference
    name = path.parent.name if path.name == "__init__.py" else path.stem.removesuffix("_numba")
    return ROOT / "tests/gt_models" / TESTED_IN.get(module, path.parent / f"test_{name}.py")


@pytest.mark.parametrize("module", modules())
def test_every_module_has_a_test_file(module):
    assert file_of(module).is_file(), f"gt_models/{module} has no {file_of(module).relative_to(ROOT)}"


def test_the_list_of_exceptions_holds_modules_that_are_there():
    assert set(TESTED_IN) <= set(modules())
    assert all((ROOT / "tests/gt_models" / file).is_file() for file in TESTED_IN.values())
