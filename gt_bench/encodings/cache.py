"""Cached encodings of a dataset: memory-mapped safetensors files, from which rows are gathered by graph ids.

data/encodings/DATASET/KEY.safetensors contains the arrays of one encoding with one set of arguments (KEY names both),
and in its metadata what they were computed from. If the arrays would be too large, KEY.json states instead that the
encoding is computed for each batch.

Digests of runs depend on the dataset, the encodings, their arguments and their versions. gt_bench/encodings/compute.py
computes and writes the files.
"""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch import LongTensor, Tensor

from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.header import EncodingHeader
from gt_bench.records.run import ComputedBy
from gt_bench.training.interfaces import StoredArray
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import check_once
from gt_bench.utils.json_types import Settings
from gt_bench.utils.versions import version_of
from gt_models.batch import GraphBatch
from gt_models.encodings import Encoding, EncodingError, compute, find_encoding

# keys of a header
_KEYS = {
    "dataset", "encoding", "arguments", "data", "algorithm", "digest", "arrays", "computed_by", "flags", "sha256",
}  # fmt: skip
# maximum number of bytes of a stored encoding, if it is cheap to compute
STORE_LIMIT = 2 * 2**30
# Node pairs per batch while encoding, which limits memory to a few hundred megabytes. Last digits depend on it, so it
# is part of the digest.
_PAIRS_PER_BATCH = 2**21


class EncodedDataset:
    """The encodings that a run reads.

    Args:
        packed: the dataset.
        folder: data/encodings/DATASET.
        requests: {encoding: its arguments}, as in `encodings:` of a recipe.

    Attributes:
        digests: {key of an encoding: digest of its algorithm and data}.
        computed_by: {key of a stored encoding: libraries that decided its last digits, and flags of its graphs}.

    Raises:
        EncodingError: an encoding or argument does not exist.
        DatasetError: an encoding is not computed yet, is out of date, or its file is damaged.
    """

    def __init__(self, packed: PackedDataset, folder: str | Path, requests: dict[str, Settings]):
        self.packed, self.folder = packed, Path(folder)
        self._stored: list[tuple[Encoding, dict[str, Tensor]]] = []
        self._computed: list[tuple[Encoding, Settings]] = []
        self.digests: dict[str, str] = {}
        self.computed_by: dict[str, ComputedBy] = {}
        owner: dict[str, str] = {}
        for name, given in sorted(requests.items()):
            encoding = find_encoding(name)
            for array in encoding.arrays:
                if owner.setdefault(array, name) != name:
                    raise EncodingError(f"encodings {owner[array]!r} and {name!r} both provide {array!r}: remove one")
            key, arguments = encoding.key(given), encoding.arguments(given)
            header, arrays = _open(packed, self.folder, encoding, key)
            self.digests[key] = header["digest"]
            if "computed_by" in header:
                self.computed_by[key] = ComputedBy.from_disk(
                    {name: header.get(name) for name in ("computed_by", "flags") if name in header}
                )
            if arrays is None:
                self._computed.append((encoding, arguments))
            else:
                self._stored.append((encoding, arrays))

    @cached_property
    def digest(self) -> str:
        """Digest of data, encodings, arguments and versions."""
        return digest_of(self.digests, spaced=True)

    @cached_property
    def _pointers(self) -> dict[str, Tensor]:
        """Offsets of the graphs in the rows of each kind of array, long [B + 1]."""
        return row_pointers(self.packed)

    @cached_property
    def stored(self) -> list[StoredArray]:
        """The arrays of the stored encodings."""
        return [
            StoredArray(name, kind, arrays[name], name in encoding.offsets)
            for encoding, arrays in self._stored
            for name, kind in encoding.arrays.items()
        ]

    @property
    def computes(self) -> bool:
        """Whether there are encodings that are computed for each batch."""
        return bool(self._computed)

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the encodings to a batch and returns it.

        Args:
            batch: a batch of graphs.
            graphs: ids of these graphs, in the order of the batch.
        """
        return self.attach_computed(self.attach_stored(batch, graphs), graphs)

    def attach_stored(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the stored encodings to a batch and returns it. Arguments as in `attach`."""
        graphs = cast(LongTensor, graphs.long().cpu())
        device = batch.ptr.device
        rows: dict[str, slice | Tensor] = {}
        for array in self.stored:
            if array.kind not in rows:
                rows[array.kind] = rows_of(self._pointers[array.kind], graphs)
            value = _take(array.values, rows[array.kind])
            if array.shifted:
                value = shift(value, array.kind, self._pointers, graphs, to_batch=True)
            batch.encodings[array.name] = (value.long() if value.dtype == torch.int32 else value).to(device)
        return batch

    def attach_computed(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Adds the encodings that are computed for each batch and returns it. Arguments as in `attach`."""
        graphs = graphs.long().cpu()
        for encoding, arguments in self._computed:
            batch.encodings |= compute(encoding.name, batch, graphs=graphs, **arguments)
        return batch


def batches_of(packed: PackedDataset) -> list[tuple[int, int]]:
    """Divides a dataset into ranges of graph ids with at most `_PAIRS_PER_BATCH` node pairs, or one larger graph."""
    pairs, start = row_pointers(packed)["pair"], 0
    ranges: list[tuple[int, int]] = []
    while start < packed.num_graphs or not ranges:
        end = int(torch.searchsorted(pairs, pairs[start] + _PAIRS_PER_BATCH, right=True)) - 1
        end = min(max(end, start + 1), packed.num_graphs)
        ranges.append((start, end))
        start = end
    return ranges


def algorithm_digest(name: str, arguments: Settings) -> str:
    """Returns the sha256 of an encoding's complete arguments, its version, and the size of batches."""
    encoding = find_encoding(name)
    return digest_of([encoding.key(arguments), version_of(encoding.module), _PAIRS_PER_BATCH], spaced=True)


def encodings_digest(packed: PackedDataset, requests: dict[str, Settings]) -> str:
    """Returns `EncodedDataset.digest` of encodings that need not be computed yet.

    Args:
        packed: the dataset.
        requests: {encoding: its arguments}.

    Raises:
        EncodingError: an encoding or argument does not exist.
    """
    digests = {}
    for name, given in requests.items():
        encoding = find_encoding(name)
        full = encoding.arguments(given)
        header = header_of(packed, encoding, full)
        if storage(packed, encoding, full, STORE_LIMIT)[1]:
            header["on_the_fly"] = "computed for each batch"
        digests[encoding.key(given)] = with_digest(header)["digest"]
    return digest_of(digests, spaced=True)


def storage(packed: PackedDataset, encoding: Encoding, arguments: Settings, limit: int) -> tuple[int, bool]:
    """Returns the number of bytes of the arrays, and whether they are computed for each batch instead of stored."""
    size = encoding.num_bytes(arguments, packed.sizes)
    return size, encoding.on_the_fly and size > limit


def row_pointers(packed: PackedDataset) -> dict[str, Tensor]:
    """Returns {kind of row: offsets of the graphs in flat arrays of this kind, long [B + 1]}."""
    sizes = packed.sizes
    start = sizes.new_zeros(1)
    return {
        "node": torch.cat([start, sizes.cumsum(0)]),
        "pair": torch.cat([start, (sizes**2).cumsum(0)]),
        "edge": packed.array("edge_ptr").long(),
        "graph": torch.arange(packed.num_graphs + 1),
    }


def shift(value: Tensor, kind: str, pointers: dict[str, Tensor], graphs: LongTensor, to_batch: bool) -> Tensor:
    """Converts indices of edges between graph and batch. -1 is not changed.

    Args:
        value: indices of edges, [rows, width].
        kind: kind of row.
        pointers: from `row_pointers`.
        graphs: ids of the graphs of the batch.
        to_batch: True for indices within the graph (stored) to indices within the batch (read by models), False for the
            inverse.
    """
    edges = pointers["edge"][graphs + 1] - pointers["edge"][graphs]
    rows = pointers[kind][graphs + 1] - pointers[kind][graphs]
    offset = torch.repeat_interleave(edges.cumsum(0) - edges, rows).to(value.dtype)[:, None]
    return torch.where(value < 0, value, value + offset if to_batch else value - offset)


def rows_of(pointer: Tensor, graphs: LongTensor) -> slice | Tensor:
    """Returns the rows of these graphs, as a slice if their ids are consecutive."""
    if graphs.numel() and (graphs.numel() == 1 or bool((graphs.diff() == 1).all())):
        return slice(int(pointer[graphs[0]]), int(pointer[graphs[-1] + 1]))
    start, count = pointer[graphs], pointer[graphs + 1] - pointer[graphs]
    total = int(count.sum())
    return torch.arange(total) + torch.repeat_interleave(start - (count.cumsum(0) - count), count, output_size=total)


def _take(array: Tensor, rows: slice | Tensor) -> Tensor:
    return array[rows].clone() if isinstance(rows, slice) else array.index_select(0, rows)


def header_of(packed: PackedDataset, encoding: Encoding, arguments: Settings) -> EncodingHeader:
    """Returns the header of a stored encoding without digests: dataset, complete arguments, data and algorithm."""
    return {
        "dataset": packed.header.name,
        "encoding": encoding.name,
        "arguments": arguments,
        "data": packed.digest,
        "algorithm": algorithm_digest(encoding.name, arguments),
    }


def with_digest(header: EncodingHeader) -> EncodingHeader:
    """Adds the digest of data, algorithm, and whether the encoding is computed for each batch (other last digits)."""
    identity = [header["data"], header["algorithm"], "on_the_fly" in header]
    return header | {"digest": digest_of(identity, spaced=True)}


def sealed(header: EncodingHeader) -> EncodingHeader:
    """Adds the sha256 of the whole header. It also covers keys that are not part of the digest, such as libraries."""
    content = header.copy()
    content.pop("sha256", None)
    return content | {"sha256": digest_of(content, spaced=True)}


def stale_parts(header: EncodingHeader, expected: EncodingHeader) -> list[str]:
    """Returns the keys of `expected` that differ. A digest that does not match counts as a change of the algorithm."""
    stale = [k for k, v in expected.items() if header.get(k) != v]
    return stale or (["algorithm"] if with_digest(header)["digest"] != header.get("digest") else [])


def _open(
    packed: PackedDataset, folder: Path, encoding: Encoding, key: str
) -> tuple[EncodingHeader, dict[str, Tensor] | None]:
    again = f"python -m stages.encode {packed.header.name}"
    path, note = folder / f"{key}.safetensors", folder / f"{key}.json"
    if path.exists():
        header, arrays = read_arrays(path)
    elif note.exists():
        header, arrays = read_note(note), None
        path = note
    else:
        problem, file = "has not been computed", f"dataset {packed.header.name!r}"
        raise DatasetError(problem, file=file, place=f"encoding {key}", remedy=f"run: {again}")
    arguments = header.get("arguments", {})
    stale = (
        stale_parts(header, header_of(packed, encoding, arguments)) if encoding.key(arguments) == key else ["arguments"]
    )
    if stale:
        raise DatasetError(
            f"out of date: {' and '.join(stale)} changed", file=path, value=stale, remedy=f"run: {again}"
        )
    if arrays is not None:
        _check_content(path, header, arrays, again)
    return header, arrays


def _check_content(path: Path, header: EncodingHeader, arrays: dict[str, Tensor], again: str) -> None:
    """Raises DatasetError if the arrays do not match the checksums of the header.

    The arrays are read only if the file has changed since the last check.
    """

    def check() -> None:
        if wrong := damaged(header, arrays):
            problem = f"damaged (wrong checksum of {', '.join(wrong)})"
            raise DatasetError(problem, file=path, value=wrong, remedy=f"run: {again}")

    # outside of the folder, whose digest DVC computes
    check_once(path, path.parent.parent / ".checked" / path.parent.name / f"{path.stem}.json", check)


def damaged(header: EncodingHeader, arrays: dict[str, Tensor]) -> list[str]:
    """Reads all arrays and returns the names of those whose sha256 differs from the header."""
    return [
        name
        for name, array in arrays.items()
        if hashlib.sha256(array.numpy().data).hexdigest() != header["arrays"][name]["sha256"]
    ]


def read_arrays(path: Path) -> tuple[EncodingHeader, dict[str, Tensor]]:
    """Reads the header and memory-maps the arrays of a stored encoding.

    Raises:
        DatasetError: the file is damaged. The message names the file and the remedy.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["header"])
            if unknown := sorted(header.keys() - _KEYS):
                raise ValueError(f"unknown key {unknown[0]!r} in its header")
            if header != sealed(header):
                raise ValueError("the checksum of its header does not match")
            arrays = {name: file.get_tensor(name) for name in header["arrays"]}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        remedy = f"delete it and run: python -m stages.encode {path.parent.name}"
        raise DatasetError(f"damaged ({error})", file=path, remedy=remedy) from error
    return header, arrays


def read_note(path: Path) -> EncodingHeader:
    """Reads KEY.json, the header of an encoding that is computed for each batch.

    Raises:
        DatasetError: the file is damaged.
    """
    try:
        content = json.loads(path.read_bytes())
        return cast(EncodingHeader, {"digest": content["digest"], **content})
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"delete it and run: python -m stages.encode {path.parent.name}"
        raise DatasetError(f"damaged ({error})", file=path, remedy=remedy) from error
