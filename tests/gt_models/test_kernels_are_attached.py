"""Kernels are attached to models from outside (`gt_models.layers.accelerated`); other imports have a reason."""

import ast
from pathlib import Path

from tests.conftest import ROOT

LIBRARY = ROOT / "gt_models"
SUM = "a product with a sparse matrix, an operation of its own as torch's are"
ALLOWED = {
    "layers/convolutions.py": SUM,
    "layers/gcn_sum.py": SUM,
    "baselines/heterophilous_gnn.py": SUM,
    "baselines/linkx.py": SUM,
    "baselines/nodeformer.py": SUM,
    "encodings/random_walk.py": "powers of a matrix without a gradient, written into an array",
}


def imports_kernels(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = getattr(node, "module", None) or ""
        if any("kernels" in name.split(".") for name in (module, *names)):
            return True
    return False


def test_no_other_file_imports_a_kernel():
    files = [path for path in LIBRARY.rglob("*.py") if "kernels" not in path.relative_to(LIBRARY).parts]
    found = {str(path.relative_to(LIBRARY)) for path in files if imports_kernels(path)}
    assert found - set(ALLOWED) == set(), "attach the fast path from gt_models/kernels/attached/"
    assert set(ALLOWED) - found == set(), "take these off the list, so that it can only shrink"
