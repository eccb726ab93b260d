"""What all tests share: two threads, the real files where they are at hand, and the parity cases."""

import gc
import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
CHROMIUM = next(
    (p for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if os.path.exists(p)), None
)

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it: tables are as wide as without a terminal, on all machines
# the same examples every time: a change is judged by what it changes. HYPOTHESIS=explore looks for new ones
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.register_profile("explore", derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


def pytest_collection_finish():
    """Searches for reference cycles no longer go through the modules that are loaded by now (of four parts of the suite: 67 s for 80)."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _threads():
    torch.set_num_threads(1 if os.environ.get("PYTEST_XDIST_WORKER") else 2)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def pytest_make_parametrize_id(val):
    """A test's name shows the length of bytes instead of the bytes: gzip's hold the second they were made in, and workers must collect the same names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture
def parity():
    """`parity("et_layer")` -> dict of float64 or long tensors by their prefixed names; skips where the file is absent."""

    def load(name: str) -> dict[str, torch.Tensor]:
        path = SHARED / "parity" / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} is not at hand")
        with np.load(path, allow_pickle=False) as arrays:
            return {k: torch.from_numpy(v) for k, v in arrays.items() if v.dtype.kind in "fiub"}

    return load


@pytest.fixture
def mirror() -> Path:
    """Folder of real data files; skips where it is absent."""
    path = Path(os.environ.get("GT_DATA_MIRROR", SHARED / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path}; set GT_DATA_MIRROR")
    return path


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window, driven by playwright; skips where one of them is absent."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
