"""Small parts of Polynormer: resets, checks, the order of channels."""

# mypy: disable-error-code="operator"

from torch import Tensor, nn

from gt_models.polynormer.neighbours import LOCAL_ATTENTION

PAPER = "Deng, Yue, Zhang: Polynormer: Polynomial-Expressive Graph Transformer in Linear Time, ICLR 2024. https://arxiv.org/abs/2403.01232"


class Resets(nn.Module):
    """A module that is drawn anew by its parts, in order."""

    def reset_parameters(self) -> None:
        for child in self.children():
            for part in child if isinstance(child, nn.ModuleList) else (child,):
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()


def head_first(t: Tensor, dim: int, num_heads: int) -> Tensor:
    """Dimension `dim`, d channels c * H + h, in the order h * C + c."""
    if num_heads == 1:
        return t
    dim %= t.dim()
    return t.unflatten(dim, (-1, num_heads)).transpose(dim, dim + 1).flatten(dim, dim + 1)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raises ValueError that lists the known values."""
    if value not in known:
        raise ValueError(f"{name}={value!r} is unknown; known: {', '.join(known)}")


def check(
    level: str,
    attention: str,
    version: str,
    local_layer: str,
    norm: str,
    hidden_dim: int,
    num_heads: int,
    num_local_layers: int,
    num_global_layers: int,
) -> None:
    """Raises ValueError for arguments that are unknown or do not fit each other."""
    check_choice("level", level, ("node", "graph"))
    check_choice("attention", attention, ("local", "global", "local-to-global", "local-and-global"))
    check_choice("version", version, ("v1", "v2"))
    check_choice("local_layer", local_layer, tuple(LOCAL_ATTENTION))
    check_choice("norm", norm, ("layer", "none"))
    if hidden_dim % num_heads:
        raise ValueError(
            f"hidden_dim {hidden_dim} cannot be split into {num_heads} heads: choose a multiple of num_heads"
        )
    if (attention != "global" and num_local_layers < 1) or (
        attention in ("global", "local-to-global") and num_global_layers < 1
    ):
        raise ValueError(f"attention {attention!r} needs at least one layer of each of its modules")
