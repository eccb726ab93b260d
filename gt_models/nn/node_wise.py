"""What baselines that work node by node, and pool at the end, ask of their arguments."""

from gt_models.nn.pooling import POOLINGS


def check_level(name: str, level: str, pooling: str, num_layers: int) -> None:
    """Raises ValueError for a level, a pooling or a depth that a node-wise baseline does not have."""
    if level not in ("node", "graph"):
        raise ValueError(f"{name} cannot predict at level {level!r}; it predicts: node, graph")
    if pooling not in POOLINGS:
        raise ValueError(f"unknown pooling {pooling!r}; known: {', '.join(POOLINGS)}")
    if num_layers < 1:
        raise ValueError(f"{name} needs at least one layer, not {num_layers}")
