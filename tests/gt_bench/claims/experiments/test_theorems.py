"""Computations on theorems: weights of proofs, identifiers in inner products, relations, and counterexamples."""

from dataclasses import replace

import pytest
import torch

from gt_bench.claims.experiments import graphs
from gt_bench.claims.experiments.registry import module_of
from gt_models import kernels
from gt_models.batch import GraphBatch
from tests.refusals import refused

equivariant_layers = module_of("equivariant_layers")
identifiers = module_of("identifiers")
message_passing = module_of("message_passing")
relations = module_of("relations")


def test_other_weights_than_the_proofs_are_no_equivariant_layer():
    rng = torch.Generator().manual_seed(0)
    layer, n = equivariant_layers._drawn(rng), 4
    x = torch.randn(n * n, equivariant_layers.WIDTH, generator=rng, dtype=torch.float64)
    wanted = equivariant_layers.equivariant(x, layer, n)

    def error(weights, identifiers):
        out = equivariant_layers.transformer(x, identifiers, [weights], n, 40.0)[:, : equivariant_layers.WIDTH]
        return ((out - wanted).abs().max() / wanted.abs().max()).item()

    orthonormal = torch.eye(n, dtype=torch.float64)
    assert error(layer, orthonormal) < 1e-12
    assert error(replace(layer, weight=layer.weight.flip(0)), orthonormal) > 0.1
    assert error(layer, torch.randn(n, n, generator=rng, dtype=torch.float64)) > 0.1  # Lemma 1 assumes orthonormal rows


def test_an_equivariant_layer_is_equivariant():
    rng = torch.Generator().manual_seed(0)
    layer, n = equivariant_layers._drawn(rng), 4
    x = torch.randn(n, n, equivariant_layers.WIDTH, generator=rng, dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    first = equivariant_layers.equivariant(x.flatten(0, 1), layer, n).view(n, n, -1)
    second = equivariant_layers.equivariant(x[order][:, order].flatten(0, 1), layer, n).view(n, n, -1)
    torch.testing.assert_close(first[order][:, order], second)


def test_message_passing_counts_neighbours_and_other_weights_give_another_layer():
    torch.manual_seed(0)
    batch, weights = message_passing._random_graph(), message_passing._drawn()
    alike = replace(batch, x=torch.ones_like(batch.x), edge_attr=torch.ones_like(batch.edge_attr))
    degrees = torch.bincount(batch.edge_index[1])
    found = message_passing.message_passing(alike, weights)
    # one output for each number of neighbours, where two layers of equation 21 give all nodes the same
    assert len(torch.unique(found.mul(1e6).round(), dim=0)) == len(torch.unique(degrees)) > 1
    assert message_passing.encoded(alike, "softmax").std(0).max() < 1e-12
    assert message_passing.encoded(batch, "softmax").std(0).max() > 1e-3
    wrong = message_passing.two_layers(batch, weights | {"M2": weights["M2"].flip(0)})
    assert (wrong - message_passing.message_passing(batch, weights)).abs().max() > 1e-3


def _two(method: str, seed: int) -> list[torch.Tensor]:
    """The outputs of decalin, a relabelled copy of it, and bicyclopentyl."""
    torch.manual_seed(seed)
    network = identifiers.drawn(method, [1], 10)
    found = []
    for adjacency in (graphs.decalin(), graphs.relabelled(graphs.decalin(), seed), graphs.bicyclopentyl()):
        batch = GraphBatch(
            torch.zeros(10, 1, dtype=torch.long), adjacency.nonzero().T.contiguous(), torch.tensor([0, 10])
        )
        with torch.no_grad():
            found.append(network(identifiers.encoded(batch, method, 10)))
    return found


@pytest.mark.parametrize("method", ["ORF by inner products", "Lap by inner products"])
def test_by_inner_products_a_copy_with_identifiers_of_its_own_is_the_same(method):
    first, copy, other = _two(method, 3)
    assert (first - copy).abs().max() < 1e-12 * first.abs().max()
    assert (first - other).abs().max() > 1e-9 * first.abs().max()


@pytest.mark.parametrize("method", identifiers.FREELY)
def test_by_any_weights_a_copy_differs_as_much_as_another_graph(method):
    first, copy, other = _two(method, 3)
    assert (first - other).abs().max() < identifiers.FACTOR * (first - copy).abs().max()


def test_message_passing_does_not_distinguish_the_two():
    first, copy, other = _two("1-WL", 3)
    assert max((first - copy).abs().max(), (first - other).abs().max()) < 1e-12 * first.abs().max()


def test_without_the_graphs_one_line_states_how_to_have_them(tmp_path):
    with refused(identifiers.NoGraphs, remedy="run `dvc repro download@sr25`"):
        identifiers.compute("1-WL; sr25", tmp_path)


def test_families_are_forests_and_relations_their_steps():
    batch, two = relations.families(5, 9, 2, torch.Generator().manual_seed(0))
    _, three = relations.families(5, 9, 3, torch.Generator().manual_seed(0))
    mother = {int(c): int(m) for (c, m), kind in zip(batch.edge_index.T, batch.edge_attr, strict=True) if kind == 0}
    assert len(mother) == (batch.edge_attr == 0).sum()  # one mother at most
    for relation, steps in ((two, 2), (three, 3)):
        seen = set()
        for person in range(45):
            who = person
            for _ in range(steps):
                who = mother.get(who, -1)
            seen |= {(person, who)} if who >= 0 else set()
        family, rest = relation.nonzero().squeeze(1) // 81, relation.nonzero().squeeze(1) % 81
        assert seen == {(int(f * 9 + r // 9), int(f * 9 + r % 9)) for f, r in zip(family, rest, strict=True)}


def test_on_nodes_a_grandmother_and_her_double_get_one_answer():
    batch, _ = relations.families(3, 8, 2, torch.Generator().manual_seed(0), twice=True)
    torch.manual_seed(0)
    answers = {
        name: relations.network(name).eval()(batch).view(3, 2, 4, 2, 4).detach()
        for name in ("on nodes", "Edge Transformer, 1 layers")
    }
    torch.testing.assert_close(answers["on nodes"][:, 0, :, 0], answers["on nodes"][:, 0, :, 1])
    of_pairs = answers["Edge Transformer, 1 layers"]
    assert (of_pairs[:, 0, :, 0] - of_pairs[:, 0, :, 1]).abs().max() > 1e-3


def test_f1_of_right_and_wrong_answers():
    batch, y = relations.families(4, 8, 2, torch.Generator().manual_seed(0))
    assert relations.f1(lambda batch: (2 * y - 1)[:, None], batch, y) == 1
    assert relations.f1(lambda batch: (1 - 2 * y)[:, None], batch, y) == 0


def test_one_layer_sees_two_steps_alone():
    # 0 -> 1 -> 2 -> 3 and 4 -> 6 -> 7 -> 5: 3 is three steps from 0, 5 is not; (0, l), (l, j) over all l are the same
    children, mothers = torch.tensor([0, 1, 2, 4, 6, 7]), torch.tensor([1, 2, 3, 6, 7, 5])
    edges, kind = torch.stack([children, mothers]), torch.tensor([0, 1]).repeat_interleave(6)[:, None]
    batch = GraphBatch(torch.ones(8, 1), torch.cat([edges, edges.flip(0)], 1), torch.tensor([0, 8]), kind)
    torch.manual_seed(0)
    with kernels.use("reference"):
        one, two = (
            relations.network(f"Edge Transformer, {layers} layers").double().eval()(batch).view(8, 8).detach()
            for layers in (1, 2)
        )
    assert (one[0, 3] - one[0, 5]).abs() < 1e-12
    assert (two[0, 3] - two[0, 5]).abs() > 1e-6
