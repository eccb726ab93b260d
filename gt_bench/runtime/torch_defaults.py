"""Torch's default settings, which a notebook, a script or a user's file may have changed."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_defaults() -> Iterator[None]:
    """Use torch's default dtype, device and precision inside the block, and restore the present ones after it.

    Numbers of every run and encoding depend on them.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    precision = torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    if device.type != "cpu":
        torch.set_default_device(None)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        # "cpu" would leave a mode that torch.compile does not support
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
