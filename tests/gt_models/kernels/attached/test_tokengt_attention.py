"""Linear maps of nodes instead of tokens give the same numbers and gradients as the plain layer."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.kernels import forms_taken, use
from tests.gt_models.checks import collate, random_graphs


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kind", ["none", "random", "orf-first-order", "laplacian"])
@pytest.mark.parametrize("implementation", [False, True])
def test_it_is_the_plain_layer(kind, dense, implementation):
    torch.manual_seed(0)
    model = create_model(
        "tokengt-attention", node_identifiers=kind, node_id_dim=4, hidden_dim=12, head_dim=3, dropout=0.2, dense=dense,
        num_heads=16 if implementation else 15, input_linear=implementation, pre_norm=implementation,
    ).double()  # fmt: skip
    batch, results = collate(random_graphs((4, 2, 3), node_encodings=(("laplacian_eigenvectors", 4),))), []
    for form in ("reference", None):
        torch.manual_seed(1)
        model.zero_grad()
        with use(form), forms_taken() as taken:
            out = model(batch)
        out.sin().sum().backward()
        results.append([out, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert taken["basis_tokens"] == {"maps of nodes": 1}
    assert taken["basis_queries_and_keys"] == {"heads with a target": 1}
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("option", [{"max_norm": 0.5}, {"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_options_of_an_embedding_act(option):
    torch.manual_seed(0)
    model = create_model("tokengt-attention", node_id_dim=4, hidden_dim=12, head_dim=3, dropout=0.0).double()
    batch, results = collate(random_graphs((4, 2, 3))), []
    table = model.type_encoder.weight.detach()
    for form in ("reference", None):
        torch.manual_seed(1)
        model.type_encoder = nn.Embedding.from_pretrained(table.clone(), freeze=False, **option)
        with use(form):
            out = model(batch)
        results.append([out, *torch.autograd.grad(out.sin().sum(), model.type_encoder.weight)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
