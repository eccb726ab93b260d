"""Small PPGTs, graphs for them, and their outputs by the reference."""

import torch

from gt_models import GraphBatch, create_model
from tests.gt_models.checks import random_graphs
from tests.gt_models.reference import ppgt as reference

SUBGRAPHS = "ppgt-node2subgraph-released"
SMALL = {
    "in_dim": 4,
    "out_dim": 2,
    "edge_dim": 3,
    "hidden_dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "rrwp_dim": 5,
    "stem_dim": 6,
    "num_stem_ffn": 1,
}


def small(name: str = "ppgt", **changes):
    """A small float64 model in which every weight affects the output (biases, norms and gates are redrawn)."""
    model = create_model(name, **(SMALL | changes)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() == 1 else 0.7 * parameter.size(-1) ** -0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    return model.eval()


def graphs(sizes=(4, 1, 5), **kinds):
    return random_graphs(sizes, pair_encodings=(("rrwp", 6),), **kinds)


def directed_graph() -> GraphBatch:
    """Graphs with edges in one direction or with different features in each, a self-loop, and a repeated edge."""
    edges = torch.tensor([[0, 1, 2, 3, 2, 0], [1, 2, 1, 0, 2, 1]])
    x, attr, rrwp = (torch.randn(*shape, dtype=torch.float64) for shape in ((4, 4), (6, 3), (16, 6)))
    return GraphBatch(x, edges, torch.tensor([0, 4]), attr, encodings={"rrwp": rrwp})


def described(name: str = "ppgt", urpe: bool = True, degree: bool = True, **changes) -> dict:
    """The settings of a model as arguments of `reference.ppgt_nodes`."""
    s = {
        "num_layers": 2,
        "num_heads": 2,
        "num_frequencies": 3,
        "attention": "sl2",
        "norm": "adarms",
        "num_ffn": 1,
        "pair_degree": degree,
    }
    s |= {"scale_queries": True, "urpe": "linear" if urpe else "none"}
    if name.endswith("released"):
        s |= {
            "scale_queries": False,
            "urpe": "one-plus" if urpe else "none",
            "degree": "neighbours",
            "query_end": "target",
        }
    return s | changes


def expected_outputs(model, singles, settings, pooling="sum", level="graph", head_layers=3):
    """The equations in loops, graph by graph, with the encodings "position" and "target" if they exist."""
    w, results = model.state_dict(), []
    for g in singles:
        n = g.num_nodes
        rrwp, target = g.encodings["rrwp"].view(n, n, -1)[..., :5], g.encodings.get("target")
        edges = [tuple(e) for e in g.edge_index.T.tolist()]
        target = None if target is None else int(target.argmax())
        h = reference.ppgt_nodes(w, g.x, edges, g.edge_attr, rrwp, settings, g.encodings.get("position"), target)
        if level == "node":
            values = h
        elif pooling == "class-attention":
            values = [reference.class_attention(w, h, settings, 2)]
        else:
            values = [sum(h) / (n if pooling == "mean" else 1)]
        results += [reference.head(w, v, head_layers) for v in values]
    return torch.stack(results)


ZINC = {
    "in_dim": [21],
    "edge_dim": [4],
    "out_dim": 1,
    "hidden_dim": 64,
    "num_layers": 12,
    "num_heads": 8,
    "rrwp_dim": 25,
    "stem_dim": 128,
}


def with_encodings() -> list[GraphBatch]:
    """Graphs with positions and a marked node; one is directed."""
    singles = [*random_graphs((4, 1), pair_encodings=(("rrwp", 6),)), directed_graph()]
    rng = torch.Generator().manual_seed(2)
    for number, g in enumerate(singles):
        g.encodings["position"] = torch.randn(g.num_nodes, 2, dtype=torch.float64, generator=rng)
        g.encodings["target"] = (torch.arange(g.num_nodes) == number % g.num_nodes).double()[:, None]
    return singles


def small_subgraphs(**changes):
    given = {key: value for key, value in SMALL.items() if key != "edge_dim"} | {
        "name": SUBGRAPHS,
        "pair_dim": 8,
        "num_stem_ffn": 2,
    }
    model = create_model(**(given | changes)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() == 1 else 0.7 * parameter.size(-1) ** -0.5)
    return model.eval()
