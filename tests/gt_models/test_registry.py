"""Names, arguments and what a model states about itself."""

import pytest
import torch
from torch_geometric.data import Data

from gt_models import list_models, model_info
from tests.gt_models.baselines.test_gcn import build, graphs


def test_face():
    assert model_info("gcn").encodings == ("rrwp", "laplacian_eigenvectors")
    graph = graphs((4,))[0]
    data = Data(x=graph.x, edge_index=graph.edge_index)
    for name in ("mlp", "gcn"):
        model = build(name, dropout=0.5)
        before = model.head.weight.clone()
        model.reset_parameters()
        assert not torch.equal(before, model.head.weight)
        assert not torch.equal(model(data), model(data))
        model.eval()
        assert torch.equal(model(data), model(graph))


@pytest.mark.parametrize("name", list_models())
def test_every_model_names_its_paper_with_a_link_or_says_why_not(name):
    paper = model_info(name).paper
    assert "https://" in paper or paper.startswith("none: ")
