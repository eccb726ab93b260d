"""The compiled attention over neighbours: what it computes, that it is what runs, and that threads and index types change nothing."""

import dataclasses

import pytest
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.nn import graph_attention, graph_attention_cpu
from gt_models.nn.graph_attention import GraphAttention, attend
from gt_models.nn.neighbourhood import neighbourhood


def batch(num_nodes: int = 9, num_edges: int = 40) -> GraphBatch:
    """Random edges with parallel ones and self-loops, a node with edges from all others, and a last node without any."""
    pairs = torch.randint(0, num_nodes - 1, (2, num_edges))
    hub = torch.stack([torch.arange(num_nodes - 1), torch.zeros(num_nodes - 1, dtype=torch.long)])
    return GraphBatch(torch.zeros(num_nodes, 1), torch.cat([pairs, pairs[:, :2], hub], 1), torch.tensor([0, num_nodes]))


def tensors(num_nodes: int, heads: int, width: int, dtype=torch.float64) -> list[Tensor]:
    shapes = ((num_nodes, heads * width), (heads, width), (heads, width))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def results(form: str, leaves: list[Tensor], graph: GraphBatch, self_loops: bool, monkeypatch) -> list[Tensor]:
    monkeypatch.setattr(graph_attention, "attention_form", lambda device: form)
    pattern = neighbourhood(graph, 1 if form == "compiled" else leaves[1].size(0), self_loops)
    out = attend(*leaves, pattern)
    return [out, *torch.autograd.grad(out.sin().sum(), leaves)]


# one head; all heads of several edges in a vector; heads and channels that do not fill one; heads in two vectors; channels in two passes
@pytest.mark.parametrize(("heads", "width"), [(1, 8), (2, 64), (3, 5), (8, 16), (20, 3), (1, 200)])
@pytest.mark.parametrize("self_loops", [True, False])
def test_equals_the_sparse_form_with_its_gradients(heads, width, self_loops, monkeypatch):
    graph, leaves = batch(), tensors(9, heads, width)
    compiled, sparse = (results(form, leaves, graph, self_loops, monkeypatch) for form in ("compiled", "sparse"))
    for mine, expected in zip(compiled, sparse, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)
    assert (compiled[0][-1] == 0).all() != self_loops  # the last node has no edge but its own


@pytest.mark.parametrize("heads", [1, 3])
def test_gradients_are_those_of_differences(heads):
    pattern = neighbourhood(batch(), 1)
    assert torch.autograd.gradcheck(lambda *leaves: attend(*leaves, pattern), tensors(9, heads, 5))


def test_it_is_what_runs_on_the_cpu(monkeypatch):
    ran, run = [], graph_attention_cpu._run
    monkeypatch.setattr(graph_attention_cpu, "_run", lambda *arguments: (ran.append(arguments[0]), run(*arguments)))
    layer, graph = GraphAttention(4, 16, 4), batch()
    assert layer.pattern(graph).num_heads == 1
    layer(torch.randn(9, 4), graph).sum().backward()
    assert len(ran) == 5
    assert graph_attention.attention_form(torch.device("cuda")) == "sparse"


def test_is_the_same_for_any_number_of_threads_and_type_of_index():
    pattern, leaves = neighbourhood(batch(3000, 9000), 1), tensors(3000, 4, 6, torch.float32)
    names = ("row", "ptr", "col", "ptr_t", "col_t", "perm_t")
    wide = dataclasses.replace(pattern, **{name: getattr(pattern, name).long() for name in names})
    assert pattern.col.dtype == torch.int32
    found, threads = [], torch.get_num_threads()
    for count, edges in ((1, pattern), (3, pattern), (3, wide)):
        torch.set_num_threads(count)
        out = attend(*leaves, edges)
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(("num_nodes", "self_loops"), [(0, True), (3, False)])
def test_no_edges(num_nodes, self_loops):
    graph = GraphBatch(torch.zeros(num_nodes, 1), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, num_nodes]))
    leaves = tensors(num_nodes, 2, 5)
    out = attend(*leaves, neighbourhood(graph, 1, self_loops))
    assert out.shape == (num_nodes, 10)
    assert not out.any()
    assert not any(grad.any() for grad in torch.autograd.grad(out.sum(), leaves))


def test_large_scores_do_not_overflow():
    value, source, target = tensors(9, 2, 5)
    out = attend(value * 1e5, source, target, neighbourhood(batch(), 1))
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (value, source, target)))
