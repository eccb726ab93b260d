"""The prediction head of the GraphGPS family: an MLP whose width halves."""

from gt_models.nn.mlp import MLP


class HalvingHead(MLP):
    """Linear and activation through d, d / 2, ..., d / 2^hidden_layers, then out: [..., hidden_dim] -> [..., out_dim]; 0 hidden layers: a Linear."""

    def __init__(self, hidden_dim: int, out_dim: int, hidden_layers: int = 2, act: str = "relu"):
        if hidden_layers < 0 or hidden_dim >> hidden_layers < 1:
            raise ValueError(f"a head of width {hidden_dim} cannot halve {hidden_layers} times")
        super().__init__([*(hidden_dim >> i for i in range(hidden_layers + 1)), out_dim], act)
