"""Experiments of the suites on small inputs whose result is known."""

import networkx as nx
import pytest
import torch

from gt_bench.claims.experiments import graphs
from gt_bench.claims.experiments.registry import module_of
from gt_models.ppgt.norms import make_norm
from tests.refusals import refused

auto_encoders = module_of("auto_encoders")
growth = module_of("growth")
one_wl = module_of("one_wl")
polynomials = module_of("polynomials")
separation = module_of("separation")


def test_a_monomial_that_weights_do_not_give_is_seen():
    weights = polynomials.one_hot_weights(3, 2)
    monomial = (2, 1, 1)
    assert polynomials.represents(weights[monomial], monomial)
    assert not polynomials.represents(weights[monomial], (1, 2, 1))


def test_graphs_of_figure_6_are_what_their_names_say():
    pair = [nx.from_numpy_array(g.numpy()) for g in (graphs.decalin(), graphs.bicyclopentyl())]
    assert [sorted(map(len, nx.minimum_cycle_basis(g))) for g in pair] == [[6, 6], [5, 5]]
    assert nx.weisfeiler_lehman_graph_hash(pair[0]) == nx.weisfeiler_lehman_graph_hash(pair[1])
    assert nx.is_isomorphic(
        nx.from_numpy_array(graphs.circular_skip_link(11, 3).numpy()), nx.circulant_graph(11, [1, 3])
    )
    graph = graphs.decalin()
    assert not torch.equal(graphs.relabelled(graph, 0), graph)


def test_without_a_bias_rms_norm_hands_on_directions_alone():
    # what bounds the trained auto-encoders: no training can bring back what the norm drops
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 8, bias=False), make_norm("rms", 8), torch.nn.Linear(8, 2, bias=False)
    ).double()
    x = auto_encoders.points(50)
    torch.testing.assert_close(model(2 * x), model(x), rtol=1e-4, atol=1e-6)
    assert 0.5 < x.norm(dim=1).min() < x.norm(dim=1).max() < 1.5
    assert auto_encoders.unexplained(x, x) == 0
    assert auto_encoders.unexplained(x / x.norm(dim=1, keepdim=True) * x.norm(dim=1).mean(), x) == pytest.approx(1)


FIGURE_6 = (graphs.decalin(), graphs.bicyclopentyl())


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("GIN", False), ("Graphormer", True), ("GRIT", True), ("PPGT, S = 0", True), ("PPGT, S = 15", True),
        ("HOT (S)", False), ("Edge Transformer", True),
    ],
)  # fmt: skip
def test_untrained_networks_distinguish_what_their_class_does(name, apart):
    gap, control = separation.difference(separation.drawn(name), *FIGURE_6)
    assert control < 1e-13
    assert (gap > 2e-11) == apart
    assert (gap < 1e-13) != apart


def test_without_the_pairs_one_line_states_how_to_have_them(tmp_path):
    with refused(separation.NoPairs, remedy="run `dvc repro download@brec`"):
        separation.compute("1-WL, basic", tmp_path)


def test_colour_refinement_of_small_graphs_by_hand():
    path, star = graphs.from_edges(4, [(0, 1), (1, 2), (2, 3)]), graphs.from_edges(4, [(0, 1), (0, 2), (0, 3)])
    cycle = graphs.from_edges(6, [(i, (i + 1) % 6) for i in range(6)])
    triangles = graphs.from_edges(6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    assert one_wl.refined([path, star, graphs.relabelled(path, 3)]) == [0, 1, 0]
    assert one_wl.refined([cycle, triangles]) == [0, 0]


def test_operations_are_counted_one_by_one():
    counter = growth.Counter()
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    with counter:
        product = a @ b  # 2 x 3 x 4 x 5
        product.T.reshape(-1)  # the view counts nothing, its copy 15
        product + 1  # 15
    assert counter.operations == 120 + 15 + 15
    assert counter.largest == 15
    q, k = torch.ones(2, 3, 10, 4), torch.ones(2, 3, 20, 4)
    with torch.no_grad(), growth.Counter() as counter:
        torch.nn.functional.scaled_dot_product_attention(q, k, k)
    assert counter.operations == 2 * (2 * 3 * 10 * 20 * 4) * 2
