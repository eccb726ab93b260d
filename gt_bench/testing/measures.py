"""What a golden run measures: norms of encodings, weights and gradients, and all losses."""

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

from gt_bench.encodings.cache import read_arrays
from gt_bench.experiment.run import Experiment


def encoding_norms(experiment: Experiment) -> dict[str, float]:
    """Returns the norm of each stored array of each encoding."""
    folder = experiment.data / "encodings" / experiment.dataset
    stored = {key: folder / f"{key}.safetensors" for key in experiment.encoded.digests}
    arrays = {key: read_arrays(path)[1] for key, path in stored.items() if path.exists()}
    return {
        f"{key}/{name}": float(array.double().norm())
        for key, of in arrays.items()
        for name, array in sorted(of.items())
    }


@contextlib.contextmanager
def recorded_losses(then: Callable[[list[float]], None] = lambda losses: None) -> Iterator[list[float]]:
    """Records every loss on which `backward` is called in the block; calls `then` with the list after each."""
    losses: list[float] = []
    backward = torch.Tensor.backward

    def recorded(loss: torch.Tensor, *arguments: object, **named: object) -> None:
        losses.append(float(loss.detach().sum()))
        backward(loss, *arguments, **named)
        then(losses)

    torch.Tensor.backward = recorded  # type: ignore[assignment, method-assign]
    try:
        yield losses
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]


def moved(model: nn.Module, share: float) -> nn.Module:
    """Changes the weights of a model by up to `share` of each, always in the same way, and returns the model."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters() if share else ():
            weight.mul_(
                1
                + share * (2 * torch.rand(weight.shape, generator=generator, dtype=torch.float64) - 1).to(weight.dtype)
            )
    return model


def norm(model: nn.Module) -> float:
    """Returns the norm of all weights and buffers."""
    return math.sqrt(
        sum(float(value.double().square().sum()) for value in model.state_dict().values() if value.is_floating_point())
    )


def gradient(model: nn.Module) -> float:
    """Returns the mean logarithm of the gradients' norms, one per row of each parameter, relative to the total norm.

    All rows count equally, so that a wrong factor of small gradients, such as the scale of attention, is as visible as
    one of large gradients. Losses of a few steps hardly depend on it. The added constant is far above the rounding
    error of a zero gradient.
    """
    rows = [
        (g.flatten(1).norm(dim=1) if g.dim() > 1 else g.abs().view(-1))
        for p in model.parameters()
        if (g := p.grad) is not None
    ]
    norms = torch.cat([row.double() for row in rows])
    return float((norms / norms.norm().clamp(min=1e-300) + 1e-7).log().mean())
