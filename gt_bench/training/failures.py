"""Exceptions that end a run with a status in its record, and related errors."""

import errno

import torch


class RunFailure(Exception):
    """A run ended early for a reason that its record states. `status` is the status of the record."""

    status = "failed"


class WrongOutput(ValueError):
    """The output of a model does not have the shape that its task requires: an error in the model, not a result."""


class StateError(ValueError):
    """A model has state that is not in its `state_dict`, or that cannot be saved: an error in the model, no result."""


class Diverged(RunFailure):
    """The loss, an output or a weight is not finite."""

    status = "diverged"


class TimedOut(RunFailure):
    """The time limit was reached."""

    status = "timed-out"


class OutOfMemory(RunFailure):
    """A step does not fit into the memory of the device or of the machine."""

    status = "oom"


def failure(status: str, message: str) -> RunFailure:
    """Returns the RunFailure with a status."""
    kind = next(kind for kind in (Diverged, TimedOut, OutOfMemory, RunFailure) if kind.status == status)
    return kind(message)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that the device or the machine has no memory left."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def one_row(error: BaseException) -> str | None:
    """Returns what to do if BatchNorm was given a single row to train on, or None for any other error."""
    if "Expected more than 1 value per channel" not in str(error):
        return None
    return (
        "BatchNorm needs at least two rows in a training batch: set batch.graphs to 2 or more (gt-bench try ... --set "
        "batch.graphs=2), or use LayerNorm where there is one row per graph"
    )
