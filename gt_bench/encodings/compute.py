"""Computes encodings of a dataset and writes their files. gt_bench/encodings/cache.py describes and reads them.

The results are bit-identical for any number of threads and processes: batches of graphs are fixed, and each is computed
by one thread. Another linear algebra library may compute other last digits. The header of the file and every record
name the one that was used.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypedDict, cast

import numpy as np
import scipy.sparse.linalg  # a library that is loaded later would not be limited to one thread
import torch
from filelock import FileLock, Timeout
from threadpoolctl import threadpool_info, threadpool_limits
from torch import LongTensor, Tensor

from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.cache import (  # fmt: skip
    STORE_LIMIT,
    batches_of,
    damaged,
    header_of,
    read_arrays,
    read_note,
    row_pointers,
    rows_of,
    sealed,
    shift,
    stale_parts,
    storage,
    with_digest,
)
from gt_bench.encodings.header import ArrayHeader, EncodingHeader
from gt_bench.runtime.resources import cores
from gt_bench.runtime.threads import computing_with
from gt_bench.utils import tempfiles
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import atomic_file, make_folder, write_json
from gt_bench.utils.json_types import Settings
from gt_models.encodings import Encoding, compute_with_flags, find_encoding


class ArrayEntry(TypedDict):
    """Entry of an array in the table of a safetensors file. Offsets are relative to the end of the preamble."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


Layout = dict[str, ArrayEntry]

# bytes reserved for the header of a file, whose digests are known only at the end
_PREAMBLE = 4096
# several processes are used if one process would need more seconds than this; a process needs about 3 s to start
_WORTH_PROCESSES = 15.0
# libraries with threads do not work after a fork
_START = "spawn"
# encodings of counts, copies and powers of two, which are bit-identical on every machine
_EXACT = frozenset({"degree", "order", "position", "shortest-path", "near-orthogonal"})
_FORMATS = {"F32": "<f4", "I32": "<i4"}


def encode(
    packed: PackedDataset,
    folder: str | Path,
    name: str,
    arguments: Settings,
    *,
    limit: int = STORE_LIMIT,
    jobs: int | None = None,
) -> Path:
    """Computes one encoding of all graphs, unless a valid file exists. Prints what was done, its size and its time.

    Safe for concurrent processes: one computes, the others wait.

    Args:
        packed: the dataset.
        folder: data/encodings/DATASET.
        name: name of the encoding.
        arguments: its arguments, as in a recipe.
        limit: number of bytes above which an encoding that is cheap to compute is computed for each batch.
        jobs: number of processes, of one thread each. None for the number of cores if the work takes long enough. The
            results do not depend on it.

    Returns:
        KEY.safetensors, or KEY.json for an encoding that is computed for each batch.

    Raises:
        EncodingError: the encoding or an argument does not exist.
        WriteError: the file cannot be written, for example because the disk is full. Every file is unchanged.
    """
    folder, encoding = Path(folder), find_encoding(name)
    key, full = encoding.key(arguments), encoding.arguments(arguments)
    size, on_the_fly = storage(packed, encoding, full, limit)
    path = folder / f"{key}{'.json' if on_the_fly else '.safetensors'}"
    other = folder / f"{key}{'.safetensors' if on_the_fly else '.json'}"
    make_folder(folder.parent / ".locks")
    with FileLock(folder.parent / ".locks" / f"{folder.name}-{key}.lock"):
        for left_over in (*_temporaries(folder, path.name), *_temporaries(folder, other.name)):
            left_over.unlink(missing_ok=True)
        if other.exists():
            other.unlink()
        if on_the_fly:
            reason = f"it would use {_mib(size)} on disk, more than the limit of {_mib(limit)}"
            note = with_digest(header_of(packed, encoding, full) | {"on_the_fly": reason})
            if not path.exists() or read_note(path) != note:
                write_json(path, note)
            _print(folder, key, f"computed for each batch on its device: {reason}")
            return path
        problem = _problem(packed, path, encoding, full)
        if problem is None:
            _print(folder, key, f"up to date, {_mib(path.stat().st_size)}")
            return path
        if path.exists():
            _print(folder, key, f"computed again: {problem}")
        start = time.perf_counter()
        flags = _write(packed, path, encoding, full, jobs)
        seconds = time.perf_counter() - start
        _print(folder, key, f"{packed.num_graphs:,} graphs, {_mib(path.stat().st_size)}, {seconds:.1f} s")
        for flag, count in flags.items():
            if count:
                text = f"{flag.replace('_', ' ')} in {count:,} of the graphs: their vectors are chosen by a fixed rule"
                _print(folder, key, text)
        return path


def sweep(folder: str | Path) -> None:
    """Removes temporary files of killed processes from data/encodings/DATASET. Files in use remain."""
    folder = Path(folder)
    for path in _temporaries(folder):
        key = path.name[1:].rpartition(".")[0].removesuffix(".safetensors").removesuffix(".json")
        with contextlib.suppress(Timeout), FileLock(folder.parent / ".locks" / f"{folder.name}-{key}.lock", timeout=0):
            path.unlink(missing_ok=True)
    tempfiles.sweep(folder / "cells")


def _temporaries(folder: Path, name: str | None = None) -> list[Path]:
    """Returns the temporary files of `new_file` for the file `name`, or for any file of the folder."""
    pattern = re.compile(rf"\.{re.escape(name) if name else r'.+[.](safetensors|json)'}\.[a-z0-9_]{{8}}")
    return [path for path in folder.glob(".*") if pattern.fullmatch(path.name)]


def _problem(packed: PackedDataset, path: Path, encoding: Encoding, arguments: Settings) -> str | None:
    """Reads the whole file. Returns why it cannot be used, or None if it can."""
    if not path.exists():
        return "file not found"
    try:
        header, arrays = read_arrays(path)
    except DatasetError as error:
        return error.problem
    expected = header_of(packed, encoding, arguments)
    if stale := stale_parts(header, expected):
        return f"its {' and '.join(stale)} changed"
    wrong = damaged(header, arrays)
    return f"wrong checksum of {', '.join(wrong)}" if wrong else None


def _write(
    packed: PackedDataset, path: Path, encoding: Encoding, arguments: Settings, jobs: int | None
) -> dict[str, int]:
    """Computes batches and writes them through a memory map, which bounds memory.

    Returns:
        {flag: number of graphs that have it}.
    """
    ranges, counts = batches_of(packed), Counter[str]()
    with atomic_file(path) as temporary, computing_with(1):
        start, first = time.perf_counter(), ranges[0]
        graphs = cast(LongTensor, torch.arange(*first))
        arrays, flags = compute_with_flags(encoding.name, packed.batch(graphs), graphs=graphs, **arguments)
        layout = _layout(encoding, arrays, encoding.widths(**arguments), row_pointers(packed))
        _allocate(temporary, _PREAMBLE + max(a["data_offsets"][1] for a in layout.values()))
        task = _Task(packed, encoding.name, arguments, temporary, layout)
        task.put(graphs, arrays)
        counts.update(_counts(flags))
        seconds, rest = time.perf_counter() - start, ranges[1:]
        if jobs is None:
            jobs = cores() if seconds * len(rest) > _WORTH_PROCESSES else 1
        for counted in _progress(task.each(rest, min(jobs, len(rest))), packed, ranges):
            counts.update(counted)
        maps = task.maps
        stored: dict[str, ArrayHeader] = {
            name: {
                "rows": encoding.arrays[name],
                "shape": layout[name]["shape"],
                "dtype": layout[name]["dtype"],
                "sha256": hashlib.sha256(array.data).hexdigest(),
            }
            for name, array in maps.items()
        }
        for array in maps.values():
            if isinstance(array, np.memmap):
                array.flush()
        header = header_of(packed, encoding, arguments) | {"arrays": stored}
        header |= {"flags": dict(counts)} if counts else {}
        header |= {} if encoding.name in _EXACT else {"computed_by": libraries()}
        with open(temporary, "r+b") as file:
            file.write(_preamble(layout, sealed(with_digest(header)), _PREAMBLE))
    return dict(counts)


class _Task:
    """The computation of one file. Results do not depend on which process computes which batch."""

    def __init__(self, packed: PackedDataset, name: str, arguments: Settings, file: str, layout: Layout):
        self.packed, self.encoding, self.arguments = packed, find_encoding(name), arguments
        self.parts = (packed.folder, name, arguments, file, layout)
        self.pointers, self.maps = row_pointers(packed), {}
        for array, entry in layout.items():
            dtype, shape = np.dtype(_FORMATS[entry["dtype"]]), tuple(entry["shape"])
            offset = _PREAMBLE + entry["data_offsets"][0]
            self.maps[array] = np.memmap(file, dtype, "r+", offset, shape) if np.prod(shape) else np.zeros(shape, dtype)

    def each(self, ranges: list[tuple[int, int]], jobs: int) -> Iterator[dict[str, int]]:
        """Computes batches in `jobs` processes. Yields the counts of flags of each batch, in order."""
        if jobs < 2:
            yield from map(self.run, ranges)
            return
        with ProcessPoolExecutor(jobs, multiprocessing.get_context(_START), _start_worker, self.parts) as pool:
            try:
                yield from pool.map(_run_in_worker, ranges)
            except BrokenProcessPool:
                name = self.packed.header.name
                raise DatasetError(
                    "a process was killed, probably out of memory",
                    file=f"dataset {name!r}",
                    place=f"encoding {self.encoding.name}",
                    remedy=f"use fewer processes: python -m stages.encode {name} --jobs 1",
                ) from None
            finally:
                pool.shutdown(cancel_futures=True)

    def run(self, bounds: tuple[int, int]) -> dict[str, int]:
        graphs = cast(LongTensor, torch.arange(*bounds))
        arrays, flags = compute_with_flags(
            self.encoding.name, self.packed.batch(graphs), graphs=graphs, **self.arguments
        )
        self.put(graphs, arrays)
        return _counts(flags)

    def put(self, graphs: LongTensor, arrays: dict[str, Tensor]) -> None:
        for name, kind in self.encoding.arrays.items():
            value = arrays[name].int() if arrays[name].dtype == torch.int64 else arrays[name]
            value = (
                shift(value, kind, self.pointers, graphs, to_batch=False) if name in self.encoding.offsets else value
            )
            self.maps[name][rows_of(self.pointers[kind], graphs)] = value.numpy()


# set in worker processes
_worker_task: _Task | None = None


def _start_worker(folder: Path, name: str, arguments: Settings, file: str, layout: Layout) -> None:
    global _worker_task
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit_threads()
    _worker_task = _Task(PackedDataset.open(folder), name, arguments, file, layout)


def _end_with_parent() -> None:
    """Ends this process when its parent ends. Otherwise, processes of a pool wait forever if their parent is killed."""
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _run_in_worker(bounds: tuple[int, int]) -> dict[str, int]:
    assert _worker_task is not None  # set by `_start_worker`
    return _worker_task.run(bounds)


def limit_threads() -> None:
    """Limits all libraries of this process to one thread: sums over several threads have other last digits."""
    torch.set_num_threads(1)
    threadpool_limits(1)


def libraries() -> dict[str, str]:
    """Returns the versions of the libraries that decide last digits, and the processor type that they detect."""
    mkl = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
    other = re.search(r"LAPACK_INFO=(\w+)", torch.__config__.show())
    lapack = f"mkl {mkl[1]}" if mkl else other[1] if other else "unknown LAPACK"
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    blas = sorted(
        {" ".join(str(pool[k]) for k in ("internal_api", "version", "architecture") if pool.get(k)) for pool in pools}
    )
    return {
        "torch": f"{torch.__version__}, {lapack}, {torch.backends.cpu.get_cpu_capability()}",
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "blas of numpy and scipy": ", ".join(blas) or "unknown",
    }


def _counts(flags: dict[str, Tensor]) -> dict[str, int]:
    return {flag: int(graphs.sum()) for flag, graphs in flags.items()}


def _layout(
    encoding: Encoding, arrays: dict[str, Tensor], widths: dict[str, int], pointers: dict[str, Tensor]
) -> Layout:
    """Returns the table of the arrays of a safetensors file."""
    layout: Layout = {}
    offset = 0
    for name in sorted(encoding.arrays):
        shape = [int(pointers[encoding.arrays[name]][-1]), widths[name]]
        size = shape[0] * shape[1] * 4
        layout[name] = {
            "dtype": "F32" if arrays[name].is_floating_point() else "I32",
            "shape": shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    return layout


def _allocate(path: str, size: int) -> None:
    """Reserves disk space: on a full disk, a write to a memory-mapped hole would kill the process."""
    with open(path, "r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _preamble(layout: Layout, header: EncodingHeader, size: int) -> bytes:
    text = json.dumps({"__metadata__": {"header": json.dumps(header, sort_keys=True)}, **layout}).encode()
    if len(text) > size - 8:
        raise ValueError(f"header of {len(text)} bytes does not fit {size}")
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8)


def _progress(
    results: Iterator[dict[str, int]], packed: PackedDataset, ranges: list[tuple[int, int]]
) -> Iterator[dict[str, int]]:
    """Yields results of all ranges but the first and shows a progress bar."""
    from tqdm import tqdm

    quiet = not sys.stderr.isatty()
    with tqdm(
        total=packed.num_graphs, initial=ranges[0][1], desc=packed.header.name, unit="graph", disable=quiet, leave=False
    ) as bar:
        for (first, end), result in zip(ranges[1:], results, strict=True):
            bar.update(end - first)
            yield result


def _print(folder: Path, key: str, text: str) -> None:
    print(f"{folder.name}: {key}: {text}", flush=True)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
