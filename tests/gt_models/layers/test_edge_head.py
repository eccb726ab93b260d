"""Predictions for pairs of nodes: each head against its formula, and what the node model gets to see."""

import copy
import pickle

import pytest
import torch
from torch import nn

from gt_models.batch import GraphBatch
from gt_models.layers import edge_head
from gt_models.layers.edge_head import EdgeHead, EdgeModel

SOURCE, TARGET = torch.randn(5, 4), torch.randn(5, 4)


def test_the_dot_product_has_no_parameters():
    head = EdgeHead("dot", 4, 1, edge_dim=3)
    expected = [
        sum(a * b for a, b in zip(s, t, strict=True)) for s, t in zip(SOURCE.tolist(), TARGET.tolist(), strict=True)
    ]
    torch.testing.assert_close(head(SOURCE, TARGET), torch.tensor(expected)[:, None])
    assert not list(head.parameters())


@pytest.mark.parametrize(("name", "inputs"), [("product", 4 + 5), ("concat", 8 + 5)])
def test_an_mlp_reads_the_features_of_the_edge(name, inputs):
    head = EdgeHead(name, 4, 2, layers=2, edge_dim=[2, 3])
    first, last = (module for module in head.mlp if isinstance(module, nn.Linear))
    assert (first.in_features, first.out_features, last.out_features) == (inputs, 4, 2)
    kinds = torch.tensor([[0, 2], [1, 0], [1, 1], [0, 0], [0, 1]])
    one_hot = torch.cat([torch.eye(2)[kinds[:, 0]], torch.eye(3)[kinds[:, 1]]], 1)
    nodes = SOURCE * TARGET if name == "product" else torch.cat([SOURCE, TARGET], 1)
    expected = last(first(torch.cat([nodes, one_hot], 1)).relu())
    torch.testing.assert_close(head(SOURCE, TARGET, kinds), expected)


@pytest.mark.parametrize("name", ["dot", "product", "concat"])
def test_a_symmetric_head_gives_both_orders_the_same_prediction(name):
    head = EdgeHead(name, 4, 1, symmetric=True)
    torch.testing.assert_close(head(SOURCE, TARGET), head(TARGET, SOURCE))


def test_concat_distinguishes_the_orders_of_a_directed_edge():
    head = EdgeHead("concat", 4, 1)
    assert not torch.allclose(head(SOURCE, TARGET), head(TARGET, SOURCE))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "dot", "dim": 4, "out_dim": 3}, "dot has one output, and the targets need 3"),
        ({"name": "bilinear", "dim": 4, "out_dim": 1}, "head.name is 'bilinear'"),
        ({"name": "product", "dim": 0, "out_dim": 1}, "expected 1 or more"),
    ],
)
def test_a_head_that_cannot_be_built(arguments, says):
    with pytest.raises(ValueError, match=says):
        EdgeHead(**arguments)


class Node(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.seen, self.phase = nn.Linear(3, 4), [], None

    def forward(self, batch):
        self.seen.append(batch)
        return self.linear(batch.x)

    def set_phase(self, name):
        self.phase = name


def labelled() -> GraphBatch:
    batch = GraphBatch(torch.randn(6, 3), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 6]), y=torch.ones(4))
    batch.extras = {"colour": torch.zeros(6), "edge_label_index": torch.tensor([[0, 5, 2, 3], [1, 0, 2, 4]])}
    return batch


def test_the_node_model_sees_neither_targets_nor_pairs():
    model, batch = EdgeModel(Node(), EdgeHead("dot", 4, 1)), labelled()
    output = model(batch)
    given = model.node_model.seen[0]
    assert given.y is None
    assert given.extras.keys() == {"colour"}
    h = model.node_model.linear(batch.x)
    torch.testing.assert_close(output[:, 0], torch.stack([h[0] @ h[1], h[5] @ h[0], h[2] @ h[2], h[3] @ h[4]]))
    assert batch.y is not None
    assert "edge_label_index" in batch.extras


def test_batches_of_one_graph_share_what_was_computed_from_it():
    model, batch = EdgeModel(Node(), EdgeHead("dot", 4, 1)), labelled()
    model(batch)
    other = copy.copy(batch)
    other.extras = {**batch.extras, "edge_label_index": batch.extras["edge_label_index"][:, :2]}
    model(other)
    assert model.node_model.seen[0] is model.node_model.seen[1]
    other.edge_index = batch.edge_index.clone()
    model(other)
    assert model.node_model.seen[1] is not model.node_model.seen[2]


@pytest.mark.parametrize("name", ["x", "edge_index", "ptr", "edge_attr", "encodings", "extras"])
def test_a_batch_with_another_tensor_is_read_again(name):
    model, batch = EdgeModel(Node(), EdgeHead("dot", 4, 1)), labelled()
    batch.edge_attr, batch.encodings = torch.zeros(2, 1), {"rwse": torch.zeros(6, 2)}
    model(batch)
    other, value = copy.copy(batch), getattr(batch, name)
    setattr(other, name, {k: v + 0 for k, v in value.items()} if isinstance(value, dict) else value + 0)
    model(other)
    seen = getattr(model.node_model.seen[1], name)
    if isinstance(value, dict):
        assert all(seen[key] is getattr(other, name)[key] for key in seen)
    else:
        assert seen is getattr(other, name)


def test_copies_have_no_last_graph():
    """A tensor of a graph of autograd cannot be copied."""
    model, batch = EdgeModel(Node(), EdgeHead("dot", 4, 1)), labelled()
    batch.x = batch.x.requires_grad_() * 1
    model(batch)
    model.node_model.seen.clear()
    assert copy.deepcopy(model)._graph is None
    assert pickle.loads(pickle.dumps(model))._graph is None
    assert model._graph is not None


def test_chunks_of_an_evaluation_do_not_change_the_predictions(monkeypatch):
    model, batch = EdgeModel(Node(), EdgeHead("concat", 4, 1, edge_dim=2)), labelled()
    batch.extras["edge_label_attr"] = torch.randn(4, 2)
    expected = model(batch)
    monkeypatch.setattr(edge_head, "CHUNK", 3)
    with torch.no_grad():
        torch.testing.assert_close(model(batch), expected, rtol=0, atol=0)


def test_phases_are_those_of_the_node_model():
    model = EdgeModel(Node(), EdgeHead("dot", 4, 1))
    model.set_phase("global")
    assert model.node_model.phase == "global"
    assert getattr(EdgeModel(nn.Linear(3, 4), EdgeHead("dot", 4, 1)), "set_phase", None) is None
