"""The BREC protocol as a section of a recipe. Its runs are in gt_bench/tasks/brec.py."""

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from gt_bench.config.protocols.base import Protocol

if TYPE_CHECKING:  # reading a recipe must not import numpy
    import numpy as np

PAIRS, RELABELLINGS = 400, 32  # RELABELLINGS: of each side of a pair
MINIATURE_PAIRS = (0, 300)  # a basic pair, and a CFI pair for recipes that run only those


class BrecSection(Protocol):
    """Settings of the BREC protocol. The defaults are those of the reference implementation.

    `epochs`, `batch`, `optimizer` and `schedule` of the recipe apply to each pair. With `select: last`, the weights
    after a pair's last epoch are tested; with `select: best`, those with its lowest training loss, because there is no
    validation.

    Attributes:
        stop_below: the training of a pair stops after an epoch whose mean loss is below this. 0 for never.
        margin: margin of the cosine embedding loss.
        threshold: threshold of T^2.
        pairs: half-open ranges of the numbers of pairs to run. All 400 if empty.
    """

    KEY: ClassVar[str] = "brec"
    UNIT: ClassVar[str] = "pairs"
    TESTED: ClassVar[str] = "pairs"

    stop_below: float = Field(0.2, ge=0)
    margin: float = 0.0
    threshold: float = Field(72.34, gt=0)
    pairs: list[tuple[int, int]] = []

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        numbers = [n for start, stop in self.pairs for n in range(start, stop)]
        if any(not 0 <= start < stop <= PAIRS for start, stop in self.pairs) or len(set(numbers)) < len(numbers):
            raise ValueError(f"expected disjoint ranges [first, last + 1] within 0..{PAIRS}")
        return self

    @property
    def parts(self) -> int:
        """Number of pairs."""
        return len(self.numbers())

    def numbers(self) -> list[int]:
        """Returns the numbers of the requested pairs, ascending."""
        return sorted(n for start, stop in self.pairs or [(0, PAIRS)] for n in range(start, stop))

    def only(self, count: int) -> Self:
        """Returns the section with `count` of the pairs, the middle ones of `count` equal parts."""
        numbers = self.numbers()
        chosen = [numbers[(2 * i + 1) * len(numbers) // (2 * count)] for i in range(count)]
        return self.model_copy(update={"pairs": [(n, n + 1) for n in chosen]})

    def of_miniature(self) -> Self:
        """Returns the section with the pairs of a miniature."""
        return self.model_copy(update={"pairs": [(pair, pair + 1) for pair in MINIATURE_PAIRS]})

    def to_the_end(self) -> Self:
        """Returns the section without early stopping."""
        return self.model_copy(update={"stop_below": 0.0})

    @staticmethod
    def miniature_sizes(rng: "np.random.Generator", smallest: int, largest: int) -> "np.ndarray":
        """Returns sizes for the two halves of the file, pairs and controls.

        Each pair has all its relabellings, with alternating sides.
        """
        import numpy as np

        return np.repeat(rng.integers(smallest, largest + 1, 2 * len(MINIATURE_PAIRS)), 2 * RELABELLINGS)

    @staticmethod
    def miniature_arrays(graphs: int) -> dict[str, "np.ndarray"]:
        """Returns the pair, side, control and category of each graph of a miniature."""
        import numpy as np

        place, half = np.arange(graphs), max(1, graphs // 2)
        number = place % half // (2 * RELABELLINGS)
        return {
            "pair": np.array(MINIATURE_PAIRS)[number],
            "side": place % 2,
            "control": (place >= half).astype(np.uint8),
            "category": number,
        }
