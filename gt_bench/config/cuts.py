"""Units of the reductions of a result, and the limits (`limits` in params.yaml) that cause them."""

from collections.abc import Iterable

from gt_bench.config.params import Limits
from gt_bench.config.protocols import PROTOCOLS
from gt_bench.records.cell import Reduction

SEEDS, EPOCHS, TRIALS = "seeds", "epochs", "search trials"
PARTS = frozenset(protocol.UNIT for protocol in PROTOCOLS.values())


def limits_of(reduced: Iterable[Reduction | str]) -> Limits:
    """Returns the limits of a result with this `reduced`."""
    units = {SEEDS, EPOCHS, *PARTS}
    return Limits.model_validate(
        {cut.unit: cut.have for cut in reduced if not isinstance(cut, str) and cut.unit in units}
    )


def more_than_seeds(reduced: Iterable[Reduction | str]) -> bool:
    """Whether something else than the number of seeds was reduced."""
    return any(isinstance(cut, str) or cut.unit != SEEDS for cut in reduced)
