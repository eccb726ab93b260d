"""Torch's default settings, which a notebook, a script or a user's file may have changed."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def torch_defaults() -> Iterator[None]:
    """Use torch's default dtype, device and precision inside the block, and restore the present ones after it.

    Numbers of every run and encoding depend on them. Torch is not imported, which takes seconds: until someone imports
    it, its settings are the defaults.
    """
    before = None
    if "torch" in sys.modules:
        import torch

        before = torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.get_default_device()
        _set(torch.float32, "highest", torch.device("cpu"))
    try:
        yield
    finally:
        if "torch" in sys.modules:
            import torch

            _set(*(before or (torch.float32, "highest", torch.device("cpu"))))


def _set(dtype: "torch.dtype", precision: str, device: "torch.device") -> None:
    import torch

    torch.set_default_dtype(dtype)
    torch.set_float32_matmul_precision(precision)
    # "cpu" would leave a mode that torch.compile does not support
    if torch.get_default_device() != device:
        torch.set_default_device(None if device.type == "cpu" else device)
