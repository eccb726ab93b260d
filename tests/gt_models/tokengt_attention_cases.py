"""The size of small models, and graphs for them."""

from tests.gt_models import checks

SMALL = {"node_id_dim": 8, "hidden_dim": 12, "head_dim": 4}


def graphs(sizes=(5, 3, 4)):
    return checks.random_graphs(sizes, node_encodings=(("laplacian_eigenvectors", 8),))
