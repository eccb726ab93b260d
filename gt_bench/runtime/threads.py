"""Threads: a run computes with as many as its recipe says, whatever the machine, its cores or its environment offer.

Nothing here imports torch at the top: libraries read their variables once, when they are loaded, and `settle_environment` comes before that.
"""

import contextlib
import os
from collections.abc import Iterator

# Threads that wait sleep. Spinning is up to twice as fast on a machine of one's own, and 20 times as slow beside other work (docs/speed.md).
WAITING = {"OMP_WAIT_POLICY": "passive"}
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Variables, by how their names begin, that choose threads or instructions and with them the order of sums
DECIDING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_",
    "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_CPU_", "NUMBA_OPT", "NUMBA_DISABLE_JIT",
    "ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
HARMLESS = frozenset({"KMP_DUPLICATE_LIB_OK"})  # macOS with two OpenMP libraries does not start without it


def settle_environment() -> None:
    """Takes out of the environment what would decide a number, and sets how threads wait. For entry points, before torch or numpy is loaded;
    child processes inherit it."""
    for name in [name for name in os.environ if name.startswith(DECIDING) and name not in HARMLESS]:
        del os.environ[name]
    os.environ.update(dict.fromkeys(ONE_THREAD, "1") | WAITING)


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """This many threads in torch, OpenMP and BLAS; afterwards as many as before."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)
