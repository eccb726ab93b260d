"""Fixtures of all tests: threads, seeds, real data files, stored outputs of the authors' code, and a browser."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
CHROMIUM = next(
    (p for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if os.path.exists(p)), None
)

# workers, and some hundred child processes, would compile all modules of the repository
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# pytest-xdist sets it; without it all tables have the width of an output that is no terminal
os.environ.pop("COLUMNS", None)
# a shell lets background processes ignore Ctrl-C, and so would the processes that tests start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# the same examples in every run, so that a failure comes from a change; HYPOTHESIS=explore draws new ones
untimed = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("same", derandomize=True, **untimed)
hypothesis.settings.register_profile("explore", derandomize=False, **untimed)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS", "same"))


RARE, THRESHOLD = (100_000, 10, 10), gc.get_threshold()
gc.set_threshold(*RARE)  # imports and collection make many objects that stay


# files whose tests take the longest, in seconds down to ten: one of them at the end would leave the other workers idle
LONGEST = (
    "test_pipeline", "test_add_a_paper", "test_wheel", "gt_bench/runtime/test_threads",
    "test_notebook", "test_docs_commands", "gt_bench/search/test_optimize", "gt_bench/scheduling/test_local_queue",
    "gt_bench/pipeline/test_reproduce", "gt_bench/test_security", "faults/test_kills",
    "faults/test_disk", "gt_bench/tracking/test_ui",
    "gt_bench/experiment/test_launch_ddp", "gt_bench/pipeline/test_tune", "gt_bench/runtime/test_exit_status",
    "gt_bench/runtime/test_resources", "gt_bench/pipeline/test_leaderboard",
    "gt_models/test_compile", "gt_models/kernels/test_forms",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    order = {ROOT / "tests" / f"{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def pytest_collection_finish():
    """Exclude the modules that are loaded by now from garbage collection, which makes tests about 15 % faster."""
    gc.freeze()
    gc.set_threshold(*THRESHOLD)


@pytest.fixture(autouse=True, scope="session")
def _threads():
    threads = 1 if os.environ.get("PYTEST_XDIST_WORKER") else 2
    torch.set_num_threads(threads)
    threadpool_limits(threads)


@pytest.fixture(autouse=True, scope="session")
def _unmodified_code():
    """Take the code for the one whose golden values are stored: else an edit costs golden runs of a hundred cells.

    Rows of shipped files are cached in a folder of their own, because this comparison did not take place. Child
    processes do compare.
    """
    from gt_bench.experiment import modified_code
    from gt_bench.leaderboard import remembered

    with pytest.MonkeyPatch.context() as patch:
        for name in ("differences", "known_differences"):
            patch.setattr(modified_code, name, lambda wanted, *_, **__: dict.fromkeys(wanted))
        patch.setattr(remembered, "FOLDER", remembered.FOLDER.with_name("tests"))
        yield


@pytest.fixture(autouse=True, scope="module")
def _freed_memory():
    """Return what a module freed to the system: otherwise a worker keeps the largest it ever needed, in pieces."""
    yield
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def pytest_make_parametrize_id(val):
    """Name bytes by their length: gzip writes the time into them, and all workers must collect the same names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture
def parity():
    """`parity("et_layer")` returns stored tensors (float64 or long) by name; skips if the file does not exist."""

    def load(name: str) -> dict[str, torch.Tensor]:
        path = SHARED / "parity" / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} does not exist")
        with np.load(path, allow_pickle=False) as arrays:
            return {k: torch.from_numpy(v) for k, v in arrays.items() if v.dtype.kind in "fiub"}

    return load


@pytest.fixture
def mirror() -> Path:
    """Folder of real data files; skips if it does not exist."""
    path = Path(os.environ.get("GT_DATA_MIRROR", SHARED / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path}; set GT_DATA_MIRROR")
    return path


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window, driven by playwright; skips if one of them is not installed."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()
