"""A small instance of every registered model, and a batch with all encodings."""

import inspect

import torch
from torch import Tensor, nn

from gt_models import create_model, model_info
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_models.checks import collate, random_graphs

# small and without random numbers; arguments that a constructor does not have are left out
SMALL = {
    "in_dim": 4,
    "out_dim": 2,
    "edge_dim": 3,
    "hidden_dim": 8,
    "num_layers": 1,
    "num_local_layers": 1,
    "num_global_layers": 1,
    "gin_layers": 1,
    "num_stem_ffn": 1,
    "num_heads": 2,
    "head_dim": 4,
    "stem_dim": 8,
    "rrwp_hidden_dim": 4,
    "set_dims": (8, 8),
    "pair_dims": (8,),
    "rrwp_dim": 3,
    "rwse_dim": 3,
    "laplacian_dim": 0,
    "node_id_dim": 3,
    "pe_dim": 2,
    "path_length": 2,
    "num_nodes": 9,
    "samples": 0,
    "sign_flip": False,
    "dropout": 0.0,
    "redraw_interval": None,
}

OWN = {
    "ppgt-node2subgraph-released": {"layer_scale": 1.0, "stem_layer_scale": 1.0},
    "hyper-sagnn": {"node_encoder": "features"},
    "tokengt-attention": {"in_dim": 0, "out_dim": 15, "num_heads": 15, "node_identifiers": "laplacian"},
}

# models of which gt_bench pads no batch
NEVER_PADDED = {
    "hot", "hot-released", "hyper-sagnn", "i2gnn-ppgt", "nodeformer", "ppgt-node2subgraph-released", "s2g",
    "tokengt-attention",
}  # fmt: skip


def build(name: str, **others) -> nn.Module:
    known = inspect.signature(model_info(name).cls).parameters
    nothing_drawn = {key: 0.0 for key in known if key.endswith(("dropout", "drop_path"))}
    arguments = (
        nothing_drawn | {key: value for key, value in SMALL.items() if key in known} | OWN.get(name, {}) | others
    )
    torch.manual_seed(0)
    return create_model(name, **{"level": model_info(name).levels[0]} | arguments)


def batch(sizes: tuple[int, ...] = (5, 3, 4)) -> GraphBatch:
    encodings = {
        "pair_encodings": (("rrwp", 3),),
        "node_encodings": (("laplacian_eigenvectors", 3), ("second_eigenvector", 1), ("rwse", 3)),
    }
    graphs = collate(random_graphs(sizes, dtype=torch.float32, **encodings))
    graphs.encodings["target"] = (graphs.local == 0).float()[:, None]
    rng = torch.Generator().manual_seed(0)
    graphs.encodings["laplacian_eigenvalues"] = torch.rand(len(sizes), 3, generator=rng)
    graphs.encodings["hops"] = torch.randn(graphs.num_nodes, 16, generator=rng)
    graphs.encodings["number"] = graphs.local[:, None]
    graphs.encodings["expander"] = torch.randint(-1, min(sizes), (graphs.num_nodes, 3), generator=rng)
    graphs.extras["hyperedge_index"] = torch.tensor([[0, 1, 2], [1, 0, 2]])
    graphs.encodings |= compute("shortest-path", graphs, path_length=2)
    return graphs


def outputs(model: nn.Module, data: GraphBatch) -> Tensor:
    """Outputs of all training phases of the model, next to each other."""
    if not hasattr(model, "phases"):
        return model(data)
    found = []
    for phase in model.phases:
        model.set_phase(phase)
        found.append(model(data))
    return torch.cat(found, 1)


def redrawn(model: nn.Module) -> nn.Module:
    """`model` with every weight, bias and running statistic moved, so that all of them affect the output."""
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point() and not name.endswith("projection"):
                value.add_(0.3 * (torch.rand_like(value) if "running" in name else torch.randn_like(value)))
    return model


def graph(n: int, pairs: list[tuple[int, int]], seed: int = 0) -> GraphBatch:
    """One graph with all encodings, in float64."""
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    edges, place = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T, torch.arange(n)[:, None]
    found = GraphBatch(draw(n, 4), edges, torch.tensor([0, n]), draw(len(pairs), 3))
    found.encodings = {
        "rrwp": draw(n * n, 3), "laplacian_eigenvectors": draw(n, 3), "laplacian_eigenvalues": draw(1, 3),
        "second_eigenvector": draw(n, 1), "rwse": draw(n, 3), "position": draw(n, 2), "hops": draw(n, 16),
        "target": (place == 0).double(), "number": place, "node_identifiers": draw(n, 3),
        "expander": torch.randint(-1, n, (n, 3), generator=rng),
    }  # fmt: skip
    found.encodings |= compute("shortest-path", found, path_length=2)
    tuples = [torch.randperm(n, generator=rng)[:3] for _ in range(3 if n > 2 else 0)]
    found.extras["hyperedge_index"] = torch.stack(tuples) if tuples else torch.empty(0, 3, dtype=torch.long)
    found.extras["hyperedge_attr"] = draw(len(tuples), 3)
    return found


def graphs() -> list[GraphBatch]:
    """A single node, a random graph, and one with self-loops, parallel and one-way edges and an isolated node."""
    rng = torch.Generator().manual_seed(5)
    upper = torch.triu(torch.rand(5, 5, generator=rng) < 0.6, 1)
    messy = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 2), (2, 1), (3, 4), (4, 0)]
    return [graph(5, (upper | upper.T).nonzero().tolist(), 1), graph(1, [], 2), graph(6, messy, 3)]
