"""Equivariant linear layers: their definition, the authors' outputs, and permutations."""

import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.hot.equivalence_classes import equivalence_classes
from gt_models.hot.equivariant_linear import EquivariantLinear, class_count
from gt_models.hot.support import Support
from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.hot.cases import ORDERS, parity_support, to_rows
from tests.gt_models.reference import hot as reference


def support_of(graph: GraphBatch, k: int, l: int, dense: bool = False) -> Support:
    return Support.complete(graph, max(k, l, 2)) if dense or max(k, l) == 3 else Support.sparse(graph)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("k", "l"), ORDERS)
def test_layer_is_its_definition(k, l, dense, light, normalize):
    graph = random_graphs(sizes=(4,), seed=k + 3 * l)[0]
    support = support_of(graph, k, l, dense)
    layer = EquivariantLinear(k, l, 3, 2, light, normalize).double()
    torch.nn.init.normal_(layer.bias)
    values = torch.randn(len(support.sets[k]), 3, dtype=torch.float64)
    expected = reference.run_linear(layer, values, reference.tuples_of(support))
    torch.testing.assert_close(layer(values, support), expected, rtol=1e-10, atol=1e-10)


def test_counts_are_exact_on_a_batch():
    batch = collate(random_graphs())
    support = Support.sparse(batch)
    tuples = reference.tuples_of(support)
    graph = support.sets[2].graph.tolist()
    for c in equivalence_classes(2, 2):
        rows = support.sets[2].rows[c.output_pattern]
        expected = [
            sum(
                graph[a] == graph[b] and reference.exact_keys(i, tuples[2][b], c.blocks)
                for a, i in enumerate(tuples[2])
            )
            for b in range(rows.start, rows.stop)
        ]
        assert class_count(support, c).tolist() == expected


# the authors' block order, as partitions of (i1, i2, j1, j2)
AUTHORS_2_TO_2 = [
    [((0, 1, 2, 3),)],
    [((0, 2), (1, 3))],
    [((0, 3), (1, 2))],
    [((0, 1, 2), (3,))],
    [((0, 1, 3), (2,))],
    [((0, 2, 3), (1,))],
    [((0,), (1, 2, 3))],
    [((0,), (1, 3), (2,))],
    [((0, 2), (1,), (3,))],
    [((0, 3), (1,), (2,))],
    [((0,), (1, 2), (3,))],
    [((0, 1), (2, 3))],
    [((0,), (1,), (2, 3))],
    [((0, 1), (2,), (3,))],
    [((0,), (1,), (2,), (3,))],
]
AUTHORS = {
    (2, 2): [b[0] for b in AUTHORS_2_TO_2],
    (2, 1): [((0, 1, 2),), ((0, 2), (1,)), ((0,), (1, 2)), ((0, 1), (2,)), ((0,), (1,), (2,))],
    (2, 0): [((0, 1),), ((0,), (1,))],
}


@pytest.mark.parametrize(
    "name", ["2to2_default", "2to2_light", "2to1_default", "2to1_light", "2to0_default", "2to0_light"]
)
def test_parity_with_the_authors_linear_layers(parity, name):
    case = parity(f"hot_linear_{name}")
    k, l, light = int(name[0]), int(name[3]), name.endswith("light")
    support, values = parity_support(case), to_rows(case, "in.values")
    layer = EquivariantLinear(k, l, 8, 6, light, normalize=True).double()
    blocks = case["w.weight.weight"].reshape(-1, 8, 6)
    with torch.no_grad():
        for a, c in enumerate(layer.classes):
            layer.weight[a * 8 : a * 8 + 8] = blocks[AUTHORS[k, l].index(c.blocks)]
        if l == 2:  # theirs: off the diagonal, then on it
            layer.bias.copy_(torch.stack([case["w.bias.bias.1"], case["w.bias.bias.0"]]))
        else:
            layer.bias[0] = case["w.bias.bias.0"]
    out = layer(values, support)
    shape = {2: lambda x: to_rows({**case, "x": x}, "x"), 1: lambda x: x.flatten(0, 1), 0: lambda x: x}[l]
    torch.testing.assert_close(out, shape(case["out.y"]), rtol=1e-10, atol=1e-10)
    (out * shape(case["in.loss_weight"])).sum().backward()
    for a, c in enumerate(layer.classes):
        theirs = case["g.weight.weight"].reshape(-1, 8, 6)[AUTHORS[k, l].index(c.blocks)]
        torch.testing.assert_close(layer.weight.grad[a * 8 : a * 8 + 8], theirs, rtol=1e-10, atol=1e-10)
