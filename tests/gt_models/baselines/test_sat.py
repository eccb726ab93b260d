"""SAT: its equations node by node with torch_geometric's subgraphs, symmetries, invalid input."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import PNAConv
from torch_geometric.utils import k_hop_subgraph

from gt_models import create_model
from tests.gt_models import checks
from tests.gt_models.baselines.cases import batch_normed, linear, redrawn


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {
        "in_dim": 4,
        "out_dim": 3,
        "level": "node",
        "hidden_dim": 8,
        "num_heads": 2,
        "num_layers": 2,
        "hops": 2,
        "towers": 2,
    }
    model = create_model("sat", **sizes | {"edge_width": 5, "rwse_dim": 3, "dropout": 0.0} | arguments).double()
    return redrawn(model)


def sparse_graphs(sizes=(6, 3, 8)):
    return checks.random_graphs(sizes, density=0.3, node_encodings=(("rwse", 3),))


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_is_its_equations(edge_dim):
    """The degrees in PNA are different ones, which has no effect; one edge has a single direction."""
    graph, model, n = sparse_graphs((8,))[0], build(edge_dim=edge_dim).eval(), 8
    graph.edge_index, graph.edge_attr = graph.edge_index[:, 1:], graph.edge_attr[1:]
    w = model.state_dict()
    x = linear(w, "encoder.linear", graph.x) + linear(w, "rwse_encoder", graph.encodings["rwse"])
    edges = None if edge_dim is None else linear(w, "edge_encoder.linear", graph.edge_attr)
    degree = torch.zeros(n, dtype=torch.float64).index_add(
        0, graph.edge_index[0], torch.ones(graph.num_edges, dtype=torch.float64)
    )
    covered = set()
    for layer in ("layers.0", "layers.1"):
        structure = []
        for i in range(n):
            nodes, inner, _, kept = k_hop_subgraph(i, 2, graph.edge_index, relabel_nodes=True, num_nodes=n)
            covered.add(len(nodes))
            h = x[nodes]
            for step in range(2):
                shape = {"edge_dim": edge_dim and 5, "towers": 2, "divide_input": True}
                conv = PNAConv(
                    8, 8, ["mean", "sum", "max"], ["identity"], torch.tensor([3, 1, 4, 1, 5]), **shape
                ).double()
                own = model.get_submodule(f"{layer}.convs.{step}")
                conv.load_state_dict({k: v for k, v in own.state_dict().items() if "avg_deg" not in k}, strict=False)
                h = conv(h, inner, None if edges is None else edges[kept]).relu()
            structure.append(torch.cat([x[i], h.sum(0)]))
        s = linear(w, f"{layer}.structure_out", batch_normed(w, f"{layer}.structure_norm", torch.stack(structure)))
        k, q = linear(w, f"{layer}.keys_queries", s).split(8, 1)
        v, heads = linear(w, f"{layer}.values", x), []
        for h in (slice(0, 4), slice(4, 8)):
            heads.append((q[:, h] @ k[:, h].T / 2).softmax(1) @ v[:, h])
        heard = linear(w, f"{layer}.out", torch.cat(heads, 1)) / (1 + degree).sqrt()[:, None]
        x = batch_normed(w, f"{layer}.attn_norm", x + heard)
        x = batch_normed(
            w, f"{layer}.ffn_norm", x + linear(w, f"{layer}.ffn_out", linear(w, f"{layer}.ffn_in", x).clamp(min=0))
        )
    assert len(covered) > 1  # nodes have different neighbourhoods
    torch.testing.assert_close(
        model(graph), linear(w, "head.3", linear(w, "head.0", x).clamp(min=0)), rtol=1e-10, atol=1e-10
    )


def test_the_degree_scale_changes_the_output():
    graph = sparse_graphs((8,))[0]
    assert not torch.allclose(build(degree_scale=False).eval()(graph), build().eval()(graph))
