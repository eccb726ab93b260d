"""Small GCNs and MLPs, and graphs for them."""

from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),), node_encodings=(("laplacian_eigenvectors", 4),))


def build(name="gcn", level="node", **arguments) -> nn.Module:
    return create_model(name, **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8} | arguments).double()
