"""Activation checkpointing: bit-identical results, and runs that do not fit into memory without it."""

import pytest
import torch
from torch import nn

from gt_bench.training.activation_checkpointing import recompute
from gt_models.batch import GraphBatch
from gt_models.registry import create_model
from tests.gt_bench.training.small_run import curves, make


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)

    def forward(self, x, scale):
        for _ in range(4):
            x = torch.sin(self.drop(self.norm(self.linear(x)))) * scale
        return x


class Deep(nn.Module):
    """Raises an out-of-memory error if a training step stores more than `limit` bytes."""

    def __init__(self, limit=float("inf")):
        super().__init__()
        self.input, self.out, self.limit = nn.Linear(5, 8), nn.Linear(8, 3), limit
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.most = 0

    def forward(self, batch):
        self.kept = 0
        with torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor):
            x = self.input(batch.x)
            for layer in self.layers:
                x = layer(x, scale=1.5)
            return self.out(x)

    def keep(self, tensor):
        self.kept += tensor.nbytes
        self.most = max(self.most, self.kept)
        if self.kept > self.limit:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return tensor


def test_a_run_that_does_not_fit_continues_with_less_and_finds_the_same_bits(tmp_path):
    models = []

    def build(limit=float("inf")):
        models.append(Deep(limit))
        return models[-1]

    whole = make(tmp_path, build=build)
    expected = whole.train()
    assert expected.status == "ok"
    assert not whole.recomputed
    limit = models[0].most // 2
    run = make(tmp_path, build=lambda: build(limit))
    assert curves(run.train()) == curves(expected)
    assert run.recomputed
    assert 0 < models[-1].most <= limit
    state = whole.model.state_dict()
    # BatchNorm counted once
    assert all(torch.equal(value, state[name]) for name, value in run.model.state_dict().items())


def test_a_run_too_large_for_checkpointing_is_out_of_memory(tmp_path):
    run = make(tmp_path, build=lambda: Deep(1))
    assert run.train().status == "oom"
    assert run.recomputed


def test_a_model_without_layers_is_not_tried_again(tmp_path):
    calls = []

    class Flat(Layer):
        def forward(self, batch):
            calls.append(1)
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    assert make(tmp_path, build=Flat).train().status == "oom"
    assert len(calls) == 1


HEADS, LAYERS = {"num_heads": 2}, {"num_heads": 2, "num_layers": 2}
PERFORMER = {**LAYERS, "attention": "performer", "dropout": 0.2}
MODELS = [
    ("polynormer", HEADS | {"dropout": 0.5}),
    ("tokengt", PERFORMER | {"node_identifiers": "near-orf"}),
    ("ppgt", LAYERS | {"rrwp_dim": 5, "attn_dropout": 0.2, "drop_path": 0.3}),
    ("edge-transformer", LAYERS),
    ("gcn", {"num_layers": 2, "normalisation": "batch", "dropout": 0.3}),
    ("gps", LAYERS | {"dropout": 0.2, "attn_dropout": 0.2}),
    ("gps", PERFORMER),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments"), MODELS)
def test_gradients_of_a_model_are_the_same_bits(name, arguments):
    from gt_models.encodings import compute
    from gt_models.kernels import use

    torch.manual_seed(0)
    batch = GraphBatch(torch.randn(12, 5), torch.randint(0, 12, (2, 30)), torch.tensor([0, 12]))
    batch.encodings |= compute("rrwp", batch, steps=4)
    results = []
    for again in (False, True):
        torch.manual_seed(1)
        model = create_model(name, in_dim=5, out_dim=3, level="node", hidden_dim=8, **arguments)
        assert not again or recompute(model)
        with use("reference"):
            loss = model(batch).square().sum()
            loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_layers_that_count_their_passes_are_left_alone():
    model = create_model("nodeformer", in_dim=5, out_dim=3, level="node", hidden_dim=8, num_heads=2, num_layers=2)
    assert recompute(model) == 3  # the norms
    counting = [module for module in model.modules() if getattr(module, "counts_forwards", False)]
    assert len(counting) == 2
    assert not any("forward" in vars(module) for module in counting)
