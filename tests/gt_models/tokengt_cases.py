"""Small TokenGTs and graphs for them."""

import torch
from torch import Tensor

from gt_models import GraphBatch
from gt_models.tokengt import TokenGT
from tests.gt_models import checks

TINY = {"in_dim": 4, "edge_dim": 3, "out_dim": 2, "hidden_dim": 12, "num_heads": 3, "num_layers": 2, "node_id_dim": 5}


def build(level="graph", cls=TokenGT, **arguments) -> TokenGT:
    torch.manual_seed(3)
    model = cls(**{**TINY, "level": level, **arguments}).double()
    for name, parameter in model.named_parameters():  # biases, norms and small weights must affect the output
        if "norm" not in name:
            torch.nn.init.normal_(parameter, std=0.5)
        else:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.3)
    return model


def graphs(sizes=(5, 3, 7), **arguments) -> list[GraphBatch]:
    return checks.random_graphs(sizes, node_encodings=(("laplacian_eigenvectors", 5),), **arguments)


def orthonormal(p: Tensor) -> bool:
    return torch.allclose(p @ p.T, torch.eye(p.size(0), dtype=p.dtype), atol=1e-10)
