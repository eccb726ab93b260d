"""Multi-layer perceptron with named activations."""

from collections.abc import Sequence

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


def activation(name: str) -> nn.Module:
    """The activation called `name`; raises ValueError listing the known ones."""
    if name.lower() not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name.lower()]()


class MLP(nn.Sequential):
    """Linear, activation, dropout, ..., Linear through the widths `dims`: [..., dims[0]] -> [..., dims[-1]]."""

    def __init__(self, dims: Sequence[int], act: str = "relu", dropout: float = 0.0, bias: bool = True):
        layers: list[nn.Module] = []
        for i, (d_in, d_out) in enumerate(zip(dims, dims[1:], strict=False)):
            layers.append(nn.Linear(d_in, d_out, bias=bias))
            if i < len(dims) - 2:
                layers += [activation(act), nn.Dropout(dropout)]
        super().__init__(*layers)

    def reset_parameters(self) -> None:
        for layer in self:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """[..., first width] -> [..., last width]."""
        return super().forward(x)
