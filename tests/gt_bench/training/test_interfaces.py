"""Datasets, loaders and tasks implement the interfaces of the training loop, with the same argument names."""

import inspect

import pytest

from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.tasks.base import Task
from gt_bench.training import interfaces
from gt_bench.training.loader import Loader


def asked(face: type) -> dict[str, object]:
    """Returns {attribute or method: its signature in the interface}."""
    return {name: value for name, value in vars(face).items() if not name.startswith("_")} | face.__annotations__


@pytest.mark.parametrize(
    ("face", "cls"),
    [
        (interfaces.Packed, PackedDataset),
        (interfaces.Encoded, EncodedDataset),
        (interfaces.Batches, Loader),
        (interfaces.Objective, Task),
    ],
)
def test_classes_have_the_members_of_their_interfaces(face, cls):
    text = inspect.getsource(cls)
    assert asked(face)
    for name, promise in asked(face).items():
        there = getattr(cls, name, None)
        if inspect.isfunction(promise):
            assert list(inspect.signature(promise).parameters) == list(inspect.signature(there).parameters), name
        else:
            assert (
                there is not None
                or name in getattr(cls, "__annotations__", {})
                or f"self.{name}" in text
                or f"{name}:" in text
            ), name
