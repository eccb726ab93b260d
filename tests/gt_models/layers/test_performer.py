"""FAVOR+: features, their limit, chunks, redraws and checkpoints."""

import copy
import itertools
import pickle

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from gt_models import GraphBatch, create_model
from gt_models.layers.performer import (
    RandomFeatures,
    gaussian_orthogonal_matrix,
    linear_attention,
    num_features_default,
    performer_attention,
    relu_kernel,
    softmax_kernel,
)

D = torch.float64


def test_orthogonal_blocks_with_chi_lengths():
    p = gaussian_orthogonal_matrix(7, 3, dtype=D)
    assert p.shape == (7, 3)
    for block in (p[:3], p[3:6]):
        gram = block @ block.T
        torch.testing.assert_close(gram, gram.diagonal().diag(), rtol=0, atol=1e-12)
    lengths = gaussian_orthogonal_matrix(20_000, 4, dtype=D).square().sum(1)
    assert abs(float(lengths.mean()) - 4.0) < 0.1  # chi squared, 4 degrees of freedom: mean 4, variance 8
    assert abs(float(lengths.var()) - 8.0) < 0.8
    assert [num_features_default(d) for d in (8, 16, 24, 32, 64)] == [16, 44, 76, 110, 266]


def test_kernels_by_loops():
    u, p = torch.randn(2, 5, 3, dtype=D), torch.randn(4, 3, dtype=D)
    c = 3**-0.25
    for is_query in (True, False):
        phi = softmax_kernel(u, p, is_query, 1e-4)
        for h in range(2):
            for i in range(5):
                seen = u[h, i : i + 1] if is_query else u[h]
                stabilizer = max(float(c * (row @ key)) for row in p for key in seen)
                for f in range(4):
                    expected = torch.exp(c * p[f] @ u[h, i] - c**2 * u[h, i] @ u[h, i] / 2 - stabilizer) + 1e-4
                    torch.testing.assert_close(phi[h, i, f], expected / 2)
    torch.testing.assert_close(relu_kernel(u, p), torch.relu(c * u @ p.T) + 1e-3)


def test_more_features_come_nearer_to_softmax():
    q, k, v = torch.randn(3, 16, 9, 6, dtype=D) * 0.5
    exact = F.scaled_dot_product_attention(q, k, v)
    errors = []
    for features in (16, 256, 4096):
        draws = [RandomFeatures(6, features, eps=0.0).double() for _ in range(4)]
        errors.append(
            sum(float((performer_attention(q, k, v, f) - exact).square().mean().sqrt().detach()) for f in draws) / 4
        )
    # the error decreases with the root of the number of features: by 4 each time, and by 16 in total
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.01


def test_orthogonal_rows_have_less_variance_than_independent_ones():
    q, k, v = torch.randn(3, 16, 9, 8, dtype=D) * 0.5
    exact = F.scaled_dot_product_attention(q, k, v)

    def error(draw) -> float:
        total = 0.0
        for _ in range(30):
            p = draw()
            out = linear_attention(softmax_kernel(q, p, True, 0.0), softmax_kernel(k, p, False, 0.0), v)
            total += float((out - exact).square().mean())
        return total

    assert error(lambda: gaussian_orthogonal_matrix(8, 8, dtype=D)) < error(lambda: torch.randn(8, 8, dtype=D))


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("masked", [False, True])
def test_chunks_change_nothing(kernel, masked):
    features = RandomFeatures(4, 12, kernel=kernel).double()
    mask = (torch.arange(10) < torch.tensor([[7], [10]]))[:, None, None] if masked else None
    inputs = [torch.randn(2, 3, 10, 4, dtype=D, requires_grad=True) for _ in range(3)]
    weight = torch.randn(2, 3, 10, 4, dtype=D)
    results = []
    for chunk in (100, 3):
        out = performer_attention(*inputs, features, mask, chunk=chunk)
        results.append([out, *torch.autograd.grad((out * weight).sum(), inputs)])
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-10, atol=1e-12)
    if masked:
        alone = performer_attention(*[t[:1, :, :7] for t in inputs], features)
        torch.testing.assert_close(results[0][0][:1, :, :7], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [100, 2])
def test_gradients_flow_through_the_stabilizer_unless_detached(chunk):
    features = RandomFeatures(3, 4, eps=0.1).double()
    inputs = [torch.randn(5, 3, dtype=D, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *qkv: performer_attention(*qkv, features, chunk=chunk), inputs)
    features.detach = True
    assert not torch.autograd.gradcheck(
        lambda *qkv: performer_attention(*qkv, features, chunk=chunk), inputs, raise_exception=False
    )


@pytest.mark.parametrize(
    ("model", "arguments"),
    [("nodeformer", {}), ("gps", {"local_layer": "gcn", "attention": "performer", "attn_dropout": 0.0})],
)
def test_models_whose_authors_keep_the_gradient_of_the_stabilizer(model, arguments):
    torch.manual_seed(0)
    network = create_model(model, in_dim=4, out_dim=2, level="node", hidden_dim=8, **arguments).double().eval()
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    x, direction, h = 3 * torch.randn(4, 4, dtype=D), torch.randn(4, 4, dtype=D), 1e-6

    def total(x):
        return network(GraphBatch(x, edges, torch.tensor([0, 4]))).square().sum()

    with torch.enable_grad():
        leaf = x.requires_grad_()
        (gradient,) = torch.autograd.grad(total(leaf), leaf)
    with torch.no_grad():
        difference = (total(x + h * direction) - total(x - h * direction)) / (2 * h)
    torch.testing.assert_close((gradient * direction).sum(), difference, rtol=1e-6, atol=1e-8)


def test_redraws_when_due_and_in_training_only(tmp_path):
    torch.manual_seed(1)
    features = RandomFeatures(4, redraw_interval=3)
    drawn = [features.projection.clone()]
    features.eval()
    for _ in range(10):
        features.step()
    assert torch.equal(features.projection, drawn[0])
    features.train()
    for _ in range(7):
        features.step()
        drawn.append(features.projection.clone())
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(drawn)]
    assert changed == [False, False, False, True, False, False, True]
    # after resuming, the features are the same and are redrawn at the same step
    save_file(features.state_dict(), tmp_path / "f.safetensors")
    other = RandomFeatures(4, redraw_interval=3)
    other.load_state_dict(load_file(tmp_path / "f.safetensors"))
    assert torch.equal(other.projection, features.projection)
    for count in range(5):
        torch.manual_seed(count)
        features.step()
        torch.manual_seed(count)
        other.step()
        assert torch.equal(other.projection, features.projection)
    torch.manual_seed(1)
    assert torch.equal(RandomFeatures(4).projection, drawn[0])


def test_bad_features():
    with pytest.raises(ValueError, match="unknown kernel"):
        RandomFeatures(4, kernel="cosine")
    with pytest.raises(ValueError, match="redraw_interval"):
        RandomFeatures(4, redraw_interval=0)
    with pytest.raises(ValueError, match="at least one"):
        gaussian_orthogonal_matrix(0, 4)


def test_redraws_inside_transforms_of_torch_func():
    """A per-sample gradient or an ensemble in training; nothing of the transform remains in the module."""
    features, plain = RandomFeatures(4, 8, redraw_interval=1), RandomFeatures(4, 8, redraw_interval=1)
    plain.load_state_dict(features.state_dict())

    def loss(u: torch.Tensor, module: RandomFeatures) -> torch.Tensor:
        module.step()
        return module(u, True).sum()

    u = torch.randn(3, 5, 4)
    for _ in range(3):  # the second and third draw again
        torch.manual_seed(0)
        found = torch.func.grad(loss)(u, features)
        torch.manual_seed(0)
        leaf = u.clone().requires_grad_()
        torch.testing.assert_close(found, torch.autograd.grad(loss(leaf, plain), leaf)[0])
        copy.deepcopy(features).load_state_dict(pickle.loads(pickle.dumps(features)).state_dict())
    per_sample = torch.func.vmap(torch.func.grad(lambda row: loss(row, features)))(u)
    assert per_sample.shape == u.shape
    assert features.forwards == 1
    torch.testing.assert_close(per_sample[0], torch.func.grad(lambda row: features(row, True).sum())(u[0]))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = RandomFeatures(4, 8, redraw_interval=2)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        self.features.step()
        return self.features(u, True)


def test_members_of_an_ensemble_have_their_own_features_and_count():
    members, u = [Counting() for _ in range(3)], torch.randn(5, 4)
    _, buffers = torch.func.stack_module_state(members)
    outs = torch.func.vmap(lambda b: torch.func.functional_call(members[0], b, (u,)))(buffers)
    assert buffers["features.forwards"].tolist() == [1, 1, 1]
    for out, member in zip(outs, members, strict=True):
        torch.testing.assert_close(out, softmax_kernel(u, member.features.projection, True))
