"""Parameters of a module drawn again."""

from torch import nn


class ResetParameters(nn.Module):
    """A module whose `reset_parameters` resets its children, in the order of their registration."""

    def reset_parameters(self) -> None:
        for child in self.children():
            for part in child if isinstance(child, nn.ModuleList) else (child,):
                if callable(reset := getattr(part, "reset_parameters", None)):
                    reset()
