"""What every section of a recipe for a protocol of its own can be asked."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from gt_bench.config.schema import Strict

if TYPE_CHECKING:  # whoever reads a recipe needs no numpy
    import numpy as np


class Protocol(Strict, ABC):
    """A run of several parts, each trained and tested for itself. Whoever counts, cuts or times a run, or makes a miniature of its dataset, asks no more
    of its protocol than this."""

    KEY: ClassVar[str]  # the task's name, and that of its section in a recipe
    UNIT: ClassVar[str]  # what a part is called: the key of params.yaml's limits, and the word in what was cut

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many there are; a run reports after each."""

    @abstractmethod
    def only(self, count: int) -> Self:
        """With `count` of the parts, evenly chosen."""

    @abstractmethod
    def of_miniature(self) -> Self:
        """With the parts that a miniature of the dataset holds."""

    @abstractmethod
    def to_the_end(self) -> Self:
        """With no part that ends before its last epoch, so that its time can be counted."""

    @staticmethod
    @abstractmethod
    def miniature_sizes(rng: "np.random.Generator", smallest: int, largest: int) -> "np.ndarray":
        """Numbers of nodes [B] of the graphs of a miniature, each from `smallest` to `largest`."""

    @staticmethod
    @abstractmethod
    def miniature_arrays(graphs: int) -> dict[str, "np.ndarray"]:
        """The arrays, an entry per graph, that this task's dataset has besides those of every dataset, for a miniature of so many graphs."""
