"""GCN, GAT and GraphSAGE as tuned by Luo, Shi and Wu ("Classic GNNs are Strong Baselines").

NeurIPS 2024, https://arxiv.org/abs/2406.08993.
"""

from typing import Literal

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.convolutions import GraphAttention, GraphConvolution, MeanAndSelf, linear
from gt_models.layers.csr import csr_edges
from gt_models.layers.features import with_columns
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model

NORMS = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


@register_model(
    "classic-gnn",
    levels=("node",),
    cost="m d + n d^2",
    encodings=(),
    paper="Luo, Shi and Wu: Classic GNNs are Strong Baselines: Reassessing GNNs for Node Classification, NeurIPS "
    "2024. https://arxiv.org/abs/2406.08993",
    sparse_x=True,
)
class ClassicGNN(GraphModel):
    """Node [N, out_dim].

    Layer: dropout(relu(norm(conv(x) (+ W x)))); the head reads the last layer (or the sum of all).

    Every node is its own neighbour, exactly once, in all three convolutions: GCN's normalisation, GAT's softmax and
    GraphSAGE's mean. The first convolution reads the features themselves, which for bag-of-words is most of the
    parameters, unless `input_layer`.

    Args:
        in_dim: width of the node features; they are continuous.
        out_dim: classes.
        level: "node".
        convolution: "gcn", "gat" (without bias) or "sage" (mean, with a bias and a weight for the node itself).
        hidden_dim: width of all layers.
        num_layers: convolutions.
        num_heads: of "gat", side by side; must divide `hidden_dim`.
        dropout: after each activation, and after the input layer.
        normalisation: "none", "batch" or "layer", after convolution and residual.
        residual: each layer adds a linear map of its input.
        input_layer: a Linear before the first convolution.
        all_layers: the head reads the sum of all layers' outputs.

    Raises:
        ValueError: an unknown convolution or normalisation, features that are categories, no layer, or heads that do
            not divide the width.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        level: Literal["node"] = "node",
        convolution: Literal["gcn", "gat", "sage"] = "gcn",
        hidden_dim: int = 256,
        num_layers: int = 3,
        num_heads: int = 1,
        dropout: float = 0.5,
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        input_layer: bool = False,
        all_layers: bool = False,
    ):
        super().__init__()
        if not isinstance(in_dim, int):
            raise ValueError(
                "classic-gnn reads continuous features (its first convolution multiplies them); these are categories"
            )
        if level != "node":
            raise ValueError(f"classic-gnn cannot predict at level {level!r}; it predicts: node")
        if convolution not in ("gcn", "gat", "sage"):
            raise ValueError(f"unknown convolution {convolution!r}; known: gcn, gat, sage")
        if normalisation not in NORMS:
            raise ValueError(f"unknown normalisation {normalisation!r}; known: {', '.join(NORMS)}")
        if num_layers < 1:
            raise ValueError(f"classic-gnn needs at least one layer, not {num_layers}")
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads"
            )
        self.convolution, self.dropout, self.all_layers = convolution, nn.Dropout(dropout), all_layers
        self.in_dim = in_dim
        self.input_layer = nn.Linear(in_dim, hidden_dim) if input_layer else None
        widths = [hidden_dim if input_layer else in_dim] + [hidden_dim] * (num_layers - 1)
        self.convs = nn.ModuleList(self._convolution(width, hidden_dim, num_heads) for width in widths)
        self.residuals = nn.ModuleList(nn.Linear(width, hidden_dim) for width in widths) if residual else None
        self.norms = nn.ModuleList(NORMS[normalisation](hidden_dim) for _ in widths)
        self.head = nn.Linear(hidden_dim, out_dim)

    def _convolution(self, width: int, hidden_dim: int, num_heads: int) -> nn.Module:
        if self.convolution == "gat":
            return GraphAttention(width, hidden_dim, num_heads)
        return {"gcn": GraphConvolution, "sage": MeanAndSelf}[self.convolution](width, hidden_dim)

    def reset_parameters(self) -> None:
        for module in [self.input_layer, *self.convs, *(self.residuals or ()), *self.norms, self.head]:
            if module is not None and not isinstance(module, nn.Identity):
                module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        x, edges = with_columns(batch.x, self.in_dim).to(dtype_of(self.head)), csr_edges(batch)  # [N, in_dim]
        if self.input_layer is not None:
            x = self.dropout(linear(self.input_layer, x))  # [N, d]
        total = None
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            update = conv(x, edges)
            if self.residuals is not None:
                update = update + linear(self.residuals[i], x)
            x = self.dropout(norm(update).relu())  # [N, d]
            total = x if total is None else total + x
        return total if self.all_layers else x  # type: ignore[return-value]

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        return self.head(features)
