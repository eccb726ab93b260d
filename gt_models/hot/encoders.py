"""Encoders of a batch: graphs as tensors of order 1 or 2 (Kim et al. 2021, Section 2), nodes by co-occurrence.

The latter is the tied autoencoder of Hyper-SAGNN (Zhang et al. 2020), which Kim et al. 2021, Section 5, use below their
model.
"""

# mypy: disable-error-code="arg-type, operator"

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.support import Support
from gt_models.layers.features import FeatureEncoder, with_columns
from gt_models.layers.static_shapes import needs_static_shapes


def make_encoder(
    name: str,
    order: int,
    in_dim: int | Sequence[int],
    edge_dim: int | Sequence[int] | None,
    hidden_dim: int,
    edge_columns: str = "sum",
    degree_embeddings: int = 0,
) -> "TensorEncoder | CooccurrenceEncoder":
    """Build the encoder of a higher-order model.

    Args:
        name: "features" or "cooccurrence".
        order: of the tensor; "cooccurrence" gives order 1.
        in_dim: see `TensorEncoder`.
        edge_dim: see `TensorEncoder`.
        hidden_dim: see `TensorEncoder`.
        edge_columns: see `TensorEncoder`.
        degree_embeddings: see `TensorEncoder`.

    Raises:
        ValueError: an unknown name, or an order that the encoder does not have.
    """
    if name == "features":
        return TensorEncoder(order, in_dim, edge_dim, hidden_dim, edge_columns, degree_embeddings)
    if name != "cooccurrence":
        raise ValueError(f"unknown node_encoder {name!r}; known: features, cooccurrence")
    if order != 1:
        raise ValueError(f"node_encoder 'cooccurrence' gives one vector per node: it needs input_order=1, not {order}")
    return CooccurrenceEncoder(in_dim, hidden_dim)


class TensorEncoder(nn.Module):
    """A batch as a tensor of order 1 or 2 on a `Support`.

    Order 1: node features. Order 2: [node features, 0] on the diagonal, [0, edge features] off it, and zeros at the
    non-edges of a dense support. A self-loop's features are added to its node's entry; features of parallel edges are
    added. Edges without features are ones.

    Args:
        order: 1 or 2.
        in_dim: node features: an int is the width of continuous features, which are used as they are; a sequence has
            one vocabulary size per categorical column, embedded to `hidden_dim`.
        edge_dim: the same for edge features; None ignores edge features.
        hidden_dim: width of embeddings.
        edge_columns: "sum" or "mean" (authors' code) of the embeddings of categorical edge columns.
        degree_embeddings: rows of each of two embeddings of in-degrees, added to embedded nodes (authors' code: 512); 0
            for none.

    Attributes:
        width: of the tensor's entries.

    Raises:
        ValueError: settings that are unknown or do not fit each other.
    """

    def __init__(
        self,
        order: int,
        in_dim: int | Sequence[int],
        edge_dim: int | Sequence[int] | None,
        hidden_dim: int,
        edge_columns: str = "sum",
        degree_embeddings: int = 0,
    ):
        super().__init__()
        if order not in (1, 2):
            raise ValueError(f"input_order {order}: give 1 (nodes) or 2 (nodes and edges)")
        if edge_columns not in ("sum", "mean"):
            raise ValueError(f"unknown edge_columns {edge_columns!r}; known: sum, mean")
        if degree_embeddings and isinstance(in_dim, int):
            raise ValueError(
                "degree_embeddings are added to embedded nodes: give in_dim as vocabulary sizes, or degree_embeddings=0"
            )
        self.order, self.edge_columns = order, edge_columns
        self.in_dim, self.edge_dim = in_dim, edge_dim
        self.node = None if isinstance(in_dim, int) else FeatureEncoder(in_dim, hidden_dim)
        self.edge = FeatureEncoder(edge_dim, hidden_dim) if order == 2 and isinstance(edge_dim, Sequence) else None
        # both tables are fed the in-degree: the graphs are undirected
        self.degree = nn.ModuleList(
            nn.Embedding(degree_embeddings, hidden_dim) for _ in range(2 if degree_embeddings else 0)
        )
        self.node_width = in_dim if isinstance(in_dim, int) else hidden_dim
        self.edge_width = hidden_dim if self.edge is not None else 1 if edge_dim is None else int(edge_dim)
        self.width = self.node_width + (self.edge_width if order == 2 else 0)

    def reset_parameters(self) -> None:
        for part in (self.node, self.edge, *self.degree):
            if part is not None:
                part.reset_parameters()

    def forward(self, batch: GraphBatch, support: Support, dtype: torch.dtype) -> Tensor:
        """Encode a batch.

        Args:
            batch: the graphs.
            support: the stored tuples.
            dtype: of the result.

        Returns:
            [rows of the order, width].

        Raises:
            ValueError: features of another width than the model was built for.
        """
        x = with_columns(batch.x, self.node_width) if self.node is None else self.node(batch.x)
        for table in self.degree:
            target = batch.edge_index[1]
            in_degree = target.new_zeros(batch.num_nodes).index_add(
                0, target, torch.ones_like(target)
            )  # bincount waits for the device
            x = x + table(in_degree.clamp(max=table.num_embeddings - 1))
        x = x.to(dtype)  # [n, node width]
        if self.order == 1:
            return x
        edges = self._edges(batch).to(dtype)  # [E, edge width]
        at_node = torch.cat([x, x.new_zeros(x.size(0), self.edge_width)], 1)
        values = x.new_zeros(len(support.sets[2]), self.width)
        values = values.index_copy(0, torch.arange(x.size(0), device=x.device), at_node)
        at_edge = torch.cat([edges.new_zeros(edges.size(0), self.node_width), edges], 1)
        # unstated: parallel edges and self-loops. One entry each, features added up; a tensor has one A_ij
        return values.index_add(0, support.edge_rows, at_edge)  # [rows of order 2, width]

    def _edges(self, batch: GraphBatch) -> Tensor:
        if self.edge_dim is None:
            return batch.x.new_ones(batch.num_edges, 1)
        if self.edge is None:
            return with_columns(batch.edge_features(), self.edge_width)
        embedded = self.edge(batch.edge_features())
        return embedded / len(self.edge_dim) if self.edge_columns == "mean" else embedded


class CooccurrenceEncoder(nn.Module):
    """Node vectors LN(tanh(W_t a_v + b_t)) for a node v of type t, with one entry of a_v per node of another type.

    The columns of the node features are the types: a column is 0 in all nodes of other types, else 1 + the number of
    the node. The edges are the entries a_vu: an edge u -> v with feature a_vu, in order of their target.

    Args:
        in_dim: vocabulary sizes of the columns: 1 + number of nodes of each type.
        hidden_dim: output width.
        dropout: dropout rate of the entries a_vu.

    Attributes:
        reconstruction_error: scalar, set by each forward pass in training, for the loss; None before and in evaluation.
            It is the mean squared error of the tied decoder W_t^T h_v + c_t on the entries that are not 0, averaged
            over entries, then over nodes, and summed over types. Copies and pickles of the module do not have it.

    Raises:
        ValueError: `in_dim` is not such columns.
    """

    def __init__(self, in_dim: int | Sequence[int], hidden_dim: int, dropout: float = 0.25):
        super().__init__()
        if isinstance(in_dim, int) or len(in_dim) < 2:
            raise ValueError(
                f"co-occurrence needs one categorical column for each of two or more node types; in_dim is {in_dim}"
            )
        self.width, self.dropout = hidden_dim, nn.Dropout(dropout)
        self.reconstruction_error: Tensor | None = None
        sizes = torch.tensor([size - 1 for size in in_dim])
        columns = sizes.sum() - sizes  # of other types, per type
        self.columns = columns.tolist()
        # where the nodes of each type begin, and where the weights of each type do
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("node_start", sizes.cumsum(0) - sizes, persistent=False)
        self.register_buffer("weight_start", columns.cumsum(0) - columns, persistent=False)
        # deviates: columns of nodes in no known hyperedge stay where the authors cut them out: they are 0 and meet
        # no gradient
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
        """Encode a batch.

        Args:
            batch: types as `x` and entries as edges, see the class.
            support: unused.
            dtype: of the result.

        Returns:
            [N, hidden_dim].

        Raises:
            ValueError: edges without numbers; on the CPU also nodes without a type, and edges within a type or out of
                order.
        """
        if batch.x.dim() != 2 or batch.x.size(1) != len(self.columns) or batch.x.is_floating_point():
            raise ValueError(
                f"node features of shape {tuple(batch.x.shape)}: co-occurrence needs {len(self.columns)} columns of "
                "categories"
            )
        if batch.edge_attr is None or batch.edge_attr.size(1) != 1:
            raise ValueError("co-occurrence needs one number per edge: set edge_attr, float [E, 1]")
        kind = (batch.x > 0).long().argmax(1)  # [N]
        source, target = batch.edge_index
        row, column = kind[target], kind[source]
        if not needs_static_shapes(target):  # else the check would synchronise the device
            _check(batch.x, row, column, target)
        number = batch.x.gather(1, kind[:, None]).squeeze(1) - 1  # within the type, [N]
        # the node's place among the columns of the target's type: all nodes but those of that type
        skipped = torch.where(column > row, self.sizes[row], 0)  # type: ignore[index]
        first_of_type = self.node_start[column] + self.weight_start[row]  # type: ignore[index]
        place = first_of_type + number[source] - skipped  # [E]
        entry = batch.edge_attr.squeeze(1).to(dtype)  # a_vu, [E]
        first = torch.searchsorted(target.contiguous(), torch.arange(batch.num_nodes, device=target.device))  # [N]
        summed = F.embedding_bag(
            place, self.weight, first, mode="sum", per_sample_weights=self.dropout(entry)
        )  # [N, width]
        hidden = (summed + self.bias[kind]).tanh()
        self.reconstruction_error = self._error(hidden, place, target, entry, kind) if self.training else None
        return F.layer_norm(hidden, (self.width,)) * self.norm_weight[kind] + self.norm_bias[kind]

    def __getstate__(self) -> dict[str, Any]:
        # a tensor of a graph can be neither copied nor pickled
        return {**self.__dict__, "reconstruction_error": None}

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
