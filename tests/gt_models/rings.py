"""Rings as torch_geometric data."""

import torch
from torch_geometric.data import Data


def ring(n: int, seed: int = 0) -> Data:
    around = torch.arange(n)
    edges = torch.stack([torch.cat([around, (around + 1) % n]), torch.cat([(around + 1) % n, around])])
    return Data(
        x=torch.randn(n, 3, generator=torch.Generator().manual_seed(seed)), edge_index=edges, y=torch.tensor([n % 2])
    )
