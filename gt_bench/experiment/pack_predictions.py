"""Packs the outputs of a run on validation and test into a file; `gt_bench.store.predictions` describes its arrays."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from torch import Tensor

from gt_bench.tasks.metrics import detached
from gt_bench.training.evaluation import Examples
from gt_bench.training.interfaces import Batches


def pack(examples: Mapping[str, Examples], loader: Batches, task: str, loss: str | None, level: str) -> bytes:
    """Returns the bytes of a file. Equal content gives equal bytes on one machine.

    Args:
        examples: outputs and targets of the batches of each part.
        loader: the batches they were computed on.
        task: name of the task.
        loss: name of the loss. None for the default of the task.
        level: what a row of the output is: node or graph.
    """
    arrays: dict[str, np.ndarray] = {"about": np.array(json.dumps({"task": task, "loss": loss, "level": level}))}
    for part, (outputs, targets) in examples.items():
        arrays[f"{part}/output"] = detached(list(outputs)).numpy()
        if isinstance(targets[0], Tensor):
            arrays[f"{part}/target"] = detached(list(targets)).numpy()
        else:
            arrays[f"{part}/batch/output"] = _starts(outputs)
            for name in (field.name for field in fields(targets[0])):
                values = [getattr(target, name) for target in targets]
                if all(isinstance(value, Tensor) and value.dim() for value in values):
                    arrays[f"{part}/target/{name}"] = detached(values).numpy()
                    arrays[f"{part}/batch/{name}"] = _starts(values)
        if (ids := loader.order(part)) is not None:
            arrays[f"{part}/ids"] = ids.numpy().astype(np.int64)
            if loader.packed.header.split_kind == "graph":
                arrays[f"{part}/nodes"] = loader.packed.sizes[ids].numpy().astype(np.int32)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _starts(tensors: Sequence[Tensor]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(tensor) for tensor in tensors])[:-1]]).astype(np.int64)
