"""Every model on batches that are rare and valid: no number is lost, and the fast forms agree with the definitions."""

import pytest
import torch
from torch import Tensor, nn

from gt_models import GraphBatch, list_models
from gt_models.encodings import compute
from gt_models.kernels import use
from tests.gt_models.every_model import build


def ring(n: int, first: int = 0) -> list[tuple[int, int]]:
    """Both directions of the edges of a ring."""
    ends = [(first + i, first + (i + 1) % n) for i in range(n)]
    return ends + [(b, a) for a, b in ends]


def case(sizes: tuple[int, ...], edges: list[tuple[int, int]], index: torch.dtype = torch.long) -> GraphBatch:
    """Graphs of these sizes with random features and all encodings."""
    rng, total, pairs = torch.Generator().manual_seed(1), sum(sizes), sum(n * n for n in sizes)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng)

    encodings = {
        "rrwp": draw(pairs, 3), "laplacian_eigenvectors": draw(total, 3), "second_eigenvector": draw(total, 1),
        "rwse": draw(total, 3), "laplacian_eigenvalues": draw(len(sizes), 3), "hops": draw(total, 16),
        "expander": torch.zeros(total, 3, dtype=torch.long),
    }  # fmt: skip
    ends = torch.tensor(edges, dtype=index).reshape(-1, 2).T
    batch = GraphBatch(
        draw(total, 4), ends, torch.tensor([0, *sizes]).cumsum(0), draw(len(edges), 3), None, encodings
    )  # fmt: skip
    batch.encodings |= compute("shortest-path", batch, path_length=2)
    batch.encodings |= {"target": (batch.local == 0).float()[:, None], "number": batch.local[:, None]}
    large = [int(first) for first, n in zip(batch.ptr, sizes, strict=False) if n >= 3]
    batch.extras["hyperedge_index"] = torch.tensor([[i, i + 1, i + 2] for i in large]).reshape(-1, 3)
    return batch


CASES = {
    "isolated nodes": case((5, 3), ring(3)),
    "no edges": case((3, 2), []),
    "self-loops and parallel edges": case((4, 3), [*ring(4), (0, 0), (0, 0), (1, 2), (1, 2), *ring(3, 4)]),
    "one direction": case((5,), [(0, 1), (1, 2), (2, 3)]),
    "single nodes": case((1, 4, 1), [(0, 0), *ring(4, 1)]),
    "one node": case((1,), []),
    "a graph without nodes": case((3, 0, 4), ring(3) + ring(4, 3)),
    "no nodes": case((0,), []),
    "no graphs": case((), []),
    "indices of 32 bits": case((6,), ring(6), torch.int32),
}


PPGT = {"i2gnn-ppgt", "ppgt", "ppgt-node2subgraph-released", "ppgt-released"}
# models that pool by a maximum, normalise over nodes or have a token per graph
REFUSED = {
    "a graph without nodes": {"edge-transformer-brec-released"},
    "no nodes": {"edge-transformer-brec-released", *PPGT},
    "no graphs": {"tokengt", "tokengt-released", *PPGT},
}


def results(model: nn.Module, batch: GraphBatch) -> list[Tensor]:
    """Output and gradients of the parameters; 0 where a parameter has none."""
    torch.manual_seed(0)
    out = model(batch)
    parameters = list(model.parameters())
    found = torch.autograd.grad(out.square().sum(), parameters, allow_unused=True)
    return [out, *(torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True))]


@pytest.mark.slow
@pytest.mark.parametrize("name", list_models())
def test_finite_and_as_defined_or_refused(name):
    model = build(name)
    for module in model.modules():  # batch norm refuses one row in training
        module.train(not isinstance(module, nn.modules.batchnorm._BatchNorm))
    for title, batch in CASES.items():
        if name in REFUSED.get(title, ()):
            with pytest.raises(ValueError, match="no nodes|without nodes|no graph"):
                model(batch)
            continue
        found = results(model, batch)
        with use("reference"):
            expected = results(model, batch)
        for one, other in zip(found, expected, strict=True):
            assert one.isfinite().all(), title
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=title)


@pytest.mark.parametrize("title", ["no edges", "no nodes", "no graphs"])
def test_shapes_of_empty_batches(title):
    batch = CASES[title]
    assert build("gcn")(batch).shape == (batch.num_nodes, 2)
