"""Pickles of known files, read by an unpickler that can build arrays, tensors and plain containers and call nothing else.

So a file may come here before any digest of it is known: its digest is pinned once its statistics are the published ones.
"""

# mypy: disable-error-code="assignment"

import collections
import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.utils.errors import DatasetError

_DAMAGED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    EOFError,
    OSError,
    MemoryError,
    OverflowError,
    RuntimeError,
)
_DAMAGED += (pickle.UnpicklingError, ImportError, NotImplementedError, LookupError, AssertionError)
_DAMAGED += (SystemError,)  # what numpy raises for a dtype whose state is damaged
_RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]


def load_pickle(content: bytes, where: Any) -> Any:
    """A pickle of numbers, text, containers, numpy arrays and torch tensors. Raises DatasetError for anything else."""
    try:
        _check_sizes(content, where)
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
            [
                bytes,
                _RECONSTRUCT,
                (_RECONSTRUCT, "numpy.core.multiarray._reconstruct"),
                np.ndarray,
                np.dtype,
                *_dtypes(),
            ]
        ):
            return torch.load(source, weights_only=True, map_location="cpu")
    except _DAMAGED as error:
        raise DatasetError(
            f"{where}: not a readable file of tensors ({type(error).__name__}: {str(error)[:200]})"
        ) from error


def _widths() -> dict[int, tuple[str, int]]:
    """By opcode how its argument is written: so many `lines`, so many `bytes`, or a `length` of so many bytes before it."""
    lines, counted = pickletools.UP_TO_NEWLINE, {-2: 1, -3: 4, -4: 4, -5: 8}
    widths = {}
    for opcode in pickletools.opcodes:
        size = opcode.arg.n if opcode.arg else 0
        how = ("lines", 2 if opcode.name in ("GLOBAL", "INST") else 1) if size == lines else ("bytes", size)
        widths[ord(opcode.code)] = how if size >= lines else ("length", counted[size])
    return widths


_WIDTHS = _widths()
_PUTS = {ord(opcode.code) for opcode in pickletools.opcodes if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT")}


def _check_sizes(content: bytes, where: Any) -> None:
    """Raises DatasetError where a pickle asks for more memory than it can fill: pickle makes room for whatever number an object is stored
    under, and for whatever length an array of bytes is said to have, before it reads on."""
    place, count, end = 0, 0, len(content)
    while place < end:
        opcode = content[place]
        how, width = _WIDTHS.get(opcode, ("end", 0))
        place, count = place + 1, count + 1
        if how == "end":  # no pickle: loading it says so
            return
        if how == "bytes":
            if opcode in _PUTS and int.from_bytes(content[place : place + width], "little") > count:
                raise DatasetError(
                    f"{where}: byte {place - 1:,} stores an object under a number that is larger than the number of objects"
                )
            place += width
        elif how == "lines":
            for _ in range(width):
                start, place = place, content.find(b"\n", place) + 1
                if not place:
                    return
            if opcode in _PUTS and (
                place - start > 20
                or not content[start : place - 1].isdigit()
                or int(content[start : place - 1]) > count
            ):
                raise DatasetError(
                    f"{where}: byte {start - 1:,} stores an object under a number that is larger than the number of objects"
                )
        else:
            length = int.from_bytes(content[place : place + width], "little")
            if length > end - place - width:
                raise DatasetError(
                    f"{where}: byte {place - 1:,} says that {length:,} bytes follow, and {max(0, end - place - width):,} do"
                )
            place += width + length
        if opcode == pickle.STOP[0]:
            return


def _empty_array(*_: Any) -> Any:
    """What numpy's `_reconstruct` is called for in every pickle: an array of no entries, whose shape comes with its content."""
    return _RECONSTRUCT(np.ndarray, (0,), b"b")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _empty_array
        if name == "scalar" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(1)[0].__reduce__()[0]
        if (module, name) not in _KNOWN:
            raise DatasetError(f"the pickle names {module}.{name}, which is not read from data")
        return _KNOWN[module, name]


def _rebuild_tensor(*arguments: Any) -> Any:
    from torch._utils import _rebuild_tensor_v2

    tensor = _rebuild_tensor_v2(*arguments)
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise DatasetError(f"the pickle names a tensor of {tensor.numel():,} entries, more than it holds")
    return tensor


def _dtypes() -> list[type]:
    return [type(np.dtype(name)) for name in ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")]


_KNOWN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("numpy", "ndarray"): None,  # only an argument of `_reconstruct`; nothing calls it
    ("numpy", "dtype"): np.dtype,
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: _rebuild_tensor(*arguments),
    ("torch.storage", "_load_from_bytes"): lambda content: load_torch(content, "a tensor's storage"),
    ("__builtin__", "bytes"): lambda: b"",  # an empty array in an old protocol
    ("builtins", "bytes"): lambda: b"",
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1") if encoding == "latin1" else b"",
}
