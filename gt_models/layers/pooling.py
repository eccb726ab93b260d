"""Node values to graph values."""

from torch import Tensor

from gt_models.batch import GraphBatch

POOLINGS = ("sum", "mean", "max")


def pool(values: Tensor, batch: GraphBatch, how: str) -> Tensor:
    """Per node [N, C] -> per graph [B, C] by "sum", "mean" or "max"; an empty graph gives zeros."""
    if how not in POOLINGS:
        raise ValueError(f"unknown pooling {how!r}; known: {', '.join(POOLINGS)}")
    out = values.new_zeros(batch.num_graphs, *values.shape[1:])
    if how == "max":
        index = batch.batch.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
        return out.scatter_reduce(0, index, values, "amax", include_self=False)
    out = out.index_add(0, batch.batch, values)
    if how == "mean":
        out = out / batch.sizes.clamp(min=1).to(out.dtype).view(-1, *[1] * (values.dim() - 1))
    return out
