"""Interface of recipe sections for special protocols."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from gt_bench.config.schema import Strict

if TYPE_CHECKING:  # reading a recipe must not import numpy
    import numpy as np


class Protocol(Strict, ABC):
    """A run of several parts, each trained and tested separately.

    Attributes:
        KEY: name of the task and of its section in a recipe.
        UNIT: name of a part: key of `limits` in params.yaml, and unit in the text of a limit.
        TESTED: the field that lists the parts that are tested. Runs that differ in it have different tests.
    """

    KEY: ClassVar[str]
    UNIT: ClassVar[str]
    TESTED: ClassVar[str]

    @property
    @abstractmethod
    def parts(self) -> int:
        """Number of parts. A run reports progress after each."""

    @abstractmethod
    def only(self, count: int) -> Self:
        """Returns the section with `count` of the parts, evenly distributed."""

    @abstractmethod
    def of_miniature(self) -> Self:
        """Returns the section with the parts that a miniature of the dataset contains."""

    @abstractmethod
    def to_the_end(self) -> Self:
        """Returns the section without early stopping, so that the time of a run can be predicted."""

    @staticmethod
    @abstractmethod
    def miniature_sizes(rng: "np.random.Generator", smallest: int, largest: int) -> "np.ndarray":
        """Returns the numbers of nodes [B] of the graphs of a miniature, each from `smallest` to `largest`."""

    @staticmethod
    @abstractmethod
    def miniature_arrays(graphs: int) -> dict[str, "np.ndarray"]:
        """Returns the additional arrays of this task's dataset for a miniature, one entry per graph."""
