"""Stored tuples; fixed sizes (on a device, under torch.compile) give the same results as those of the data."""

import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.hot import support as module
from gt_models.hot.equivalence_classes import light_classes
from gt_models.hot.support import Support
from tests.gt_models.hot.cases import _float64, build, graph_of  # noqa: F401


def test_self_loops_and_parallel_edges_are_entries_of_one_tensor():
    edges = torch.tensor([[0, 1, 1, 0, 2], [1, 0, 0, 0, 2]])
    support = Support.sparse(GraphBatch(torch.zeros(3, 1), edges, torch.tensor([0, 3])))
    assert support.sets[2].index.tolist() == [[0, 0], [1, 1], [2, 2], [0, 1], [1, 0]]
    assert support.edge_rows.tolist() == [3, 4, 4, 0, 2]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("k", "l"), [(1, 1), (2, 2), (2, 1)])
def test_an_entry_of_itself_and_of_the_diagonal_is_a_range_of_rows(k, l, dense):
    """A slice, whose gradient is cheaper, equals the rows of a lookup."""
    batch = GraphBatch(torch.zeros(5, 1), torch.tensor([[4, 0, 1, 3], [3, 1, 0, 3]]), torch.tensor([0, 2, 5]), None)
    support, ranges = (Support.complete(batch, 2) if dense else Support.sparse(batch)), 0
    for c in light_classes(k, l):
        nodes, block_of = support.sets[l].nodes(c.output_pattern), dict(c.shared)
        columns = [
            nodes[block_of[a]] for position in range(k) for a, block in enumerate(c.input_pattern) if position in block
        ]
        rows = support.input_rows(c)
        if isinstance(rows, slice):
            ranges += 1
            rows = torch.arange(rows.start, rows.stop)
        assert rows.tolist() == support.lookup(k, columns).tolist()
    assert ranges == l


def test_tuples_that_do_not_fit_an_integer_are_refused():
    graph = GraphBatch(torch.zeros(5, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 5]))
    support = Support(graph)
    support.num_nodes = 2**22
    with pytest.raises(ValueError, match="smaller batches"):
        support._code([torch.zeros(1, dtype=torch.long)] * 3)


def messy() -> GraphBatch:
    """A batch with self-loops, parallel edges, one-way edges, an isolated node and a graph without edges."""
    first = graph_of(5, [(0, 1), (1, 2), (2, 1), (3, 0), (2, 2), (0, 1), (2, 2), (2, 1)])
    edges = torch.cat([first.edge_index, torch.tensor([[7, 8, 7], [8, 7, 8]])], 1)
    return GraphBatch(torch.randn(9, 4), edges, torch.tensor([0, 5, 7, 9]), torch.randn(11, 3))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["graph", "node", "pair"])
@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "softmax"},
        {"attention": "softmax", "form": "dense"},
        {"kernel": "softmax"},
        {"kernel": "generalized"},
        {"name": "hot-released"},
        {"name": "hot-released", "kernel": "softmax"},
        {"name": "hot-released", "attention": "softmax"},
    ],
)
def test_fixed_sizes_change_no_number(monkeypatch, level, settings):
    """Unused entries (repeated edges, self-loops) affect no output and no gradient."""
    model, batch, results = build(level, redraw_interval=None, num_layers=2, **settings), messy(), []
    for fixed in (False, True):
        monkeypatch.setattr(module, "needs_static_shapes", lambda _, fixed=fixed: fixed)
        model.zero_grad()
        out = model(batch)
        (out * torch.arange(out.numel()).view_as(out).cos()).sum().backward()
        results.append([out.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-11)


def test_spare_entries_come_last(monkeypatch):
    monkeypatch.setattr(module, "needs_static_shapes", lambda _: True)
    edges = torch.tensor([[0, 1, 1, 0, 2], [1, 0, 0, 0, 2]])
    support = Support.sparse(GraphBatch(torch.zeros(3, 1), edges, torch.tensor([0, 3])))
    assert support.sets[2].index[:5].tolist() == [[0, 0], [1, 1], [2, 2], [0, 1], [1, 0]]
    assert support.spare.tolist() == [False] * 5 + [True] * 3
    assert support.edge_rows.tolist() == [3, 4, 4, 0, 2]


@pytest.mark.slow
def test_compiles_with_repeated_edges():
    """With softmax. tests/gt_models/test_compile.py compiles the kernel, without repeated edges."""
    model, batch = build("node", attention="softmax", redraw_interval=None), messy()
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(model, backend="eager", fullgraph=True)(batch), model(batch), rtol=1e-10, atol=1e-10
    )
