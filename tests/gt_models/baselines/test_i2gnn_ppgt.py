"""I2GNN + PPGT: subgraphs compared with networkx, edge encodings in loops, symmetries, and expressivity."""

import networkx as nx
import pytest
import torch

from gt_models import GraphBatch, create_model
from gt_models.baselines.i2gnn_ppgt import edge_subgraphs
from gt_models.encodings.random_walk import rrwp
from tests.gt_models.checks import collate, random_graphs

SMALL = {
    "in_dim": 4,
    "out_dim": 2,
    "edge_dim": 3,
    "hidden_dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "rrwp_dim": 5,
    "stem_dim": 6,
    "num_stem_ffn": 1,
}
SMALL |= {"num_frequencies": 2, "gin_layers": 2, "subgraph_hops": 1}


@pytest.mark.parametrize("source_only", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
def test_subgraphs(source_only, hops):
    batch = collate(random_graphs((7, 1, 6), density=0.3))
    batch.edge_index = torch.cat([batch.edge_index, torch.tensor([[0], [0]])], 1)  # a self-loop has no subgraph
    owner, node, source, target = edge_subgraphs(batch, hops, source_only)
    whole = nx.Graph(batch.edge_index.T.tolist())
    whole.add_nodes_from(range(batch.num_nodes))
    for e, (i, j) in enumerate(batch.edge_index.T.tolist()):
        members = node[owner == e].tolist()
        ends = [] if i == j else [i] if source_only else [i, j]
        assert sorted(members) == sorted(
            {v for end in ends for v in nx.single_source_shortest_path_length(whole, end, hops)}
        )
        mine = owner[source] == e
        assert (owner[target[mine]] == e).all()
        got = sorted(zip(node[source[mine]].tolist(), node[target[mine]].tolist(), strict=True))
        assert got == sorted((a, b) for a, b in batch.edge_index.T.tolist() if a in members and b in members)


def test_edge_encodings_in_loops():
    """One GIN layer: RRWP from both end nodes, sums over neighbours and subgraphs, batch norms in evaluation."""
    model = create_model("i2gnn-ppgt", **(SMALL | {"gin_layers": 1})).double()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    model.eval()
    g = random_graphs((6,), density=0.4, pair_encodings=(("rrwp", 5),))[0]
    p, edges, layer = g.encodings["rrwp"].view(6, 6, 5), g.edge_index.T.tolist(), model.layers[0]
    bn = lambda norm, v: (v - norm.running_mean) / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias  # noqa: E731
    out = model.encode_subgraphs(g)
    for e, (i, j) in enumerate(edges):
        members = {i, j} | {b for a, b in edges if a in (i, j)}
        h = {v: model.node_linear(torch.cat([p[v, i], p[v, j]])) for v in members}
        total = torch.zeros(8, dtype=torch.float64)
        for v in members:
            mixed = (1 + layer.eps) * h[v] + sum(
                (h[a] for a, b in edges if b == v and a in members), torch.zeros(8, dtype=torch.float64)
            )
            hidden = torch.nn.functional.gelu(layer.linear1(mixed))
            total = total + h[v] + bn(layer.norm, layer.linear2(hidden))
        torch.testing.assert_close(out[e], model.out.weight @ bn(model.norm, total), rtol=1e-10, atol=1e-10)


def test_strongly_regular_graphs_are_separated(mirror):
    """Beyond GD-WL: two graphs of SR(25, 12, 5, 6), which PPGT alone does not distinguish, and a relabelled copy."""
    lines = (mirror / "sr25" / "sr251256.g6").read_bytes().split()[:2]
    graphs = [nx.from_graph6_bytes(line) for line in lines]
    order = torch.randperm(25).tolist()
    graphs.append(nx.relabel_nodes(graphs[0], dict(enumerate(order))))
    torch.manual_seed(5)
    settings = {
        "in_dim": [1],
        "out_dim": 4,
        "edge_vector": True,
        "hidden_dim": 8,
        "num_layers": 1,
        "num_heads": 2,
        "rrwp_dim": 4,
        "stem_dim": 8,
    }
    model = (
        create_model(
            "i2gnn-ppgt", **settings, num_stem_ffn=1, num_frequencies=2, gin_layers=2, subgraph_hops=1, head_layers=1
        )
        .double()
        .eval()
    )
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5 if p.dim() < 2 else p.size(-1) ** -0.5)
    outputs = []
    for g in graphs:
        edges = torch.tensor(list(g.to_directed().edges)).T
        batch = GraphBatch(torch.zeros(25, 1, dtype=torch.long), edges, torch.tensor([0, 25]))
        batch.encodings = rrwp(batch, steps=3, dtype=torch.float64)
        with torch.no_grad():
            outputs.append(model(batch))
    scale = outputs[0].abs().max()
    assert (outputs[0] - outputs[2]).abs().max() / scale < 1e-9
    assert (outputs[0] - outputs[1]).abs().max() / scale > 1e-6


def test_initialisation():
    """The GIN has the initialisation of the backbone, regardless of the stems."""
    model = create_model("i2gnn-ppgt", **(SMALL | {"hidden_dim": 96}))
    for linear in (
        model.node_linear,
        model.out,
        model.layers[0].linear1,
        model.layers[1].linear2,
        model.ppgt.stem.blocks[0].linear1,
    ):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
