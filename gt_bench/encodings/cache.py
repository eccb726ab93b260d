"""Encodings beside a dataset: computed once in batches of graphs, stored as safetensors, memory-mapped, gathered by graph ids.

data/encodings/DATASET/KEY.safetensors holds the arrays of one encoding with one set of arguments (KEY spells both), and in its
metadata what they were computed from. Where storing costs too much, KEY.json stands in its place and says that the encoding is
computed for each batch.

Runs depend on what was computed: the dataset, the encoding, its arguments and its version. gt_bench/encodings/compute.py computes and writes.
"""

import contextlib
import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch import LongTensor, Tensor

from gt_bench.data.packed import PackedDataset
from gt_bench.schemas import ComputedBy, EncodingHeader, Settings
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import WriteError, write_json
from gt_bench.utils.versions import version_of
from gt_models.batch import GraphBatch
from gt_models.encodings import Encoding, EncodingError, compute, find_encoding

_KEYS = {
    "dataset",
    "encoding",
    "arguments",
    "data",
    "algorithm",
    "digest",
    "arrays",
    "computed_by",
    "flags",
    "sha256",
}  # of a header
# An encoding that is cheap to compute is stored up to here.
STORE_LIMIT = 2 * 2**30
# Node pairs per batch while encoding: bounds memory to a few hundred megabytes whatever the dataset. Last digits depend on it, so digests do.
_PAIRS_PER_BATCH = 2**21


class EncodedDataset:
    """The encodings that one run reads.

    Args:
        packed: the dataset.
        folder: data/encodings/DATASET.
        requests: encoding name -> its arguments, as under `encodings:` in a recipe.

    Raises EncodingError for an unknown encoding or argument, DatasetError where one is not computed yet, is stale, or its file is damaged.
    """

    def __init__(self, packed: PackedDataset, folder: str | Path, requests: dict[str, Settings]):
        self.packed, self.folder = packed, Path(folder)
        self._stored: list[tuple[Encoding, dict[str, Tensor]]] = []
        self._computed: list[tuple[Encoding, Settings]] = []
        self.digests: dict[str, str] = {}
        # by key of a stored encoding whose last digits a library decides: which one, and what is not unique in it
        self.computed_by: dict[str, ComputedBy] = {}
        owner: dict[str, str] = {}
        for name, given in sorted(requests.items()):
            encoding = find_encoding(name)
            for array in encoding.arrays:
                if owner.setdefault(array, name) != name:
                    raise EncodingError(
                        f"encodings {owner[array]!r} and {name!r} both give {array!r}: ask for one of them"
                    )
            key, arguments = encoding.key(given), encoding.arguments(given)
            header, arrays = _open(packed, self.folder, encoding, key)
            self.digests[key] = header["digest"]
            if "computed_by" in header:
                self.computed_by[key] = {"computed_by": header["computed_by"]}
                if "flags" in header:
                    self.computed_by[key]["flags"] = header["flags"]
            if arrays is None:
                self._computed.append((encoding, arguments))
            else:
                self._stored.append((encoding, arrays))

    @cached_property
    def digest(self) -> str:
        """Of what was computed: data, encodings, arguments and versions."""
        return sha256_of(self.digests)

    @cached_property
    def _pointers(self) -> dict[str, Tensor]:
        """Offsets of the graphs in the rows of each kind of array, long [B + 1]."""
        return row_pointers(self.packed)

    def attach(self, batch: GraphBatch, graphs: Tensor) -> GraphBatch:
        """Sets the encodings of `batch`, which holds the graphs of these ids in this order, and returns it."""
        graphs = cast(LongTensor, graphs.long().cpu())
        device = batch.ptr.device
        rows: dict[str, slice | Tensor] = {}
        for encoding, arrays in self._stored:
            for array, kind in encoding.arrays.items():
                if kind not in rows:
                    rows[kind] = rows_of(self._pointers[kind], graphs)
                value = _take(arrays[array], rows[kind])
                if array in encoding.offsets:
                    value = shift(value, kind, self._pointers, graphs, to_batch=True)
                batch.encodings[array] = (value.long() if value.dtype == torch.int32 else value).to(device)
        for encoding, arguments in self._computed:
            batch.encodings |= compute(encoding.name, batch, graphs=graphs, **arguments)
        return batch


def batches_of(packed: PackedDataset) -> list[tuple[int, int]]:
    """Successive ranges of graph ids with at most `_PAIRS_PER_BATCH` node pairs (a larger graph goes alone); one at least."""
    pairs, start = row_pointers(packed)["pair"], 0
    found: list[tuple[int, int]] = []
    while start < packed.num_graphs or not found:
        end = int(torch.searchsorted(pairs, pairs[start] + _PAIRS_PER_BATCH, right=True)) - 1
        end = min(max(end, start + 1), packed.num_graphs)
        found.append((start, end))
        start = end
    return found


def algorithm_digest(name: str, arguments: Settings) -> str:
    """sha256 of what decides an encoding besides the data: its complete arguments, its version, and which graphs are computed together."""
    encoding = find_encoding(name)
    return sha256_of([encoding.key(arguments), version_of(encoding.module), _PAIRS_PER_BATCH])


def encodings_digest(packed: PackedDataset, requests: dict[str, Settings], limit: int = STORE_LIMIT) -> str:
    """`EncodedDataset.digest` of encodings that need not be computed yet. Raises EncodingError for an unknown encoding or argument."""
    digests = {}
    for name, given in requests.items():
        encoding = find_encoding(name)
        full = encoding.arguments(given)
        header = header_of(packed, encoding, full)
        if storage(packed, encoding, full, limit)[1]:
            header["on_the_fly"] = "computed for each batch"
        digests[encoding.key(given)] = with_digest(header)["digest"]
    return sha256_of(digests)


def sha256_of(content: object) -> str:
    """Of JSON-serialisable content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def storage(packed: PackedDataset, encoding: Encoding, arguments: Settings, limit: int) -> tuple[int, bool]:
    """Bytes that the arrays take, and whether they are left to be computed for each batch."""
    size = encoding.num_bytes(arguments, packed.sizes, packed.num_edges)
    return size, encoding.on_the_fly and size > limit


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


def shift(value: Tensor, kind: str, pointers: dict[str, Tensor], graphs: LongTensor, to_batch: bool) -> Tensor:
    """Edge numbers within their graph (stored) <-> within the batch of `graphs` (what models read); -1 stays."""
    edges = pointers["edge"][graphs + 1] - pointers["edge"][graphs]
    rows = pointers[kind][graphs + 1] - pointers[kind][graphs]
    offset = torch.repeat_interleave(edges.cumsum(0) - edges, rows).to(value.dtype)[:, None]
    return torch.where(value < 0, value, value + offset if to_batch else value - offset)


def rows_of(pointer: Tensor, graphs: LongTensor) -> slice | Tensor:
    """Rows of these graphs; a slice where the ids follow one another."""
    if graphs.numel() and (graphs.numel() == 1 or bool((graphs.diff() == 1).all())):
        return slice(int(pointer[graphs[0]]), int(pointer[graphs[-1] + 1]))
    start, count = pointer[graphs], pointer[graphs + 1] - pointer[graphs]
    total = int(count.sum())
    return torch.arange(total) + torch.repeat_interleave(start - (count.cumsum(0) - count), count, output_size=total)


def _take(array: Tensor, rows: slice | Tensor) -> Tensor:
    return array[rows].clone() if isinstance(rows, slice) else array.index_select(0, rows)


def header_of(packed: PackedDataset, encoding: Encoding, arguments: Settings) -> EncodingHeader:
    """What decides a stored encoding, without its digest: dataset, complete arguments, data and algorithm."""
    return {
        "dataset": packed.header.name,
        "encoding": encoding.name,
        "arguments": arguments,
        "data": packed.digest,
        "algorithm": algorithm_digest(encoding.name, arguments),
    }


def with_digest(header: EncodingHeader) -> EncodingHeader:
    """With the digest that runs depend on: of what is computed, and of whether it is for each batch (whose last digits may differ)."""
    return header | {"digest": sha256_of([header["data"], header["algorithm"], "on_the_fly" in header])}


def sealed(header: EncodingHeader) -> EncodingHeader:
    """With the sha256 of all that it says: what decides no number, as the names of libraries, has no other."""
    said = header.copy()
    said.pop("sha256", None)
    return said | {"sha256": sha256_of(said)}


def stale_parts(header: EncodingHeader, expected: EncodingHeader) -> list[str]:
    """What of `expected` the header does not say. A digest that the rest does not give counts as a change of the algorithm."""
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
        raise DatasetError(f"{packed.header.name}: the encoding {key} is not computed yet; run: {again}")
    arguments = header.get("arguments", {})
    stale = (
        stale_parts(header, header_of(packed, encoding, arguments)) if encoding.key(arguments) == key else ["arguments"]
    )
    if stale:
        raise DatasetError(f"{path}: computed from other {' and '.join(stale)}; run: {again}")
    if arrays is not None:
        _check_content(path, header, arrays, again)
    return header, arrays


def _check_content(path: Path, header: EncodingHeader, arrays: dict[str, Tensor], again: str) -> None:
    """Raises DatasetError where the arrays are not those that the header was written for. They are read when size, times or inode of the file are
    not those of the last check, which are remembered outside of the folder that DVC takes the digest of."""
    stat = path.stat()
    seen = {"inode": stat.st_ino, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    memory = path.parent.parent / ".checked" / path.parent.name / f"{path.stem}.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(memory.read_bytes()) == seen:
            return
    if wrong := damaged(header, arrays):
        raise DatasetError(f"{path}: damaged ({', '.join(wrong)}: not what was written); run: {again}")
    with contextlib.suppress(WriteError):  # in a folder that is only read, every opening checks
        write_json(memory, seen)


def damaged(header: EncodingHeader, arrays: dict[str, Tensor]) -> list[str]:
    """The names of arrays that do not have the sha256 of the header. Reads all of them."""
    return [
        name
        for name, array in arrays.items()
        if hashlib.sha256(array.numpy().data).hexdigest() != header["arrays"][name]["sha256"]
    ]


def read_arrays(path: Path) -> tuple[EncodingHeader, dict[str, Tensor]]:
    """Header and memory-mapped arrays. Raises DatasetError naming the file and the remedy."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["header"])
            if unknown := sorted(header.keys() - _KEYS):
                raise ValueError(f"its header says {unknown[0]!r}")
            if header != sealed(header) and "sha256" in header:  # files of older versions have none
                raise ValueError("its header is not what was written")
            arrays = {name: file.get_tensor(name) for name in header["arrays"]}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise DatasetError(
            f"{path}: damaged ({error}); delete it and run: python -m stages.encode {path.parent.name}"
        ) from error
    return header, arrays


def read_note(path: Path) -> EncodingHeader:
    """The JSON note beside a stored encoding. Raises DatasetError for one that is damaged."""
    try:
        content = json.loads(path.read_bytes())
        return cast(EncodingHeader, {"digest": content["digest"], **content})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{path}: damaged ({error}); delete it and run: python -m stages.encode {path.parent.name}"
        ) from error
