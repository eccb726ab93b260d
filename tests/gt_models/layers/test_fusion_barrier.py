"""An identity that remains a node of a compiled graph; test_compile.py tests that numbers are right with it."""

import torch
from torch import nn

from gt_models.layers.fusion_barrier import fusion_barrier


class Twice(nn.Module):
    def forward(self, x):
        return 2 * fusion_barrier(x).sin()


def test_outside_of_a_compiler_it_is_its_argument():
    x = torch.randn(3)
    assert fusion_barrier(x) is x


def test_a_compiled_graph_holds_it_and_its_gradient():
    held = []

    def backend(graph, _):
        held.append(str(graph.graph).count("gt_models.fusion_barrier"))
        return graph

    x, y = (torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_() for _ in range(2))
    out = torch.compile(Twice(), backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(out, Twice()(y))
    out.sum().backward()
    Twice()(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert held == [1]


def test_an_exported_program_is_free_of_it():
    assert "fusion_barrier" not in str(torch.export.export(Twice(), (torch.randn(3),)).graph)
