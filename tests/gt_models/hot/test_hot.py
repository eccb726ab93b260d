"""HOT: its equations, the authors' outputs and parameter counts, its theorem, and checks of every model."""

import pytest
import torch

from gt_models import GraphBatch
from gt_models.hot import HigherOrderAttention
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention
from tests.gt_models import checks
from tests.gt_models.hot.cases import _float64, build, graph_of, supports  # noqa: F401
from tests.gt_models.reference import hot as reference

FORMS = [(form, attention) for form in (HigherOrderAttention, ReleasedAttention) for attention in ("softmax", "kernel")]
# the model of the paper and that of the release, each in both of its forms
MODELS = [(name, attention) for name in ("hot", "hot-released") for attention in ("softmax", "kernel")]


# equations


@pytest.mark.slow
@pytest.mark.parametrize(("form", "attention"), FORMS)
@pytest.mark.parametrize(("k", "l"), [(k, l) for k in range(3) for l in range(3)] + [(1, 3)])
def test_attention_is_its_definition(k, l, form, attention):
    graph = checks.random_graphs(sizes=(5,), density=0.6, seed=k + l)[0]
    support = supports(graph, k, l)
    layer = form(k, l, 4, 4, 6, 2, attention=attention)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    features = RandomFeatures(2, 3, None, "relu")
    values = torch.randn(len(support.sets[k]), 4)
    expected = reference.attention(
        layer, values, reference.tuples_of(support), reference.generalized_features(features.projection)
    )
    torch.testing.assert_close(layer(values, support, features), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("global_classes", [True, False])
def test_encoder_layer_is_its_definition(global_classes):
    graph = checks.random_graphs(sizes=(5,))[0]
    model = build("node", attention="softmax", num_layers=1, ffn_dim=6, global_classes=global_classes)
    support = model.support(graph)
    values, tuples = torch.randn(len(support.sets[2]), 8), reference.tuples_of(support)
    for layer in model.layers:  # 2 -> 2 and 2 -> 1
        expected = reference.enc_layer(layer, values, tuples)
        torch.testing.assert_close(layer(values, support), expected, rtol=1e-10, atol=1e-10)


def test_softmax_kernel_approaches_softmax_where_all_keys_are_shared():
    """With many features the kernel form equals exp(q k / sqrt d) over all keys.

    Class {i}{j1, j2} of 1 -> 2 sums over all nodes, as the attention of Enc 1 -> 0.
    """
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support.complete(graph, 2)
    layer = HigherOrderAttention(1, 2, 4, 4, 4, 1, attention="kernel")
    values = 0.5 * torch.randn(6, 4)
    layer_out = layer(values, support, RandomFeatures(4, 50_000, None, "softmax", eps=0.0))
    layer.attention = "softmax"
    before = reference.exact_keys
    reference.exact_keys = reference.union_keys
    try:
        expected = reference.attention(layer, values, reference.tuples_of(support))
    finally:
        reference.exact_keys = before
    torch.testing.assert_close(layer_out, expected, rtol=0.02, atol=0.02)


# Theorem 1 and Section 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attention"), MODELS)
def test_sparse_on_the_complete_graph_is_dense(name, attention):
    n = 5
    pairs = (~torch.eye(n, dtype=torch.bool)).nonzero().T
    graph = GraphBatch(torch.randn(n, 4), pairs, torch.tensor([0, n]), torch.randn(n * n - n, 3))
    sparse, dense = build("node", name, attention=attention), build("node", name, attention=attention, form="dense")
    dense.load_state_dict(sparse.state_dict())
    torch.testing.assert_close(sparse.eval()(graph), dense.eval()(graph), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_ablation_removes_what_reaches_beyond_edges(level):
    """Only with global classes does a node of another component change outputs of nodes."""
    two = GraphBatch(
        torch.randn(4, 4), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.tensor([0, 4]), torch.randn(4, 3)
    )
    other = GraphBatch(torch.cat([two.x[:2], torch.randn(2, 4)]), two.edge_index, two.ptr, two.edge_attr)
    for global_classes in (False, True):
        model = build(level, attention="softmax", global_classes=global_classes).eval()
        if level == "node":
            assert torch.equal(model(two)[:2], model(other)[:2]) != global_classes
        else:  # the readout 2 -> 0 has its classes in any case: it has no others
            assert not torch.equal(model(two), model(other))


# the whole model


# every level and form


# unusual graphs and invalid input


def test_parallel_edges_add_up_and_self_loops_are_on_the_diagonal():
    model = build("node", attention="softmax").eval()
    g = graph_of(3, [(0, 1), (1, 0), (1, 2), (2, 1)])
    doubled = GraphBatch(
        g.x, torch.cat([g.edge_index, g.edge_index], 1), g.ptr, torch.cat([0.25 * g.edge_attr, 0.75 * g.edge_attr])
    )
    torch.testing.assert_close(model(doubled), model(g))
    loop = GraphBatch(
        g.x, torch.cat([g.edge_index, torch.tensor([[2], [2]])], 1), g.ptr, torch.cat([g.edge_attr, torch.ones(1, 3)])
    )
    assert not torch.allclose(model(loop), model(g))
    assert len(model.support(loop).sets[2]) == len(model.support(g).sets[2])


@pytest.mark.parametrize("attention", ["softmax", "kernel"])
def test_dropout_falls_on_attention_and_on_the_feed_forward(attention):
    support = Support.sparse(checks.random_graphs(sizes=(5,))[0])
    values, model = torch.randn(len(support.sets[2]), 8), build("node", attention=attention, num_layers=1, dropout=0.5)
    layer, features = model.layers[0], model.features
    for part in (layer.attention, layer):
        assert torch.equal(part.eval()(values, support, features), part(values, support, features))
        assert not torch.equal(part.train()(values, support, features), part(values, support, features))
    layer.attention.eval()
    assert not torch.equal(layer(values, support, features), layer(values, support, features))


# the linear cost


def test_kernel_form_holds_memory_linear_in_edges():
    """Autograd stores four times as much, not sixteen times, for 2,000 edges as for 500 of the same mean degree."""

    def kept(n: int) -> int:
        rng = torch.Generator().manual_seed(0)
        index = torch.randint(0, n, (2, 5 * n), generator=rng)
        graph = GraphBatch(torch.randn(n, 4), index, torch.tensor([0, n]), torch.randn(5 * n, 3))
        total, model = [0], build("node", num_layers=0, redraw_interval=None)

        def pack(x):
            total[0] += x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            model(graph)
        return total[0]

    small, large = kept(100), kept(400)
    assert 3 < large / small < 5
