"""Pickles of known files, read by an unpickler that can build arrays, tensors and plain containers and call nothing else.

So a file may come here before any digest of it is known: its digest is pinned once its statistics are the published ones.
"""

# mypy: disable-error-code="assignment"

import collections
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from stages.errors import DatasetError

_DAMAGED = (ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError, MemoryError, OverflowError, RuntimeError)
_DAMAGED += (pickle.UnpicklingError, ImportError, NotImplementedError, LookupError, AssertionError)
_DAMAGED += (SystemError,)  # what numpy raises for a dtype whose state is damaged
_RECONSTRUCT = np.zeros(0).__reduce__()[0]


def load_pickle(content: bytes, where: Any) -> Any:
    """A pickle of numbers, text, containers, numpy arrays and torch tensors. Raises DatasetError for anything else."""
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except DatasetError:
        raise
    except _DAMAGED as error:
        raise DatasetError(f"{where}: not a readable pickle of arrays ({type(error).__name__}: {error})") from error


def load_torch(content: bytes | Path, where: Any) -> Any:
    """A file of torch.save that holds tensors, arrays and plain containers. Raises DatasetError for anything else."""
    import torch

    source = io.BytesIO(content) if isinstance(content, bytes) else str(content)
    try:
        with torch.serialization.safe_globals(
            [bytes, _RECONSTRUCT, (_RECONSTRUCT, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype, *_dtypes()]  # type: ignore[list-item]
        ):
            return torch.load(source, weights_only=True, map_location="cpu")
    except _DAMAGED as error:
        raise DatasetError(f"{where}: not a readable file of tensors ({type(error).__name__}: {str(error)[:200]})") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _RECONSTRUCT
        if name == "scalar" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(1)[0].__reduce__()[0]
        if (module, name) not in _KNOWN:
            raise DatasetError(f"the pickle names {module}.{name}, which is not read from data")
        return _KNOWN[module, name]


def _rebuild_tensor(*arguments: Any) -> Any:
    from torch._utils import _rebuild_tensor_v2

    return _rebuild_tensor_v2(*arguments)


def _dtypes() -> list[type]:
    return [type(np.dtype(name)) for name in ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")]


_KNOWN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: _rebuild_tensor(*arguments),
    ("torch.storage", "_load_from_bytes"): lambda content: load_torch(content, "a tensor's storage"),
    ("__builtin__", "bytes"): lambda: b"",  # an empty array in an old protocol
    ("builtins", "bytes"): lambda: b"",
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1") if encoding == "latin1" else b"",
}
