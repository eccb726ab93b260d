"""No forward pass mixes devices or waits for one, tested without a GPU.

Tensors claim to be on a GPU, but their values are on the CPU.
"""

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gt_models import create_model, list_models, model_info
from gt_models.batch import GraphBatch
from gt_models.kernels import use
from tests.gt_models.every_model import OWN, SMALL, batch

GPU = torch.device("cuda", 0)
RATES = {"dropout": 0.1, "attn_dropout": 0.1, "drop_path": 0.1, "sign_flip": True}
VARIANTS = {
    "edge-transformer": [{"edge_dim": None}, {"pooling": "set2set"}],
    "hot": [{"attention": "softmax"}, {"kernel": "generalized"}, {"form": "dense"}],
    "hot-released": [{"attention": "softmax"}, {"kernel": "softmax"}],
    "polynormer": [{"relu": True}, {"version": "v2", "local_layer": "gcn"}, {"attention": "local-and-global"}],
    "polynormer-released": [{"relu": True, "batch_norm": True, "pre_norm": True}],
    "ppgt": [{"urpe": False}, {"pooling": "class-attention"}],
    "tokengt": [
        {"attention": "performer", "attn_dropout": 0.0},
        {"node_identifiers": "orf", "sparse_equivariant_basis": True},
    ],
    "tokengt-released": [{"node_identifiers": "orf", "eigenvector_dropout": 0.1}],
    "tokengt-attention": [{"node_identifiers": "random"}, {"node_identifiers": "orf-first-order", "node_id_dim": 40}],
}


# models that must wait for the device once for each batch, and why
WAITING = {
    (
        "i2gnn-ppgt",
        "",
    ): "subgraphs around edges: their total size depends on the data, and a batch norm must not use padding",
    (
        "tokengt-attention",
        "orf-first-order",
    ): "orthogonal matrices as large as the longest graph's tokens; the paper's experiment on small graphs",
}


class MixedDevices(Exception):
    """An operation on tensors of both devices."""


class WaitsForDevice(Exception):
    """Reading a value of a tensor on the GPU, or a size that its values determine."""


# operations that return values to Python, or whose size depends on values
WAITS = {
    "item",
    "tolist",
    "numpy",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
    "equal",
    "allclose",
}
WAITS |= {"unique", "nonzero", "argwhere", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "bincount"}


def waits(function, name: str, args: tuple, kwargs: dict) -> bool:
    if name in ("__getitem__", "__setitem__"):
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(i, Tensor) and i.dtype == torch.bool for i in index)
    if name == "repeat_interleave":
        repeats = args[1] if len(args) > 1 else kwargs.get("repeats", args[0])
        return isinstance(repeats, Tensor) and kwargs.get("output_size") is None
    return name in WAITS or (name == "where" and len(args) + len(kwargs) == 1)


class PretendGPU(TorchFunctionMode):
    """Tensors marked `on_gpu` claim to be on the GPU; a result is on its operands' device, or the requested one."""

    def __init__(self, may_wait: bool = False):
        super().__init__()
        self.may_wait = may_wait

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        operands = [t for t in _tensors((args, kwargs)) if isinstance(t, Tensor)]
        there = any(_on_gpu(t) for t in operands)
        if function == Tensor.device.__get__:
            return GPU if there else torch.device("cpu")
        if function in (Tensor.is_cuda.__get__, Tensor.is_cpu.__get__):
            return there == (function == Tensor.is_cuda.__get__)
        name = getattr(function, "__name__", "")
        if there and not self.may_wait and waits(function, name, args, kwargs):
            raise WaitsForDevice(name)
        asked = kwargs.get("device")
        if name == "to":
            targets = [a for a in args[1:] if isinstance(a, torch.device | str)]
            others = [a.device for a in args[1:] if isinstance(a, Tensor)]
            asked = next(iter([*targets, *others]), asked)
            args = tuple("cpu" if isinstance(a, torch.device | str) else a for a in args)
        elif name in ("cpu", "cuda"):
            asked = name
        if "device" in kwargs:
            kwargs["device"] = None if asked is None else "cpu"
        if asked is not None:
            there = torch.device(asked).type == "cuda"
        elif there and name not in ("copy_", "__get__"):
            # as with CUDA: zero-dimensional tensors and indices may be on the CPU
            strangers = [t for t in operands if not _on_gpu(t) and t.dim()]
            if strangers and (
                name not in ("__getitem__", "__setitem__", "index_put", "index_put_") or not _on_gpu(args[0])
            ):
                raise MixedDevices(f"{name} of {[(tuple(t.shape), _on_gpu(t)) for t in operands]}")
        out = function(*args, **kwargs)
        for t in _tensors(out) if asked is not None or there else ():
            if isinstance(t, Tensor):
                t.on_gpu = there
        return out


def _tensors(value):
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _on_gpu(t: Tensor) -> bool:
    return t.__dict__.get("on_gpu", False)


def moved(t: Tensor | None) -> Tensor | None:
    if t is not None:
        t.on_gpu = True
    return t


def run(model: nn.Module, data: GraphBatch, may_wait: bool = False) -> Tensor:
    for t in (*model.parameters(), *model.buffers()):
        moved(t)
    with PretendGPU(may_wait), use("reference"):  # a form for GPUs would query the driver
        encodings = {name: moved(t) for name, t in data.encodings.items()}
        there = GraphBatch(
            moved(data.x), moved(data.edge_index), moved(data.ptr), moved(data.edge_attr), encodings=encodings
        )
        for name in ("max_nodes", "max_edges", "num_pairs"):  # as `GraphBatch.to` does
            there.__dict__[name] = getattr(data, name)
        if getattr(model, "level", None) == "hyperedge":
            there.extras["hyperedge_index"] = moved(torch.tensor([[0, 1, 2], [8, 9, 10]]))
        return model(there)


CASES = [(name, v) for name in list_models() for v in ({}, *VARIANTS.get(name, []))]


def made(name: str, level: str, variant: dict) -> nn.Module:
    known = inspect.signature(model_info(name).cls).parameters
    arguments = {key: value for key, value in (SMALL | RATES).items() if key in known} | OWN.get(name, {}) | variant
    return create_model(name, level=level, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_forward_stays_on_its_device(name, variant):
    for level in model_info(name).levels:
        if level == "hyperedge" and "hyperedge_order" not in inspect.signature(model_info(name).cls).parameters:
            continue  # TokenGT accepts hyperedges of other orders as tokens
        model = made(name, level, variant)
        out = run(model, batch(), (name, variant.get("node_identifiers", "")) in WAITING)
        assert _on_gpu(out)
        out.square().sum().backward()
        assert any(p.grad is not None for p in model.parameters())


def test_a_tensor_made_elsewhere_is_found():
    class Stray(nn.Module):
        def forward(self, data: GraphBatch) -> Tensor:
            return data.x + torch.ones(data.x.size(1))

    class At(nn.Module):
        def forward(self, data: GraphBatch) -> Tensor:
            return data.x + torch.ones(data.x.size(1), device=data.x.device) * torch.ones(2).to(data.x).sum()

    with pytest.raises(MixedDevices, match="add"):
        run(Stray(), batch())
    assert _on_gpu(run(At(), batch()))
