"""The MLP and GCN baselines."""

import torch

from tests.gt_models.baselines.cases import build, graphs


def test_gcn_is_its_equation():
    """X <- relu(D^-1/2 (A + I) D^-1/2 X W + b), D the degrees of A + I (Kipf and Welling 2017, Eq. 2)."""
    graph, model = graphs((6,))[0], build(num_layers=2, rrwp_dim=2).eval()
    w, n = model.state_dict(), 6
    adjacency = torch.eye(n, dtype=torch.float64)
    adjacency[graph.edge_index[1], graph.edge_index[0]] = 1.0
    scale = adjacency.sum(1).rsqrt()
    walk = graph.encodings["rrwp"].view(n, n, 3)[range(n), range(n), :2]
    x = (
        torch.cat([graph.x, walk], 1) @ torch.cat([w["encoder.linear.weight"], w["encoding_encoder.weight"]], 1).T
        + w["encoder.linear.bias"]
    )
    for i in range(2):
        x = torch.relu((scale[:, None] * adjacency * scale) @ x @ w[f"convs.{i}.lin.weight"].T + w[f"convs.{i}.bias"])
    torch.testing.assert_close(model(graph), x @ w["head.weight"].T + w["head.bias"], rtol=1e-10, atol=1e-10)
