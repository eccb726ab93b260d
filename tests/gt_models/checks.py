"""Random graphs, the same graphs in another order, and checks that several tests share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from gt_models.batch import ROWS, GraphBatch
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
    offsets, edges = [0], [0]
    for g in graphs:
        offsets.append(offsets[-1] + g.num_nodes)
        edges.append(edges[-1] + g.num_edges)

    def joined(kind: str, name: str) -> Tensor:
        values = [getattr(g, kind)[name] for g in graphs]
        if name == "hyperedge_index":
            values = [v + o for v, o in zip(values, offsets, strict=False)]
        if name == "shortest_path_edges":
            values = [torch.where(v < 0, v, v + e) for v, e in zip(values, edges, strict=False)]
        return torch.cat(values)

    return GraphBatch(
        torch.cat([g.x for g in graphs]),
        torch.cat([g.edge_index + o for g, o in zip(graphs, offsets, strict=False)], 1),
        torch.tensor(offsets),
        None if graphs[0].edge_attr is None else torch.cat([g.edge_attr for g in graphs]),
        encodings={name: joined("encodings", name) for name in graphs[0].encodings},
        extras={name: joined("extras", name) for name in graphs[0].extras},
    )


def permute(graph: GraphBatch, order: Tensor, shuffle: Tensor | None = None) -> GraphBatch:
    """The graph with node order[i] as its new node i, and edge shuffle[e] as its new edge e (drawn if None)."""
    n, place = graph.num_nodes, order.argsort()
    shuffle = torch.randperm(graph.num_edges) if shuffle is None else shuffle
    numbers = {"expander": place, "shortest_path_edges": shuffle.argsort()}
    encodings = {}
    for name, value in graph.encodings.items():
        if name in numbers and value.numel():
            moved = torch.cat([numbers[name], torch.tensor([-1])])  # -1 finds -1
            value = moved[value]
        if ROWS.get(name) == "pair":
            value = value.view(n, n, -1)[order][:, order].flatten(0, 1)
        encodings[name] = value if ROWS.get(name) in ("graph", "pair") else value[order]
    attr = None if graph.edge_attr is None else graph.edge_attr[shuffle]
    extras = {name: place[value] if name == "hyperedge_index" else value for name, value in graph.extras.items()}
    return GraphBatch(
        graph.x[order], place[graph.edge_index[:, shuffle]], graph.ptr, attr, encodings=encodings, extras=extras
    )


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
