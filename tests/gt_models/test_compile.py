"""Models with torch.compile, and every one with torch.export, bfloat16 autocast, and training after inference mode."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from gt_models import list_models
from gt_models.batch import GraphBatch
from tests.gt_models.every_model import NEVER_PADDED, batch, build

pytestmark = pytest.mark.slow


def step(
    function, model: nn.Module, data: GraphBatch, forward: bool = False, backward: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients of one training step, `forward` and `backward` under autocast."""
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=forward):
        out = function(data)
    loss = (out.float() * torch.arange(out.numel()).view_as(out).cos()).sum()
    with torch.autocast("cpu", torch.bfloat16, enabled=backward):
        loss.backward()
    return out.detach().float(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(autouse=True)
def _forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


FIVE = {"edge-transformer", "gps", "polynormer", "ppgt", "tokengt"}
# AOTAutograd takes most of the time. The exported forward pass and the fake tensors below cover what it does with every
# model; inductor, with which GPS is compiled below, includes it.
AOT_EAGER = FIVE - {"gps"}


def assert_compiled_is_eager(name: str, backend: str, **others) -> None:
    """In one graph, output and gradients of a training step are those of the model itself."""
    model, other = build(name, **others), build(name, **others)
    expected, expected_grads = step(model, model, batch())
    out, grads = step(torch.compile(other, backend=backend, fullgraph=True), other, batch())
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    assert grads.keys() == expected_grads.keys()
    for key, grad in grads.items():
        torch.testing.assert_close(
            grad, expected_grads[key], rtol=1e-4, atol=1e-5, msg=lambda m, key=key: f"{key}: {m}"
        )


@pytest.mark.parametrize("name", sorted(AOT_EAGER | NEVER_PADDED))
def test_compiled_is_eager(name):
    """The others, with the same code for padded batches: tests/gt_bench/training/test_static_batches.py."""
    assert_compiled_is_eager(name, "aot_eager" if name in AOT_EAGER else "eager")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        # without `fusion_barrier` a gradient is off by 0.2
        ("gps", {"local_layer": "gcn", "rwse_dim": 0, "head_layers": 0}),
        ("exphormer", {"local_layer": "gat"}),
    ],
)
def test_models_compiled_by_inductor_equal_eager(name, others):
    """By inductor: models with message passing and attention, in which a part was once outside of the graph.

    The C++ compiler runs in this process, and without optimization, which takes most of the time and decides nothing.
    Few kernels: nodes without pooling, edges without features. That the compiler can use the vectors of this machine is
    assumed: inductor would compile a program for each kind of them.
    """
    options = {"compile_threads": 1, "aot_inductor.debug_compile": True, "cpp.vec_isa_ok": True}
    with torch._inductor.config.patch(options):
        assert_compiled_is_eager(name, "inductor", level="node", edge_dim=None, **others)


@pytest.mark.parametrize("name", list_models())
def test_exported_is_eager(name):
    """An exported program equals the model for other features and encodings of the same graphs."""
    model, data, other = build(name).eval(), batch(), batch()
    other.x, other.edge_attr = other.x.flip(0), other.edge_attr.flip(0)
    other.encodings = {
        name: value.flip(0) if value.is_floating_point() else value for name, value in other.encodings.items()
    }
    program = torch.export.export(model, (data,))
    torch.manual_seed(1)  # some draw identifiers in evaluation, too
    expected = model(other)
    torch.manual_seed(1)
    torch.testing.assert_close(program.module()(other), expected, rtol=1e-4, atol=1e-5)


class OnTensors(nn.Module):
    """A model of one graph, called with tensors."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(
        self, x: Tensor, edges: Tensor, ptr: Tensor, edge_attr: Tensor, encodings: dict, extras: dict
    ) -> Tensor:
        return self.model(GraphBatch(x, edges, ptr, edge_attr, encodings=encodings, extras=extras))


@pytest.mark.parametrize("name", sorted(FIVE))
def test_exported_for_the_tensors_of_one_graph(name):
    """The batch is made within the program; the test above exports every model."""
    model, data = OnTensors(build(name).eval()), batch((5,))
    tensors = (data.x, data.edge_index, data.ptr, data.edge_attr, data.encodings, data.extras)
    program = torch.export.export(model, tensors)
    torch.manual_seed(1)
    expected = model(*tensors)
    torch.manual_seed(1)
    torch.testing.assert_close(program.module()(*tensors), expected, rtol=1e-4, atol=1e-5)


def test_an_exported_program_refuses_graphs_of_other_sizes():
    program = torch.export.export(build("ppgt").eval(), (batch(),)).module()
    with pytest.raises((RuntimeError, ValueError, AssertionError), match=r"\S"):
        program(batch((4, 4, 4)))


@pytest.mark.parametrize("name", ["edge-transformer", "edge-transformer-released", "tokengt-released"])
def test_one_graph_for_all_sizes(name):
    """No graph break, and after sizes are known to vary, no further compilation. TokenGT packs as its release does."""
    model, graphs = build(name), []
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for sizes in ((5, 3, 4), (4, 6), (2, 7, 3, 5), (9, 3)):
        data = batch(sizes)
        torch.testing.assert_close(compiled(data), model(data))
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs == [1, 2, 2, 2]


@pytest.mark.parametrize("backward", [False, True])  # the training loop compiles outside of it, some users inside
@pytest.mark.parametrize("name", list_models())
def test_bfloat16_autocast_is_near_float32(name, backward):
    model, other = build(name), build(name)
    expected, expected_grads = step(model, model, batch())
    out, grads = step(other, other, batch(), forward=True, backward=backward)
    assert (out - expected).norm() < 0.05 * expected.norm()
    assert grads.keys() == expected_grads.keys()
    assert not [key for key, grad in grads.items() if not grad.isfinite().all()]
    near = torch.cat([(grads[key] - expected_grads[key]).flatten() for key in grads]).norm()
    assert near < 0.2 * torch.cat([grad.flatten() for grad in expected_grads.values()]).norm()


NO_FAKE = {"i2gnn-ppgt"}  # its subgraphs have sizes that depend on values


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xfail(strict=True) if n in NO_FAKE else []) for n in list_models()]
)
def test_forward_and_backward_on_fake_tensors(name):
    """Fake tensors, with which tools estimate the memory and the operations of a step."""
    model, mode = build(name), FakeTensorMode()
    fake = {key: mode.from_tensor(value) for key, value in (*model.named_parameters(), *model.named_buffers())}
    graphs = pytree.tree_map_only(Tensor, mode.from_tensor, batch())
    with mode:
        out = torch.func.functional_call(model, fake, (graphs,))
        out.sum().backward()
    expected = model(batch())
    expected.sum().backward()
    assert out.shape == expected.shape
    for key, parameter in model.named_parameters():
        assert (fake[key].grad is None) == (parameter.grad is None), key


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("tokengt", {"node_identifiers": "orf", "attention": "performer", "redraw_interval": 1}),
        ("tokengt-released", {"node_identifiers": "orf"}),
        ("tokengt-attention", {"node_identifiers": "orf"}),
        ("tokengt-attention", {"node_identifiers": "orf", "identifier_table": 6, "node_id_dim": 6}),
    ],
)
def test_random_numbers_in_half_precision(name, others, dtype):
    """Orthogonal identifiers and features come from a decomposition that torch has in single precision."""
    model = build(name, **others).to(dtype)
    for _ in range(2):  # features are drawn again in the second forward
        out = model(batch().to("cpu", dtype))
    assert out.dtype == dtype
    assert out.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list_models())
def test_half_precision_is_near_full_precision(name, dtype):
    model, data = build(name), batch()
    expected = model(data)
    half = copy.deepcopy(model).to(dtype)
    out = half(data.to("cpu", dtype))
    out.float().sum().backward()
    assert (out.float() - expected).norm() < 0.05 * expected.norm()
    assert not [key for key, p in half.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]


@pytest.mark.parametrize("name", list_models())
def test_built_without_memory_and_loaded(name):
    """After `to_empty`, everything that is not in the state dict is undefined."""
    model = build(name).eval()
    with torch.device("meta"):
        empty = build(name)
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    outs = []
    for one in (model, empty.eval()):
        torch.manual_seed(1)
        outs.append(one(batch()))
    assert torch.equal(*outs)


PERFORMER = {"attention": "performer", "redraw_interval": 1}
KERNEL = {"attention": "kernel", "redraw_interval": 1}
RANDOM_FEATURES = {
    "gps": PERFORMER,
    "tokengt": PERFORMER,
    "tokengt-released": PERFORMER,
    "hot": KERNEL,
    "hot-released": KERNEL,
    "nodeformer": {"redraw_interval": 1},
}


@pytest.mark.parametrize("name", list_models())
def test_two_forwards_before_one_backward(name):
    """Gradients are the sum of both: the second pass, which draws again, changes no saved tensor of the first."""
    options, seen = RANDOM_FEATURES.get(name, {}), []
    for together in (True, False):
        model, losses = build(name, **options), []
        for _ in range(2):
            losses.append(model(batch()).square().sum())
            if not together:
                losses.pop().backward()
        if together:
            sum(losses).backward()
        seen.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
    for key, grad in seen[1].items():
        torch.testing.assert_close(seen[0][key], grad, rtol=1e-4, atol=1e-4 * float(grad.abs().max()))


@pytest.mark.parametrize("name", list_models())
def test_a_forward_leaves_the_batch_as_it_is(name):
    data = batch()
    names = set(data.encodings), set(data.extras)
    build(name)(data)
    copy.deepcopy(data)
    assert (set(data.encodings), set(data.extras)) == names


@pytest.mark.parametrize("name", list_models())
def test_trains_on_a_batch_first_seen_in_inference_mode(name):
    """Values that a model caches on the batch can be used in training."""
    model, data = build(name), batch()
    expected = step(model, model, batch())
    model.zero_grad()
    with torch.inference_mode():
        model(data)
    torch.testing.assert_close(step(model, model, data), expected, rtol=1e-6, atol=1e-7)


def test_triton_takes_what_torch_generates_for_a_gpu():
    """Dropout of attention weights, whose hash of an `arange` Triton once refused on an H100."""
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "tests.gt_models.for_a_gpu", "edge-transformer-released"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = map(json.loads, done.stdout.splitlines())
    assert found["errors"] == {}
    assert found["kernels"] > 50
