"""Number of threads of a run: the recipe decides it, not the machine or the environment.

This module does not import torch at its top: libraries read their environment variables when they are loaded, and
`settle_environment` must run before that.
"""

import contextlib
import os
from collections.abc import Iterator

# Waiting threads sleep. Spinning is up to twice as fast on an idle machine, and 20 times slower on a busy one
# (docs/speed.md).
WAITING = {"OMP_WAIT_POLICY": "passive"}
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Prefixes of variables that choose threads or instructions, and therefore the order of sums.
DECIDING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_",
    "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_CPU_", "NUMBA_OPT", "NUMBA_DISABLE_JIT",
    "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
HARMLESS = frozenset({"KMP_DUPLICATE_LIB_OK"})  # macOS with two OpenMP libraries does not start without it


def settle_environment() -> None:
    """Remove environment variables that would change numbers, and set how threads wait.

    Entry points call it before torch or numpy is loaded. Child processes inherit the result.
    """
    for name in [name for name in os.environ if name.startswith(DECIDING) and name not in HARMLESS]:
        del os.environ[name]
    os.environ.update(dict.fromkeys(ONE_THREAD, "1") | WAITING)


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Use this number of threads in torch, OpenMP and BLAS inside the block."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)
