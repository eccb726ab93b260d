"""What the models have in common: features of nodes, pairs or graphs, and a head."""

from typing import Any

from torch import Tensor, nn

from gt_models.batch import GraphBatch


class GraphModel(nn.Module):
    """A model whose output is `forward_head(forward_features(batch), batch)`."""

    def forward_features(self, batch: GraphBatch) -> Any:
        """What the head reads."""
        raise NotImplementedError

    def forward_head(self, features: Any, batch: GraphBatch) -> Tensor:
        """The features -> predictions."""
        raise NotImplementedError

    def forward(self, batch: GraphBatch) -> Tensor:
        """Predictions of a GraphBatch, or of a torch_geometric Data or Batch; the class states their shape.

        Raises:
            MissingEncoding: the batch has no such encoding, or too few channels of it.
            BatchError: parts of the batch do not fit each other or the model.
        """
        batch = GraphBatch.of(batch)
        return self.forward_head(self.forward_features(batch), batch)
