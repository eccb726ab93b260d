"""Predictions for pairs of nodes from the embeddings of a node model.

embeddings = model(batch)                                  [N, d]
output = head(embeddings[source], embeddings[target])      [P, out_dim]
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch

# pairs of nodes that an evaluation scores at a time: bounds the memory and does not change any number
CHUNK = 1 << 17


class EdgeHead(nn.Module):
    """Maps the embeddings of two nodes to the prediction for their edge.

    Args:
        name: "dot": inner product of the embeddings, without parameters. "product": MLP of their elementwise product.
            "concat": MLP of both, in the order source, target.
        dim: width of the embeddings and of the hidden layers, d.
        out_dim: number of outputs.
        layers: linear layers of the MLP.
        dropout: after each hidden layer.
        edge_dim: width of the features of an edge, or the number of values of each categorical one, which the MLP reads
            too. None without features.
        symmetric: whether both orders of a pair must have the same prediction. "concat" then averages over them.

    Raises:
        ValueError: "dot" has several outputs, or a size is below 1.
    """

    def __init__(
        self,
        name: Literal["dot", "product", "concat"],
        dim: int,
        out_dim: int,
        layers: int = 2,
        dropout: float = 0.0,
        edge_dim: int | Sequence[int] | None = None,
        symmetric: bool = False,
    ):
        super().__init__()
        if name not in ("dot", "product", "concat"):
            raise ValueError(f"head.name is {name!r}; expected dot, product or concat")
        if min(dim, out_dim, layers) < 1:
            raise ValueError(f"head: dim, out_dim and layers are {dim}, {out_dim} and {layers}; expected 1 or more")
        if name == "dot" and out_dim > 1:
            raise ValueError(f"head.name: dot has one output, and the targets need {out_dim}; use product or concat")
        self.name, self.symmetric = name, symmetric
        self.edge_dim = None if name == "dot" else edge_dim
        if name != "dot":
            width = dim if name == "product" else 2 * dim
            if self.edge_dim is not None:
                width += self.edge_dim if isinstance(self.edge_dim, int) else sum(self.edge_dim)
            widths = [width, *[dim] * (layers - 1), out_dim]
            steps: list[nn.Module] = []
            for i in range(layers):
                steps += [nn.Linear(widths[i], widths[i + 1])]
                steps += [nn.ReLU(), nn.Dropout(dropout)] if i < layers - 1 else []
            self.mlp = nn.Sequential(*steps)

    def forward(self, source: Tensor, target: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Returns the predictions.

        Args:
            source: embeddings of the first nodes, [P, d].
            target: embeddings of the second nodes, [P, d].
            edge_attr: features of the edges, [P, D], if the head was built for them.

        Returns:
            Predictions, [P, out_dim].
        """
        if self.name == "dot":
            return (source * target).sum(-1, keepdim=True)
        features = [] if self.edge_dim is None else [self._columns(edge_attr, source.dtype)]
        if self.name == "product":
            return self.mlp(torch.cat([source * target, *features], -1))
        output = self.mlp(torch.cat([source, target, *features], -1))
        if self.symmetric:
            output = (output + self.mlp(torch.cat([target, source, *features], -1))) / 2
        return output

    def _columns(self, edge_attr: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Returns continuous features as they are, categories one-hot, [P, width]."""
        assert edge_attr is not None
        if self.edge_dim is None or isinstance(self.edge_dim, int):
            return edge_attr.to(dtype)
        columns = [nn.functional.one_hot(edge_attr[:, i].long(), size) for i, size in enumerate(self.edge_dim)]
        return torch.cat(columns, 1).to(dtype)


class EdgeModel(nn.Module):
    """A node model with a head for pairs of nodes.

    The pairs of a batch are `extras["edge_label_index"]`, long [2, P], and the features of their edges
    `extras["edge_label_attr"]`, [P, D]. The node model gets the batch without them and without targets.

    Args:
        node_model: returns embeddings [N, d] of a batch.
        head: the head.
    """

    def __init__(self, node_model: nn.Module, head: EdgeHead):
        super().__init__()
        self.node_model, self.head = node_model, head
        self._graph: GraphBatch | None = None  # the last one: batches of one graph share what is computed from it

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the predictions for the pairs of a batch, [P, out_dim]."""
        embeddings = self.node_model(self._without_pairs(batch))
        pairs, attributes = batch.extras["edge_label_index"], batch.extras.get("edge_label_attr")
        if torch.is_grad_enabled() or pairs.size(1) <= CHUNK:
            return self._scores(embeddings, pairs, attributes)
        parts = [
            self._scores(embeddings, pairs[:, i : i + CHUNK], None if attributes is None else attributes[i : i + CHUNK])
            for i in range(0, pairs.size(1), CHUNK)
        ]
        return torch.cat(parts)

    def _without_pairs(self, batch: GraphBatch) -> GraphBatch:
        extras = {key: value for key, value in batch.extras.items() if not key.startswith("edge_label_")}
        graph = self._graph
        if graph is None or not _same_tensors(vars(graph), vars(batch) | {"extras": extras}):
            graph = copy.copy(batch)
            graph.y, graph.encodings, graph.extras = None, dict(batch.encodings), extras
            self._graph = graph
        return graph

    def __getstate__(self) -> dict[str, Any]:
        # neither copies nor pickles of the module have the last graph
        return {**self.__dict__, "_graph": None}

    def _scores(self, embeddings: Tensor, pairs: Tensor, attributes: Tensor | None) -> Tensor:
        # index_select: the backward pass of indexing is not deterministic on GPUs
        return self.head(embeddings.index_select(0, pairs[0]), embeddings.index_select(0, pairs[1]), attributes)

    def __getattr__(self, name: str) -> Any:
        """Returns `set_phase` of the node model, if it has phases."""
        if name == "set_phase":
            return getattr(super().__getattr__("node_model"), name)
        return super().__getattr__(name)


def _same_tensors(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the fields of two batches are the same tensors."""

    def identities(fields: dict[str, Any]) -> list[Any]:
        dicts = ({key: id(value) for key, value in fields[name].items()} for name in ("encodings", "extras"))
        return [*dicts, *(id(fields[name]) for name in ("x", "edge_index", "ptr", "edge_attr"))]

    return identities(one) == identities(other)
