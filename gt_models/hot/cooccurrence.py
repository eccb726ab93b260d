"""Node features from hyperedge co-occurrence: the tied autoencoder of Hyper-SAGNN (Zhang et al. 2020), which Kim et al. 2021,
Section 5, keep under their higher-order transformer."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.support import Support
from gt_models.hot.tensor_input import TensorInput
from gt_models.layers.static_shapes import needs_static_shapes


def node_input(
    encoder: str,
    order: int,
    in_dim: int | Sequence[int],
    edge_dim: int | Sequence[int] | None,
    hidden_dim: int,
    edge_columns: str = "sum",
    degree_embeddings: int = 0,
) -> "TensorInput | CooccurrenceInput":
    """The input of a higher-order model. Raises ValueError for an unknown encoder or one that does not fit the order."""
    if encoder == "features":
        return TensorInput(order, in_dim, edge_dim, hidden_dim, edge_columns, degree_embeddings)
    if encoder != "cooccurrence":
        raise ValueError(f"unknown node_encoder {encoder!r}; known: features, cooccurrence")
    if order != 1:
        raise ValueError(f"node_encoder 'cooccurrence' gives one vector per node: it needs input_order=1, not {order}")
    return CooccurrenceInput(in_dim, hidden_dim)


class CooccurrenceInput(nn.Module):
    """A batch -> [N, hidden_dim]: LN(tanh(W_t a_v + b_t)) for a node v of type t, where a_v holds one number for each node of another type.

    Node features say type and number: one column per type, 0 in all but the node's own, which holds 1 + its number. Edges are the numbers:
    an edge u -> v with feature a_vu [E, 1], edges in order of their target.

    In training the mean squared error of the tied decoder W_t^T h_v + c_t on the entries that are not 0 (averaged over entries, then over
    nodes, added up over types) is left in `batch.extras["reconstruction_error"]`, for the loss.

    Args:
        in_dim: vocabulary sizes of the columns: 1 + nodes of each type.
        hidden_dim: width.
        dropout: of the entries a_vu.

    Raises ValueError for features that are not such columns.
    """

    def __init__(self, in_dim: int | Sequence[int], hidden_dim: int, dropout: float = 0.25):
        super().__init__()
        if isinstance(in_dim, int) or len(in_dim) < 2:
            raise ValueError(
                f"co-occurrence needs one categorical column for each of two or more node types; in_dim is {in_dim}"
            )
        self.width, self.dropout = hidden_dim, nn.Dropout(dropout)
        sizes = torch.tensor([size - 1 for size in in_dim])
        columns = sizes.sum() - sizes  # of other types, per type
        self.columns = columns.tolist()
        # where the nodes of each type begin, and where the weights of each type do
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("node_start", sizes.cumsum(0) - sizes, persistent=False)
        self.register_buffer("weight_start", columns.cumsum(0) - columns, persistent=False)
        # deviates: columns of nodes in no known hyperedge are kept where the authors cut them out: they are 0 and meet no gradient
        self.weight = nn.Parameter(torch.empty(sum(self.columns), hidden_dim))
        self.bias = nn.Parameter(torch.empty(len(in_dim), hidden_dim))
        self.decoder_bias = nn.Parameter(torch.empty(sum(self.columns)))
        self.norm_weight = nn.Parameter(torch.empty(len(in_dim), hidden_dim))
        self.norm_bias = nn.Parameter(torch.empty(len(in_dim), hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform, by the columns of each type (torch's Linear); the norm is the identity."""
        with torch.no_grad():
            for kind, weight in enumerate(self.weight.split(self.columns)):
                bound = 1 / math.sqrt(max(1, self.columns[kind]))
                weight.uniform_(-bound, bound)
                self.bias[kind].uniform_(-bound, bound)
            bound = 1 / math.sqrt(self.width)
            self.decoder_bias.uniform_(-bound, bound)
            self.norm_weight.fill_(1.0)
            self.norm_bias.zero_()

    def forward(self, batch: GraphBatch, support: Support, dtype: torch.dtype) -> Tensor:
        """[N, width]. Raises ValueError for edges without numbers and (on the CPU, where no device has to be waited for) for nodes without a type,
        and edges within a type or out of order."""
        if batch.x.dim() != 2 or batch.x.size(1) != len(self.columns) or batch.x.is_floating_point():
            raise ValueError(
                f"node features of shape {tuple(batch.x.shape)}: co-occurrence needs {len(self.columns)} columns of categories"
            )
        if batch.edge_attr is None or batch.edge_attr.size(1) != 1:
            raise ValueError("co-occurrence needs one number per edge: set edge_attr, float [E, 1]")
        kind = (batch.x > 0).long().argmax(1)  # [N]
        source, target = batch.edge_index
        row, column = kind[target], kind[source]
        if not needs_static_shapes(target):  # numbers are not to be waited for
            _check(batch.x, row, column, target)
        number = batch.x.gather(1, kind[:, None]).squeeze(1) - 1  # within the type, [N]
        # the node's place among the columns of the target's type: all nodes but those of that type
        skipped = torch.where(column > row, self.sizes[row], 0)  # type: ignore[index]
        place = self.node_start[column] + number[source] - skipped + self.weight_start[row]  # type: ignore[index]  # [E]
        entry = batch.edge_attr.squeeze(1).to(dtype)  # a_vu, [E]
        first = torch.searchsorted(target.contiguous(), torch.arange(batch.num_nodes, device=target.device))  # [N]
        summed = F.embedding_bag(
            place, self.weight, first, mode="sum", per_sample_weights=self.dropout(entry)
        )  # [N, width]
        hidden = (summed + self.bias[kind]).tanh()
        if self.training:
            batch.extras["reconstruction_error"] = self._error(hidden, place, target, entry, kind)
        return F.layer_norm(hidden, (self.width,)) * self.norm_weight[kind] + self.norm_bias[kind]

    def _error(self, hidden: Tensor, place: Tensor, target: Tensor, entry: Tensor, kind: Tensor) -> Tensor:
        decoded = (hidden.index_select(0, target) * self.weight[place]).sum(1) + self.decoder_bias[place]  # [E]
        entries = target.new_zeros(kind.numel()).index_add(0, target, torch.ones_like(target))  # [N]
        per_node = hidden.new_zeros(kind.numel()).index_add(0, target, (entry - decoded).square()) / entries.clamp(
            min=1
        )
        known = (entries > 0).to(hidden.dtype)
        zeros = hidden.new_zeros(len(self.columns))
        # a node without an entry has no error: it does not count in its type's mean
        return (zeros.index_add(0, kind, per_node) / zeros.index_add(0, kind, known).clamp(min=1)).sum()


def _check(x: Tensor, row: Tensor, column: Tensor, target: Tensor) -> None:
    if bool(((x > 0).sum(1) != 1).any()) or bool((row == column).any()) or bool((target.diff() < 0).any()):
        raise ValueError(
            "co-occurrence needs nodes of one type each, edges between types alone, and edges in order of their target"
        )
