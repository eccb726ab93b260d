"""A small instance of every registered model, and a batch with all encodings."""

import inspect

import torch
from torch import Tensor, nn

from gt_models import create_model, model_info
from gt_models.batch import GraphBatch
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


def build(name: str, **others) -> nn.Module:
    known = inspect.signature(model_info(name).cls).parameters
    nothing_drawn = {key: 0.0 for key in known if key.endswith(("dropout", "drop_path"))}
    arguments = (
        nothing_drawn | {key: value for key, value in SMALL.items() if key in known} | OWN.get(name, {}) | others
    )
    torch.manual_seed(0)
    return create_model(name, level=model_info(name).levels[0], **arguments)


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
    graphs.encodings["shortest_path_distance"] = torch.randint(-1, 5, (graphs.num_pairs, 1), generator=rng)
    graphs.encodings["shortest_path_edges"] = torch.randint(-1, graphs.num_edges, (graphs.num_pairs, 2), generator=rng)
    return graphs


class OnTensors(nn.Module):
    """A model for torch.export: called with tensors; numbers of nodes, edges and pairs are constants."""

    def __init__(self, model: nn.Module, graphs: GraphBatch):
        super().__init__()
        self.model, self.sizes = (
            model,
            {name: getattr(graphs, name) for name in ("max_nodes", "max_edges", "num_pairs")},
        )

    def forward(
        self, x: Tensor, edge_index: Tensor, ptr: Tensor, edge_attr: Tensor, encodings: dict, extras: dict
    ) -> Tensor:
        graphs = GraphBatch(x, edge_index, ptr, edge_attr, None, encodings, extras)
        vars(graphs).update(self.sizes)
        return self.model(graphs)


def tensors(graphs: GraphBatch) -> tuple:
    return graphs.x, graphs.edge_index, graphs.ptr, graphs.edge_attr, dict(graphs.encodings), dict(graphs.extras)
