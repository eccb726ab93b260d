"""Ways a run can end that are results, not bugs."""

import torch


class RunFailure(Exception):
    """A run that ended early for a reason worth a record; `status` is the record's status."""

    status = "failed"


class WrongOutput(ValueError):
    """A model's output is not what its task asks for: a mistake in the model, no result."""


class Diverged(RunFailure):
    """The loss is not finite."""

    status = "diverged"


class TimedOut(RunFailure):
    """The time limit is over."""

    status = "timed-out"


class OutOfMemory(RunFailure):
    """Memory, of the device or of the machine, does not hold a step."""

    status = "oom"


def failure(status: str, message: str) -> RunFailure:
    """The failure whose records have this status."""
    kind = next(kind for kind in (Diverged, TimedOut, OutOfMemory, RunFailure) if kind.status == status)
    return kind(message)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that the device or the machine has no memory left."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def one_row(error: BaseException) -> str | None:
    """What to do where BatchNorm was given a single row to train on; None for any other error."""
    if "Expected more than 1 value per channel" not in str(error):
        return None
    return (
        "BatchNorm needs at least two rows in a training batch: set batch.graphs to 2 or more (gt-bench try ... --set batch.graphs=2), or use "
        "LayerNorm on what has one row per graph"
    )
