"""Batches that are made on the host in a thread, while the device computes the step before."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gt_models.batch import GraphBatch

AHEAD = 2  # batches that are made before they are used


def prefetch(
    plans: Sequence[Tensor], make: Callable[[Tensor], GraphBatch], device: torch.device
) -> Iterator[tuple[Tensor, GraphBatch]]:
    """Yields the batches of a plan on the device, in its order.

    A thread makes batches in pinned memory. A stream of its own copies them, so the copy of a batch overlaps the step
    before it.

    Args:
        plans: ids of the graphs of each batch.
        make: makes a batch on the host. It must not use a global random generator.
        device: where the batches are used.

    Yields:
        (ids, batch).

    Raises:
        Exception: what `make` raises, at the batch concerned.
    """
    copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def host(plan: Tensor) -> GraphBatch:
        batch = make(plan)
        return _map(batch, Tensor.pin_memory) if copies is not None else batch

    def copied(waiting: "Future[GraphBatch]") -> GraphBatch:
        batch = waiting.result()
        if copies is None:
            return batch.to(device)
        with torch.cuda.stream(copies):
            return batch.to(device, non_blocking=True)

    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        made = [pool.submit(host, plan) for plan in plans[:AHEAD]]
        coming = copied(made[0]) if plans else None
        try:
            for i, plan in enumerate(plans):
                batch = coming
                assert batch is not None
                if copies is not None:
                    current = torch.cuda.current_stream(device)
                    current.wait_stream(copies)
                    _map(batch, partial(_used_on, current))
                if i + AHEAD < len(plans):
                    made.append(pool.submit(host, plans[i + AHEAD]))
                made[i] = None  # type: ignore[call-overload]  # frees its memory
                yield plan, batch
                coming = copied(made[i + 1]) if i + 1 < len(plans) else None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _used_on(stream: Any, tensor: Tensor) -> Tensor:
    tensor.record_stream(stream)
    return tensor


def _map(batch: GraphBatch, change: Callable[[Tensor], Tensor]) -> GraphBatch:
    """Returns the batch with all tensors changed."""

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: change(tensor) for name, tensor in value.items()}
        return None if value is None else change(value)

    sizes: dict[str, Any] = {
        name: batch.__dict__[name] for name in ("max_nodes", "max_edges", "num_pairs") if name in batch.__dict__
    }
    mapped = replace(batch, **{field.name: of(getattr(batch, field.name)) for field in fields(batch)})
    mapped.__dict__.update(sizes)
    return mapped
