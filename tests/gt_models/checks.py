"""Checks of every model, called by the tests of each model: `assert_sound(build)` runs all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels import forms_taken, use
from tests.conftest import ROOT


def random_graphs(
    sizes=(5, 3, 7),
    in_dim=4,
    edge_dim=3,
    density=0.5,
    seed=0,
    dtype=torch.float64,
    pair_encodings=(),
    node_encodings=(),
) -> list[GraphBatch]:
    """Undirected random graphs, one GraphBatch each, with encodings (name, width) that are drawn from N(0, 1)."""
    rng = torch.Generator().manual_seed(seed)
    graphs = []
    for n in sizes:
        upper = torch.triu(torch.rand(n, n, generator=rng) < density, 1)
        rows, columns = (upper | upper.T).nonzero().T
        attr = torch.randn(n, n, edge_dim, generator=rng, dtype=dtype)
        attr = (attr + attr.transpose(0, 1))[rows, columns]
        encodings = {name: torch.randn(n * n, width, generator=rng, dtype=dtype) for name, width in pair_encodings}
        encodings |= {name: torch.randn(n, width, generator=rng, dtype=dtype) for name, width in node_encodings}
        x = torch.randn(n, in_dim, generator=rng, dtype=dtype)
        graphs.append(GraphBatch(x, torch.stack([rows, columns]), torch.tensor([0, n]), attr, encodings=encodings))
    return graphs


def collate(graphs: list[GraphBatch]) -> GraphBatch:
    """One GraphBatch of several, made in a loop as reference for faster code."""
    offsets = [0]
    for g in graphs:
        offsets.append(offsets[-1] + g.num_nodes)
    return GraphBatch(
        torch.cat([g.x for g in graphs]),
        torch.cat([g.edge_index + o for g, o in zip(graphs, offsets, strict=False)], 1),
        torch.tensor(offsets),
        None if graphs[0].edge_attr is None else torch.cat([g.edge_attr for g in graphs]),
        encodings={k: torch.cat([g.encodings[k] for g in graphs]) for k in graphs[0].encodings},
        extras={k: torch.cat([g.extras[k] for g in graphs]) for k in graphs[0].extras},
    )


def permute(graph: GraphBatch, order: Tensor, pair_names: tuple[str, ...] = ()) -> GraphBatch:
    """The graph with node order[i] as its new node i; edges are shuffled, too."""
    n = graph.num_nodes
    place = torch.empty_like(order)
    place[order] = torch.arange(n)
    shuffle = torch.randperm(graph.num_edges)
    encodings = {}
    for name, value in graph.encodings.items():
        if name in pair_names:
            encodings[name] = value.view(n, n, -1)[order][:, order].flatten(0, 1)
        else:
            encodings[name] = value[order]
    attr = None if graph.edge_attr is None else graph.edge_attr[shuffle]
    return GraphBatch(graph.x[order], place[graph.edge_index[:, shuffle]], graph.ptr, attr, encodings=encodings)


def assert_equivariant(
    model: nn.Module, graph: GraphBatch, level: str, pair_names: tuple[str, ...] = (), tol: float = 1e-10
) -> None:
    """Outputs of nodes and pairs are equivariant to permutations of nodes, outputs of graphs are invariant."""
    model.eval()
    n, order = graph.num_nodes, torch.randperm(graph.num_nodes)
    out, moved = model(graph), model(permute(graph, order, pair_names))
    if level == "node":
        out = out[order]
    elif level == "pair":
        out = out.view(n, n, -1)[order][:, order].flatten(0, 1)
    torch.testing.assert_close(moved, out, rtol=tol, atol=tol)


def assert_batch_equals_singles(model: nn.Module, graphs: list[GraphBatch], tol: float = 1e-10) -> None:
    """Graphs of different sizes in a batch have the same outputs as alone: no effect of padding or other graphs."""
    model.eval()
    torch.testing.assert_close(model(collate(graphs)), torch.cat([model(g) for g in graphs]), rtol=tol, atol=tol)


def assert_gradients_reach(model: nn.Module, batch: GraphBatch, except_for: tuple[str, ...] = ()) -> None:
    """Every parameter has a finite, non-zero gradient, except for names with prefix `except_for`."""
    model.train()
    out = model(batch)
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in model.named_parameters():
        if except_for and name.startswith(except_for):
            continue
        assert parameter.grad is not None, f"no gradient reaches {name}"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.abs().max() > 0, f"the gradient of {name} is zero"


def assert_deterministic(build: Callable[[], nn.Module], batch: GraphBatch) -> None:
    """The same seed results in bit-identical weights, outputs and gradients."""
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        model = build()
        model.train()
        out = model(batch)
        out.sum().backward()
        results.append([out.detach(), *[p.grad for p in model.parameters() if p.grad is not None]])
    assert len(results[0]) > 1
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


def assert_learns_as_the_definition(
    model: nn.Module, batch: GraphBatch, tol: float, grad_tol: float
) -> dict[str, dict[str, int]]:
    """Compare all fast forms with the reference, and return the forms that were used.

    Args:
        tol: tolerance of outputs.
        grad_tol: tolerance of each parameter's gradient, relative to its norm.
    """
    results = []
    for form in (None, "reference"):
        model.zero_grad()
        torch.manual_seed(1)
        with use(form), forms_taken() as taken:
            out = model(batch)
        out.square().sum().backward()
        results.append((out.detach(), {name: p.grad for name, p in model.named_parameters()}, taken))
    (out, grads, taken), (expected, expected_grads, _) = results
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=tol)
    largest = max(g.norm() for g in expected_grads.values())
    for name, grad in expected_grads.items():  # a gradient that a norm removes is rounding noise
        assert (grads[name] - grad).norm() < grad_tol * grad.norm() + 1e-5 * largest, name
    return {name: dict(counts) for name, counts in taken.items()}


def assert_threads_change_no_bit(compute: Callable[[], Iterable[Tensor]]) -> None:
    """`compute` returns the same bits with one, two and three threads of torch."""
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append([t.detach() for t in compute()])
    finally:
        torch.set_num_threads(before)
    assert runs[0]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def said_by_two_processes(code: str, cache: Path) -> list[str]:
    """The output of `code` in a process that compiles kernels, and in a second one that loads them from `cache`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    return [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]


def assert_sound(
    build: Callable[[], nn.Module],
    graphs: list[GraphBatch],
    level: str,
    pair_names: tuple[str, ...] = (),
    except_for: tuple[str, ...] = (),
) -> None:
    """All checks above, for a float64 model without dropout; `except_for` as in `assert_gradients_reach`."""
    assert_deterministic(build, collate(graphs))
    assert_gradients_reach(build(), collate(graphs), except_for)
    model = build()
    assert_batch_equals_singles(model, graphs)
    for graph in graphs:
        assert_equivariant(model, graph, level, pair_names)
