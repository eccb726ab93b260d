"""Small GCNs and MLPs, graphs for them, and parts of a model computed from its state dict."""

from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 3),), node_encodings=(("laplacian_eigenvectors", 4),))


def build(name="gcn", level="node", **arguments) -> nn.Module:
    return create_model(name, **{"in_dim": 4, "out_dim": 2, "level": level, "hidden_dim": 8} | arguments).double()


def redrawn(model: nn.Module, vectors: bool = True) -> nn.Module:
    """Draws running statistics and, with `vectors`, all biases and norms, so that they affect the output."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    for parameter in model.parameters() if vectors else ():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return model


def linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """x W^T + b, or without b if there is none."""
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def batch_normed(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Batch normalisation by its running statistics."""
    deviation = (w[f"{name}.running_var"] + 1e-5).sqrt()
    return (x - w[f"{name}.running_mean"]) / deviation * w[f"{name}.weight"] + w[f"{name}.bias"]
