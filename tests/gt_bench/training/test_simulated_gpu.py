"""Whole runs on a GPU that computes nothing: no operation mixes devices, and no step waits for the GPU."""

import contextlib
import warnings

import pytest
import torch
from torch import nn

from gt_bench.config.recipe import Recipe
from gt_bench.data.packed import PackedDataset
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.encodings.compute import encode
from gt_bench.runtime.environment import Clock
from gt_bench.tasks.registry import create_task
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader, free_bytes
from gt_bench.training.trainer import Run
from gt_models import create_model
from gt_models.kernels import dispatch
from tests.gt_bench.conftest import RECIPE, pack_many, pack_web
from tests.gt_bench.training.simulated_gpu import FREE, GPU, MixedDevices, simulated

ENCODINGS = {"ppgt": {"rrwp": {"steps": 3}}, "tokengt": {"laplacian": {"k": 3}}}
MODELS = {
    "edge-transformer": {"num_layers": 1, "attn_dropout": 0.1},
    "hot": {"num_layers": 1},
    "polynormer": {"num_local_layers": 1, "num_global_layers": 1, "dropout": 0.1},
    "polynormer-released": {"num_local_layers": 1, "num_global_layers": 1, "dropout": 0.1, "relu": True},
    "ppgt": {"num_layers": 1, "attn_dropout": 0.1, "drop_path": 0.1, "rrwp_dim": 3},
    "tokengt": {"num_layers": 1, "attn_dropout": 0.1, "node_id_dim": 3},
}


@pytest.fixture
def waits(monkeypatch):
    """Waits of the program for the simulated GPU."""
    with simulated(monkeypatch) as found:
        yield found
    for operation in dispatch.OPERATIONS.values():  # a check that computed nothing
        operation._failed = {key: reason for key, reason in operation._failed.items() if "cuda" not in key[1]}


def create_run(folder, name: str, where: str, build=None, **changes) -> Run:
    """A run of a model on one graph (Polynormer) or on many."""
    dataset = "web" if name.startswith("polynormer") else "many"
    header = (pack_web if dataset == "web" else pack_many)(folder)
    packed = PackedDataset.open(folder / "packed" / dataset)
    encodings = ENCODINGS.get(name, {})
    for encoding, settings in encodings.items():
        encode(packed, folder / "encodings" / dataset, encoding, settings)
    encoded = EncodedDataset(packed, folder / "encodings" / dataset, encodings)
    batch = {} if dataset == "web" else {"graphs": 4}
    recipe = Recipe(**RECIPE | {"epochs": 2, "batch": batch} | changes)
    loader = Loader(SplitData(packed, encoded, 0, recipe.batch, 0, GPU, torch.float32))
    loader.place(where)

    def model() -> nn.Module:
        sizes = {"in_dim": header.in_dim, "out_dim": header.out_dim, "level": header.level, "hidden_dim": 8}
        return create_model(name, **sizes, num_heads=2, **MODELS[name])

    task = create_task(header.task, header.metric)
    return Run(recipe, task, loader, build or model, seed=0, meter=Clock(), checkpoint=Checkpoint(folder / "saved"))


def by_phase(run: Run, waits: list) -> dict[str, list]:
    """Waits during training steps, and while all batches of an epoch but the first are made."""
    found, training = {"steps": [], "batches": []}, run.loader.training

    def watched(epoch):
        before = None
        for item in training(epoch):
            found["batches"] += [] if before is None else waits[before:]
            before = len(waits)
            yield item
            found["steps"] += waits[before:]
            before = len(waits)

    run.loader.training = watched
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "where"), [*((name, "device") for name in MODELS), ("ppgt", "host")])
def test_no_step_waits_for_the_gpu(tmp_path, waits, name, where):
    run = create_run(tmp_path, name, where)
    found = by_phase(run, waits)
    outcome = run.train()
    assert (outcome.status, outcome.error) == ("ok", None)
    assert found == {"steps": [], "batches": []}
    assert run.model.state_dict().keys() == run.best["model"].keys()
    assert all(p.is_cuda and p.grad.is_cuda for p in run.model.parameters() if p.grad is not None)
    assert waits  # between epochs


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_forms_for_a_gpu_in_plain_torch(tmp_path, waits, name, monkeypatch):
    """They are compared with their definitions and used, without a mixed device and without waiting in a step."""
    reason = dispatch.Form.reason
    monkeypatch.setattr(dispatch, "traced", lambda *tensors: False)
    monkeypatch.setattr(
        dispatch.Form, "reason", lambda form, *call: "needs a GPU" if form.name == "triton" else reason(form, *call)
    )
    run = create_run(tmp_path, name, "device", epochs=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".* is not used on ")
        assert run.train().status == "ok"
    forms = run.forms["training"]
    assert forms
    assert not [calls for of in forms.values() for calls in of if calls.endswith("failed")]
    run = create_run(tmp_path, name, "device", epochs=1)
    found = by_phase(run, waits)
    run.train()
    assert found == {"steps": [], "batches": []}


def test_memory_of_a_gpu_that_processes_share(waits, monkeypatch):
    """What is free on the GPU may belong to another process."""
    assert free_bytes(GPU) == FREE
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.125)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**20)
    assert free_bytes(GPU) == FREE // 4 - 2**20


class Net(nn.Module):
    """A model with a mistake that a CPU does not show.

    Args:
        mistake: called with the features of the nodes.
    """

    def __init__(self, mistake):
        super().__init__()
        self.out, self.mistake = nn.Linear(4, 1), mistake

    def forward(self, batch):
        """Returns one value per graph."""
        return batch.x.new_zeros(batch.num_graphs, 1).index_add(0, batch.batch, self.out(self.mistake(batch.x)))


class Backward(torch.autograd.Function):
    """Its gradient is on the CPU."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.ones(4)


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda x: x + torch.ones(4), MixedDevices),
        (lambda x: Backward.apply(x.requires_grad_()), MixedDevices),
        (lambda x: x * float(x.sum()), None),
        (lambda x: x * torch.tensor([2.0], device=x.device), None),
        (lambda x: x.cpu().to(x.device), None),
    ],
)
def test_a_tensor_on_the_wrong_device_and_a_step_that_waits_are_found(tmp_path, waits, mistake, error):
    run = create_run(tmp_path, "ppgt", "device", build=lambda: Net(mistake))
    found = by_phase(run, waits)
    with pytest.raises(error) if error else contextlib.nullcontext():
        run.train()
    assert error or found["steps"]
