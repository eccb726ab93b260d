"""A dataset of many graphs on the training device. Batches are index gathers there.

The arrays are copied to the device once, in the compact types in which they are stored. An epoch needs one pass over
the sizes of its graphs on the host, in numpy, and one copy of their ids. After that, each batch is a fixed number of
operations on the device, whatever its number of graphs. None of them waits for the device.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gt_bench.training.interfaces import Encoded, Packed
from gt_models.batch import GraphBatch

# arrays of a packed dataset that batches read, in addition to those of `PackedHeader.extras`
ARRAYS = ("x", "source", "target", "edge_attr", "y", "pair_source", "pair_target")


class DeviceData:
    """The arrays of a dataset and of its stored encodings on a device.

    Args:
        packed: a dataset of many graphs.
        encoded: its encodings.
        device: where the arrays are stored, and where batches are made.
        dtype: type of floating-point numbers of batches.
    """

    def __init__(self, packed: Packed, encoded: Encoded, device: torch.device, dtype: torch.dtype):
        self.header, self.encoded, self.device, self.dtype = packed.header, encoded, device, dtype
        self.arrays = {name: array.to(device) for name, array in _arrays(packed).items()}
        self.stored = [(array, array.values.to(device)) for array in encoded.stored]
        sizes, degrees = packed.sizes, packed.array("edge_ptr").long().diff()
        counts = {"node": sizes, "edge": degrees, "pair": sizes**2, "graph": torch.ones_like(sizes)}
        if "pair_source" in self.arrays:
            counts["positive"] = packed.array("pair_ptr").long().diff()
        self.on_host = {kind: count.numpy() for kind, count in counts.items()}
        # kind of row -> rows of each graph, and its first row, long [B]
        self.counts = {kind: count.to(device) for kind, count in counts.items()}
        self.starts = {kind: (count.cumsum(0) - count).to(device) for kind, count in counts.items()}

    @staticmethod
    def num_bytes(packed: Packed, encoded: Encoded) -> int:
        """Returns the bytes of all arrays."""
        tensors = [*_arrays(packed).values(), *(array.values for array in encoded.stored)]
        return sum(tensor.nbytes for tensor in tensors) + 8 * 10 * packed.num_graphs  # counts and starts

    def batches(self, plans: Sequence[Tensor]) -> Iterator[GraphBatch]:
        """Yields the batches of a plan, with encodings.

        Args:
            plans: ids of the graphs of each batch, on the CPU.

        Raises:
            IndexError: an id is out of range.
        """
        if not plans:
            return
        ids, lengths = torch.cat(list(plans)), np.array([len(plan) for plan in plans])
        order, count = ids.numpy(), len(self.on_host["node"])
        if len(order) and not 0 <= order.min() <= order.max() < count:
            raise IndexError(f"graph ids must lie in 0..{count - 1}; got {order.min()}..{order.max()}")
        ends = lengths.cumsum()
        # rows of each batch in every array, and the sizes that a model would otherwise have to ask the device for
        total = {kind: _by_batch(np.add, values[order], lengths) for kind, values in self.on_host.items()}
        largest = {kind: _by_batch(np.maximum, self.on_host[kind][order], lengths) for kind in ("node", "edge")}
        on_device = (ids.pin_memory() if self.device.type == "cuda" else ids).to(self.device, non_blocking=True)
        for i, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
            batch = self._batch(on_device[end - length : end], {kind: int(rows[i]) for kind, rows in total.items()})
            sizes = {"max_nodes": largest["node"][i], "max_edges": largest["edge"][i], "num_pairs": total["pair"][i]}
            batch.__dict__.update({name: int(size) for name, size in sizes.items()})
            if self.encoded.computes:
                batch = self.encoded.attach_computed(batch, plans[i]).to(self.device, self.dtype)
            yield batch

    def _batch(self, graphs: Tensor, total: dict[str, int]) -> GraphBatch:
        """Gathers graphs.

        Args:
            graphs: their ids, on the device.
            total: number of rows of each kind.
        """
        counts = {kind: count[graphs] for kind, count in self.counts.items()}
        rows = {kind: self._rows(kind, graphs, counts[kind], total[kind]) for kind in counts if kind != "graph"}
        rows["graph"] = graphs
        sizes, arrays = counts["node"], self.arrays
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        edge_index = torch.stack([arrays["source"][rows["edge"]], arrays["target"][rows["edge"]]]).long()
        edge_index = edge_index + torch.repeat_interleave(ptr[:-1], counts["edge"], output_size=total["edge"])
        x = _features(arrays["x"][rows["node"]], self.header.in_dim)
        if self.header.row_normalise:
            x = x / x.sum(1, keepdim=True).clamp(min=1e-12)
        edge_attr = None
        if "edge_attr" in arrays:
            edge_attr = self._cast(_features(arrays["edge_attr"][rows["edge"]], self.header.edge_dim))
        y = self._targets(rows, counts, total)
        extras = {
            name: self._cast(arrays[name][rows[kind]]) for name, kind in self.header.extras.items() if kind in rows
        }
        encodings = {}
        for array, values in self.stored:
            value = values[rows[array.kind]]
            if array.shifted:
                before = counts["edge"].cumsum(0) - counts["edge"]
                offset = torch.repeat_interleave(before, counts[array.kind], output_size=total[array.kind])
                value = torch.where(value < 0, value, value + offset.to(value.dtype)[:, None])
            encodings[array.name] = self._cast(value.long() if value.dtype == torch.int32 else value)
        return GraphBatch(
            self._cast(x), edge_index, ptr, edge_attr, None if y is None else self._cast(y), encodings, extras
        )

    def _rows(self, kind: str, graphs: Tensor, counts: Tensor, total: int) -> Tensor:
        """Returns the rows of graphs in the arrays of a kind, long [total]."""
        shift = self.starts[kind][graphs] - (counts.cumsum(0) - counts)
        return torch.arange(total, device=self.device) + torch.repeat_interleave(shift, counts, output_size=total)

    def _targets(self, rows: dict[str, Tensor], counts: dict[str, Tensor], total: dict[str, int]) -> Tensor | None:
        if "positive" in counts:
            spread = counts["positive"], total["positive"]
            start = counts["pair"].cumsum(0) - counts["pair"]
            start, width = (
                torch.repeat_interleave(v, spread[0], output_size=spread[1]) for v in (start, counts["node"])
            )
            source, target = (self.arrays[f"pair_{end}"][rows["positive"]].long() for end in ("source", "target"))
            y = torch.zeros(total["pair"], device=self.device)
            return y.index_fill(0, start + source * width + target, 1.0)
        if "y" not in self.arrays:
            return None
        return self.arrays["y"][rows["node" if self.header.level == "node" else "graph"]]

    def _cast(self, value: Tensor) -> Tensor:
        return value.to(self.dtype) if value.is_floating_point() else value


def _arrays(packed: Packed) -> dict[str, Tensor]:
    """Returns the arrays that batches read, memory-mapped. Graph ids and offsets are not among them."""
    wanted = [*ARRAYS, *(name for name, kind in packed.header.extras.items() if kind in ("node", "edge", "graph"))]
    return {name: packed.array(name) for name in wanted if name in packed.names}


def _by_batch(reduce: np.ufunc, values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reduces consecutive values of each batch, [sum lengths] -> [batches]; 0 for a batch without graphs."""
    reduced = np.zeros(len(lengths), values.dtype)
    starts, filled = lengths.cumsum() - lengths, lengths > 0
    if filled.any():
        reduced[filled] = reduce.reduceat(values, starts[filled])
    return reduced


def _features(values: Tensor, dim: int | list[int] | None) -> Tensor:
    """Stored features [n] or [n, F] -> [n, F]: continuous ones as float32, categorical ones as long."""
    values = values.to(torch.float32 if isinstance(dim, int) else torch.long)
    return values[:, None] if values.dim() == 1 else values
