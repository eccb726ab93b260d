"""The prediction head of the GraphGPS family: an MLP whose width halves, or stays."""

from torch import Tensor, nn

from gt_models.layers.mlp import MLP

HEADS = ("halving", "constant")


class MLPHead(MLP):
    """`hidden_layers` x (Linear, activation), then Linear: [..., hidden_dim] -> [..., out_dim].

    With `unit_length` every hidden vector is divided by its 2-norm, as the MLP of torch_geometric's GraphGym does
    unasked.

    Raises:
        ValueError: an unknown `head`, or a width that cannot halve so often.
    """

    def __init__(
        self,
        hidden_dim: int,
        out_dim: int,
        head: str = "halving",
        hidden_layers: int = 2,
        act: str = "relu",
        unit_length: bool = False,
    ):
        if head not in HEADS:
            raise ValueError(f"unknown head {head!r}; known: {', '.join(HEADS)}")
        halvings = hidden_layers if head == "halving" else 0
        if hidden_layers < 0 or hidden_dim >> halvings < 1:
            raise ValueError(f"a head of width {hidden_dim} cannot halve {hidden_layers} times")
        widths = [hidden_dim >> (i if head == "halving" else 0) for i in range(hidden_layers + 1)]
        super().__init__([*widths, out_dim], act)
        self.unit_length = unit_length

    def forward(self, x: Tensor) -> Tensor:
        """[rows, in_dim] -> [rows, out_dim]."""
        if not self.unit_length:
            return super().forward(x)
        for i, layer in enumerate(self):
            if i and isinstance(layer, nn.Linear):
                x = nn.functional.normalize(x, dim=-1)
            x = layer(x)
        return x
