"""Sections of a recipe for tasks with a protocol of their own: how long such a run is and how it is cut. What it does is in stages/tasks/."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from stages.schema import Strict

BREC_PAIRS = 400
MINIATURE_PAIRS = (0, 300)  # one of the basic pairs and one of the CFI pairs, which some recipes run alone


class Protocol(Strict):
    """A run of several parts, each trained and tested for itself. Whoever counts, cuts or times a run asks no more of its protocol than this."""

    UNIT: ClassVar[str]  # what a part is called: the key of params.yaml's limits, and the word in what was cut

    @property
    def parts(self) -> int:
        """How many there are; a run reports after each."""
        raise NotImplementedError

    def only(self, count: int) -> Self:
        """With `count` of the parts, evenly chosen."""
        raise NotImplementedError

    def of_miniature(self) -> Self:
        """With the parts that a miniature of the dataset holds."""
        raise NotImplementedError

    def to_the_end(self) -> Self:
        """With no part that ends before its last epoch, so that its time can be counted."""
        raise NotImplementedError


class BrecSection(Protocol):
    """The BREC protocol where it is not that of the reference implementation. `epochs`, `batch`, `optimizer` and `schedule` are those of one pair.

    `select: last` tests the weights after a pair's last epoch, `select: best` those of its lowest training loss (nothing validates here).
    `stop_below`: a pair's training ends after an epoch whose mean loss is below this; 0: never. `margin`: of the cosine embedding loss.
    `threshold`: of T^2. `pairs`: which of the 400 pairs, as half-open ranges of their numbers; nothing: all."""

    UNIT: ClassVar[str] = "pairs"

    stop_below: float = Field(0.2, ge=0)
    margin: float = 0.0
    threshold: float = Field(72.34, gt=0)
    pairs: list[tuple[int, int]] = []

    @model_validator(mode="after")
    def _ranges(self):
        numbers = [n for start, stop in self.pairs for n in range(start, stop)]
        if any(not 0 <= start < stop <= BREC_PAIRS for start, stop in self.pairs) or len(set(numbers)) < len(numbers):
            raise ValueError(f"pairs are ranges [first, one past the last] within 0..{BREC_PAIRS} that share none")
        return self

    @property
    def parts(self) -> int:
        return len(self.numbers())

    def numbers(self) -> list[int]:
        """The pairs asked for, ascending."""
        return sorted(n for start, stop in self.pairs or [(0, BREC_PAIRS)] for n in range(start, stop))

    def only(self, count: int) -> Self:
        """With `count` of the pairs, the middle ones of as many stretches."""
        numbers = self.numbers()
        chosen = [numbers[(2 * i + 1) * len(numbers) // (2 * count)] for i in range(count)]
        return self.model_copy(update={"pairs": [(n, n + 1) for n in chosen]})

    def of_miniature(self) -> Self:
        return self.model_copy(update={"pairs": [(pair, pair + 1) for pair in MINIATURE_PAIRS]})

    def to_the_end(self) -> Self:
        return self.model_copy(update={"stop_below": 0.0})
