"""Read pickles with an unpickler that builds arrays, tensors and plain containers, and calls nothing else.

Therefore a file may be read before its digest is known: the digest is pinned if the statistics are the published ones.
"""

import collections
import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.readers import dataset_errors
from gt_bench.utils.errors import DatasetError

_RECONSTRUCT: Any = np.zeros(0).__reduce__()[0]
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool")


def load_pickle(content: bytes, file: str | Path = "") -> Any:
    """Load a pickle of numbers, text, containers, numpy arrays and torch tensors.

    Args:
        content: the pickle.
        file: the file, for error messages.

    Returns:
        The unpickled object.

    Raises:
        DatasetError: the pickle is damaged or contains something else.
    """
    with dataset_errors(file, "not a readable pickle of arrays"):
        _check_sizes(content)
        return _Unpickler(io.BytesIO(content)).load()


def load_torch(content: bytes | Path, file: str | Path) -> Any:
    """Load a file of `torch.save` with tensors, arrays and plain containers.

    Args:
        content: the content of the file, or its path.
        file: the file, for error messages.

    Returns:
        The loaded object, on the CPU.

    Raises:
        DatasetError: the file is damaged or contains something else.
    """
    import torch

    source = io.BytesIO(content) if isinstance(content, bytes) else str(content)
    old_name = (_RECONSTRUCT, "numpy.core.multiarray._reconstruct")
    dtypes = [type(np.dtype(name)) for name in _DTYPES]
    with (
        dataset_errors(file, "not a readable file of tensors"),
        torch.serialization.safe_globals([bytes, _RECONSTRUCT, old_name, np.ndarray, np.dtype, *dtypes]),
    ):
        return torch.load(source, weights_only=True, map_location="cpu")


def _argument_formats() -> dict[int, tuple[str, int]]:
    """How the argument of each opcode is written: n `lines`, n `bytes`, or bytes after a `length` field of n bytes."""
    lines, length_fields = pickletools.UP_TO_NEWLINE, {-2: 1, -3: 4, -4: 4, -5: 8}
    formats = {}
    for opcode in pickletools.opcodes:
        size = opcode.arg.n if opcode.arg else 0
        if size < lines:
            formats[ord(opcode.code)] = ("length", length_fields[size])
        elif size == lines:
            formats[ord(opcode.code)] = ("lines", 2 if opcode.name in ("GLOBAL", "INST") else 1)
        else:
            formats[ord(opcode.code)] = ("bytes", size)
    return formats


_FORMATS = _argument_formats()
_PUTS = {ord(opcode.code) for opcode in pickletools.opcodes if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT")}


def _check_sizes(content: bytes) -> None:
    """Raise DatasetError if unpickling would allocate more memory than the content can fill.

    Before it reads on, pickle allocates a memo for the largest index, and a buffer for the stated length of bytes.
    """

    def check_memo_index(in_range: bool, place: int) -> None:
        if not in_range:
            raise DatasetError("stores an object at an index above the number of objects", place=f"byte {place:,}")

    place, count, end = 0, 0, len(content)
    while place < end:
        opcode = content[place]
        if opcode not in _FORMATS:  # not a pickle: loading it raises
            return
        how, width = _FORMATS[opcode]
        place, count = place + 1, count + 1
        if how == "bytes":
            if opcode in _PUTS:
                check_memo_index(int.from_bytes(content[place : place + width], "little") <= count, place - 1)
            place += width
        elif how == "lines":
            for _ in range(width):
                start, place = place, content.find(b"\n", place) + 1
                if not place:
                    return
            if opcode in _PUTS:
                index = content[start : place - 1]
                check_memo_index(len(index) < 20 and index.isdigit() and int(index) <= count, start - 1)
        else:
            length = int.from_bytes(content[place : place + width], "little")
            available = max(0, end - place - width)
            if length > available:
                problem = f"states a length of {length:,} bytes, {available:,} follow"
                raise DatasetError(problem, place=f"byte {place - 1:,}", value=length)
            place += width + length
        if opcode == pickle.STOP[0]:
            return


def _empty_array(*_: Any) -> Any:
    """Replace numpy's `_reconstruct`: make an empty array, whose shape is set with its content."""
    return _RECONSTRUCT(np.ndarray, (0,), b"b")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("_reconstruct", "scalar"):
            return _empty_array if name == "_reconstruct" else np.zeros(1)[0].__reduce__()[0]
        if (module, name) not in _ALLOWED:
            problem = f"the pickle names {module}.{name}, which is not allowed in data"
            raise DatasetError(problem, value=f"{module}.{name}")
        return _ALLOWED[module, name]


def _rebuild_tensor(*arguments: Any) -> Any:
    from torch._utils import _rebuild_tensor_v2

    tensor = _rebuild_tensor_v2(*arguments)
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        problem = f"the pickle names a tensor of {tensor.numel():,} entries, more than it contains"
        raise DatasetError(problem, value=tensor.numel())
    return tensor


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("numpy", "ndarray"): None,  # only an argument of `_reconstruct`, never called
    ("numpy", "dtype"): np.dtype,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch.storage", "_load_from_bytes"): lambda content: load_torch(content, "a tensor's storage"),
    ("__builtin__", "bytes"): lambda: b"",  # an empty array in an old protocol
    ("builtins", "bytes"): lambda: b"",
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1") if encoding == "latin1" else b"",
}
