"""Linear maps of sparse features."""

from torch import Tensor, nn

from gt_models.kernels.dispatch import Form, attach, reads
from gt_models.kernels.sparse_linear import sparse_linear
from gt_models.layers.features import FeatureEncoder


def project(encoder: FeatureEncoder, x: Tensor) -> Tensor:
    """`FeatureEncoder.project` that reads only what compressed sparse rows store."""
    linear: nn.Linear = encoder.linear  # type: ignore[assignment]
    return sparse_linear(x.values(), x.crow_indices(), x.col_indices(), linear.weight, linear.bias)


def _why_not(encoder: FeatureEncoder, x: Tensor) -> str | None:
    return "the features are dense" if not x.is_sparse_csr else reads(encoder, {"linear": nn.Linear})


attach(FeatureEncoder, "project", "feature_projection", [Form("sparse", lambda: project, _why_not, ("cpu", "cuda"))])
