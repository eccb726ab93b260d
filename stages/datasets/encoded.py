"""Encodings beside a dataset: computed once in batches of graphs, stored as safetensors, memory-mapped, gathered by graph ids.

data/encodings/DATASET/KEY.safetensors holds the arrays of one encoding with one set of arguments (KEY spells both), and in its
metadata what they were computed from. Where storing costs too much, KEY.json stands in its place and says that the encoding is
computed for each batch.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from torch import LongTensor, Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings import Encoding, EncodingError, compute, find_encoding
from stages.datasets.inspection import DatasetError
from stages.datasets.packed import PackedDataset
from stages.files import WriteError, write_json
from stages.fingerprint import code_digest

# An encoding that is cheap to compute is stored up to here.
STORE_LIMIT = 2 * 2**30
# Node pairs per batch while encoding: bounds memory to a few hundred megabytes whatever the dataset.
_PAIRS_PER_BATCH = 2**21
_FORMATS = {"F32": "<f4", "I32": "<i4"}


class EncodedDataset:
    """The encodings that one run reads.

    Args:
        packed: the dataset.
        folder: data/encodings/DATASET.
        requests: encoding name -> its arguments, as under `encodings:` in a recipe.

    Raises EncodingError for an unknown encoding or argument, DatasetError where one is not computed yet, is stale, or its file is damaged.
    """

    def __init__(self, packed: PackedDataset, folder: str | Path, requests: dict[str, dict[str, Any]]):
        self.packed, self.folder = packed, Path(folder)
        self._stored: list[tuple[Encoding, dict[str, Tensor]]] = []
        self._computed: list[tuple[Encoding, dict[str, Any]]] = []
        self.digests: dict[str, str] = {}
        owner: dict[str, str] = {}
        for name, given in sorted(requests.items()):
            encoding = find_encoding(name)
            for array in encoding.arrays:
                if owner.setdefault(array, name) != name:
                    raise EncodingError(f"encodings {owner[array]!r} and {name!r} both give {array!r}: ask for one of them")
            key, arguments = encoding.key(given), encoding.arguments(given)
            header, arrays = _open(packed, self.folder, encoding, key)
            self.digests[key] = header["digest"]
            if arrays is None:
                self._computed.append((encoding, arguments))
            else:
                self._stored.append((encoding, arrays))

    @cached_property
    def digest(self) -> str:
        """Of the stored arrays, or of algorithm and arguments where the encoding is computed on the fly."""
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _pointers(self) -> dict[str, Tensor]:
        """Offsets of the graphs in the rows of each kind of array, long [B + 1]."""
        return row_pointers(self.packed)

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Sets the encodings of `batch`, which holds the graphs of these ids in this order, and returns it."""
        graphs = graphs.long().cpu()
        device = batch.ptr.device
        rows: dict[str, slice | LongTensor] = {}
        for encoding, arrays in self._stored:
            for array, kind in encoding.arrays.items():
                if kind not in rows:
                    rows[kind] = _rows(self._pointers[kind], graphs)
                value = _take(arrays[array], rows[kind])
                if array in encoding.offsets:
                    value = _shift(value, kind, self._pointers, graphs, to_batch=True)
                batch.encodings[array] = (value.long() if value.dtype == torch.int32 else value).to(device)
        for encoding, arguments in self._computed:
            batch.encodings |= compute(encoding.name, batch, graphs=graphs, **arguments)
        return batch


def encode(packed: PackedDataset, folder: str | Path, name: str, arguments: dict[str, Any], *, limit: int = STORE_LIMIT) -> Path:
    """Computes one encoding of every graph unless it is there and sound; returns KEY.safetensors, or KEY.json where it stays on the fly.

    Safe when several processes ask at once: one computes, the others wait. Prints what was done, its size and time.

    Args:
        packed: the dataset.
        folder: data/encodings/DATASET.
        name, arguments: the encoding, as in a recipe.
        limit: bytes above which an encoding that is cheap to compute is left to be computed for each batch.

    Raises EncodingError for an unknown encoding or argument, WriteError on a full disk (then every file is as it was).
    """
    folder, encoding = Path(folder), find_encoding(name)
    key, full = encoding.key(arguments), encoding.arguments(arguments)
    size = encoding.num_bytes(full, packed.sizes, packed.num_edges)
    on_the_fly = encoding.on_the_fly and size > limit
    path = folder / f"{key}{'.json' if on_the_fly else '.safetensors'}"
    other = folder / f"{key}{'.safetensors' if on_the_fly else '.json'}"
    (folder.parent / ".locks").mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / ".locks" / f"{folder.name}-{key}.lock"):
        if other.exists():
            other.unlink()
        if on_the_fly:
            note = {**_header(packed, encoding, full), "on_the_fly": f"stored it would take {_mib(size)}, above the bound of {_mib(limit)}"}
            if not path.exists() or _read_note(path) != _with_digest(note):
                write_json(path, _with_digest(note))
            _say(folder, key, f"on the fly, for each batch on its device: {note['on_the_fly']}")
            return path
        problem = _problem(packed, path, encoding, full)
        if problem is None:
            _say(folder, key, f"there already, {_mib(path.stat().st_size)}")
            return path
        if path.exists():
            _say(folder, key, f"computed again: {problem}")
        start = time.perf_counter()
        _write(packed, path, encoding, full)
        _say(folder, key, f"{packed.num_graphs:,} graphs, {_mib(path.stat().st_size)}, {time.perf_counter() - start:.1f} s")
        return path


def algorithm_digest(name: str, arguments: dict[str, Any]) -> str:
    """sha256 of what decides an encoding besides the data: its code and its complete arguments."""
    encoding = find_encoding(name)
    content = [encoding.key(arguments), code_digest([encoding.module])]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def row_pointers(packed: PackedDataset) -> dict[str, Tensor]:
    """Kind of row -> offsets of the graphs in flat arrays of that kind, long [B + 1]."""
    sizes = packed.sizes
    start = sizes.new_zeros(1)
    return {
        "node": torch.cat([start, sizes.cumsum(0)]),
        "pair": torch.cat([start, (sizes**2).cumsum(0)]),
        "edge": packed.array("edge_ptr").long(),
        "graph": torch.arange(packed.num_graphs + 1),
    }


def _shift(value: Tensor, kind: str, pointers: dict[str, Tensor], graphs: LongTensor, to_batch: bool) -> Tensor:
    """Edge numbers within their graph (stored) <-> within the batch of `graphs` (what models read); -1 stays."""
    edges = pointers["edge"][graphs + 1] - pointers["edge"][graphs]
    rows = pointers[kind][graphs + 1] - pointers[kind][graphs]
    offset = torch.repeat_interleave(edges.cumsum(0) - edges, rows).to(value.dtype)[:, None]
    return torch.where(value < 0, value, value + offset if to_batch else value - offset)


def _rows(pointer: Tensor, graphs: LongTensor) -> slice | LongTensor:
    """Rows of these graphs; a slice where the ids follow one another."""
    if graphs.numel() and (graphs.numel() == 1 or bool((graphs.diff() == 1).all())):
        return slice(int(pointer[graphs[0]]), int(pointer[graphs[-1] + 1]))
    start, count = pointer[graphs], pointer[graphs + 1] - pointer[graphs]
    total = int(count.sum())
    return torch.arange(total) + torch.repeat_interleave(start - (count.cumsum(0) - count), count, output_size=total)


def _take(array: Tensor, rows: slice | LongTensor) -> Tensor:
    return array[rows].clone() if isinstance(rows, slice) else array.index_select(0, rows)


def _header(packed: PackedDataset, encoding: Encoding, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": packed.header.name,
        "encoding": encoding.name,
        "arguments": arguments,
        "data": packed.digest,
        "algorithm": algorithm_digest(encoding.name, arguments),
    }


def _with_digest(header: dict[str, Any]) -> dict[str, Any]:
    """With the digest that runs depend on: of the arrays where there are any, else of data and algorithm."""
    decisive = header.get("arrays") or {k: header[k] for k in ("data", "algorithm")}
    return header | {"digest": hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()}


def _open(packed: PackedDataset, folder: Path, encoding: Encoding, key: str) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    again = f"python -m stages.encode {packed.header.name}"
    path, note = folder / f"{key}.safetensors", folder / f"{key}.json"
    if path.exists():
        header, arrays = _read(path)
    elif note.exists():
        header, arrays = _read_note(note), None
        path = note
    else:
        raise DatasetError(f"{packed.header.name}: the encoding {key} is not computed yet; run: {again}")
    arguments = header.get("arguments", {})
    expected = _header(packed, encoding, arguments) if encoding.key(arguments) == key else {}
    stale = [k for k in ("data", "algorithm") if header.get(k) != expected.get(k)]
    if stale:
        raise DatasetError(f"{path}: computed from other {' and '.join(stale)}; run: {again}")
    return header, arrays


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and memory-mapped arrays. Raises DatasetError naming the file and the remedy."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["header"])
            arrays = {name: file.get_tensor(name) for name in header["arrays"]}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DatasetError(f"{path}: damaged ({error}); delete it and run: python -m stages.encode {path.parent.name}") from error
    return header, arrays


def _read_note(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        return {"digest": content["digest"], **content}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: damaged ({error}); delete it and run: python -m stages.encode {path.parent.name}") from error


def _problem(packed: PackedDataset, path: Path, encoding: Encoding, arguments: dict[str, Any]) -> str | None:
    """Why the file at `path` cannot be used as it is; None where it can. Reads all of it."""
    if not path.exists():
        return "not there"
    try:
        header, arrays = _read(path)
    except DatasetError as error:
        return str(error)
    stale = [k for k, v in _header(packed, encoding, arguments).items() if header.get(k) != v]
    if stale:
        return f"its {' and '.join(stale)} changed"
    damaged = [n for n, a in arrays.items() if hashlib.sha256(a.numpy()).hexdigest() != header["arrays"][n]["sha256"]]
    return f"{', '.join(damaged)} is not what was written" if damaged else None


def _write(packed: PackedDataset, path: Path, encoding: Encoding, arguments: dict[str, Any]) -> None:
    """Computes and writes batch after batch through a memory map: memory stays bounded however large the arrays are."""
    pointers = row_pointers(packed)
    widths = encoding.widths(**arguments)
    layout, temporary, maps = {}, None, {}
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        for graphs in _batches(pointers, packed):
            arrays = compute(encoding.name, packed.batch(graphs), graphs=graphs, **arguments)
            if not maps:
                layout, start = _layout(encoding, arrays, widths, pointers)
                _allocate(temporary, start + max(a["data_offsets"][1] for a in layout.values()))
                for name, entry in layout.items():
                    dtype = np.dtype(_FORMATS[entry["dtype"]])
                    shape, offset = tuple(entry["shape"]), start + entry["data_offsets"][0]
                    maps[name] = np.memmap(temporary, dtype, "r+", offset, shape) if np.prod(shape) else np.zeros(shape, dtype)
            for name, kind in encoding.arrays.items():
                value = arrays[name].int() if arrays[name].dtype == torch.int64 else arrays[name]
                value = _shift(value, kind, pointers, graphs, to_batch=False) if name in encoding.offsets else value
                maps[name][_rows(pointers[kind], graphs)] = value.numpy()
        sums = {n: {**_row_header(encoding, layout, n), "sha256": hashlib.sha256(m).hexdigest()} for n, m in maps.items()}
        for array in maps.values():
            if isinstance(array, np.memmap):
                array.flush()
        text = _preamble(layout, _with_digest({**_header(packed, encoding, arguments), "arrays": sums}), start)
        with open(temporary, "r+b") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({error.strerror}); free some space and run the same command again") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _layout(
    encoding: Encoding, arrays: dict[str, Tensor], widths: dict[str, int], pointers: dict[str, Tensor]
) -> tuple[dict[str, Any], int]:
    """Safetensors' table of the arrays, and where their bytes begin: room is left for the header, whose digests are known at the end."""
    layout, offset = {}, 0
    for name in sorted(encoding.arrays):
        shape = [int(pointers[encoding.arrays[name]][-1]), widths[name]]
        size = shape[0] * shape[1] * 4
        layout[name] = {
            "dtype": "F32" if arrays[name].is_floating_point() else "I32",
            "shape": shape,
            "data_offsets": [offset, offset + size],
        }
        offset += size
    return layout, 4096


def _allocate(path: str, size: int) -> None:
    """Takes the disk space now: a write to a mapped hole on a full disk would kill the process."""
    with open(path, "r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)


def _row_header(encoding: Encoding, layout: dict[str, Any], name: str) -> dict[str, Any]:
    return {"rows": encoding.arrays[name], "shape": layout[name]["shape"], "dtype": layout[name]["dtype"]}


def _preamble(layout: dict[str, Any], header: dict[str, Any], size: int) -> bytes:
    text = json.dumps({"__metadata__": {"header": json.dumps(header, sort_keys=True)}, **layout}).encode()
    if len(text) > size - 8:
        raise ValueError(f"header of {len(text)} bytes does not fit {size}")
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8)


def _batches(pointers: dict[str, Tensor], packed: PackedDataset):
    """Successive graph ids with at most `_PAIRS_PER_BATCH` node pairs (a larger graph goes alone), with progress."""
    from tqdm import tqdm

    pairs, start = pointers["pair"], 0
    with tqdm(total=packed.num_graphs, desc=packed.header.name, unit="graph", disable=not sys.stderr.isatty(), leave=False) as bar:
        while start < packed.num_graphs:
            end = int(torch.searchsorted(pairs, pairs[start] + _PAIRS_PER_BATCH, right=True)) - 1
            end = min(max(end, start + 1), packed.num_graphs)
            yield torch.arange(start, end)
            bar.update(end - start)
            start = end


def _say(folder: Path, key: str, text: str) -> None:
    print(f"{folder.name}: {key}: {text}", flush=True)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
