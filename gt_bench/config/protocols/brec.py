"""The BREC protocol as a section of a recipe; its runs are in gt_bench/tasks/brec.py."""

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from gt_bench.config.protocols.base import Protocol

if TYPE_CHECKING:  # whoever reads a recipe needs no numpy
    import numpy as np

PAIRS, RELABELLINGS = 400, 32  # RELABELLINGS: of each side of a pair
MINIATURE_PAIRS = (0, 300)  # one of the basic pairs and one of the CFI pairs, which some recipes run alone


class BrecSection(Protocol):
    """The BREC protocol where it is not that of the reference implementation. `epochs`, `batch`, `optimizer` and `schedule` are those of one pair.

    `select: last` tests the weights after a pair's last epoch, `select: best` those of its lowest training loss (nothing validates here).
    `stop_below`: a pair's training ends after an epoch whose mean loss is below this; 0: never. `margin`: of the cosine embedding loss.
    `threshold`: of T^2. `pairs`: which of the 400 pairs, as half-open ranges of their numbers; nothing: all."""

    KEY: ClassVar[str] = "brec"
    UNIT: ClassVar[str] = "pairs"

    stop_below: float = Field(0.2, ge=0)
    margin: float = 0.0
    threshold: float = Field(72.34, gt=0)
    pairs: list[tuple[int, int]] = []

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        numbers = [n for start, stop in self.pairs for n in range(start, stop)]
        if any(not 0 <= start < stop <= PAIRS for start, stop in self.pairs) or len(set(numbers)) < len(numbers):
            raise ValueError(f"pairs are ranges [first, one past the last] within 0..{PAIRS} that share none")
        return self

    @property
    def parts(self) -> int:
        return len(self.numbers())

    def numbers(self) -> list[int]:
        """The pairs asked for, ascending."""
        return sorted(n for start, stop in self.pairs or [(0, PAIRS)] for n in range(start, stop))

    def only(self, count: int) -> Self:
        """With `count` of the pairs, the middle ones of as many stretches."""
        numbers = self.numbers()
        chosen = [numbers[(2 * i + 1) * len(numbers) // (2 * count)] for i in range(count)]
        return self.model_copy(update={"pairs": [(n, n + 1) for n in chosen]})

    def of_miniature(self) -> Self:
        return self.model_copy(update={"pairs": [(pair, pair + 1) for pair in MINIATURE_PAIRS]})

    def to_the_end(self) -> Self:
        return self.model_copy(update={"stop_below": 0.0})

    @staticmethod
    def miniature_sizes(rng: "np.random.Generator", smallest: int, largest: int) -> "np.ndarray":
        """The two halves of the file: pairs, then controls, each pair with all its relabellings, sides interleaved."""
        import numpy as np

        return np.repeat(rng.integers(smallest, largest + 1, 2 * len(MINIATURE_PAIRS)), 2 * RELABELLINGS)

    @staticmethod
    def miniature_arrays(graphs: int) -> dict[str, "np.ndarray"]:
        import numpy as np

        place, half = np.arange(graphs), max(1, graphs // 2)
        number = place % half // (2 * RELABELLINGS)
        return {
            "pair": np.array(MINIATURE_PAIRS)[number],
            "side": place % 2,
            "control": (place >= half).astype(np.uint8),
            "category": number,
        }
