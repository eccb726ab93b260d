"""Random-walk encodings along some of the edges: of molecules that are given as complete graphs with their bonds marked."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding, EncodingError
from gt_models.encodings.random_walk import RRWP, rrwp


def rrwp_bonds(
    batch: GraphBatch, *, steps: int, identity: bool = True, squaring: bool = False, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """`rrwp` of the graphs that keep only the edges with extras["bond"] (bool [E]). Raises EncodingError where the batch has none."""
    if "bond" not in batch.extras:
        raise EncodingError("encoding 'rrwp-bonds' needs extras['bond'], which edges are bonds; without it use 'rrwp'")
    bond = batch.extras["bond"].view(-1).bool()
    bonded = GraphBatch(batch.x, batch.edge_index[:, bond], batch.ptr)
    return rrwp(bonded, steps=steps, identity=identity, squaring=squaring, dtype=dtype)


RRWP_BONDS = Encoding(
    "rrwp-bonds",
    rrwp_bonds,
    {"rrwp": "pair"},
    lambda steps, identity, squaring: RRWP.widths(steps=steps, identity=identity, squaring=squaring, dual=False, normalization="rw"),
    on_the_fly=True,
)
