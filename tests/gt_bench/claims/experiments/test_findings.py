"""Stored results of experiments: complete, protected by a checksum, and equal when computed again."""

import json
from pathlib import Path

import pytest
import torch

from gt_bench.claims.experiments import graphs, registry
from gt_bench.claims.experiments.registry import (
    FindingError,
    agree,
    load,
    module_of,
    partial,
    recompute,
    same,
    stale,
    values,
)
from gt_models.ppgt.norms import make_norm

auto_encoders = module_of("auto_encoders")
growth = module_of("growth")
growth_of_order_3 = module_of("growth_of_order_3")
one_wl = module_of("one_wl")
polynomials = module_of("polynomials")
separation = module_of("separation")


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, as for stored findings.

    Two threads next to other work make small operations many times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in registry.experiments() for case in module_of(name).QUICK]
)
def test_computed_again_it_is_what_is_stored(name, case):
    if missing := [
        needed for needed in getattr(module_of(name), "NEEDS", ()) if not (Path("data") / "packed" / needed).is_dir()
    ]:
        pytest.skip(f"data/packed/{missing[0]} is not available")
    assert agree(name, json.loads(json.dumps(module_of(name).compute(case, Path("data")))), load(name)[case]["value"])


@pytest.mark.parametrize("name", registry.experiments())
def test_every_case_is_stored_with_the_commit_that_made_it(name):
    opened = getattr(module_of(name), "OPEN", False)
    if not opened:
        assert values(name).keys() == set(module_of(name).CASES)
    for case, found in load(name).items() if not opened or partial(name) else ():
        assert len(found["commit"]) == 40, f"{name}, {case}: made by code that is in no commit"


@pytest.mark.parametrize("name", registry.experiments())
def test_a_finding_has_cases_and_its_quick_ones_are_among_them(name):
    module = module_of(name)
    assert set(module.QUICK) <= set(module.CASES)
    assert len(module.CASES) == len(set(module.CASES)) > 0


@pytest.fixture
def folder(tmp_path):
    assert not recompute("polynomials", ["n = 2, L = 2", "n = 3, L = 2"], folder=tmp_path, say=lambda line: None)
    return tmp_path


def test_what_is_stored_states_what_made_it(folder):
    found = load("polynomials", folder)
    assert list(found) == ["n = 2, L = 2", "n = 3, L = 2"]
    assert found["n = 3, L = 2"]["value"] == {"monomials": 10, "represented": 10, "missing": []}
    assert found["n = 3, L = 2"]["command"] == "gt-bench claims --recompute polynomials"
    assert found["n = 3, L = 2"]["version"] == 1
    assert stale("polynomials", folder) == []


def test_computed_again_it_agrees_and_nothing_is_written(folder):
    before = (folder / "polynomials.json").read_bytes()
    said: list[str] = []
    assert recompute("polynomials", ["n = 2, L = 2"], folder=folder, say=said.append)
    assert said[0].endswith("unchanged")
    assert (folder / "polynomials.json").read_bytes() == before


def test_another_value_is_reported_and_takes_its_place(folder, monkeypatch):
    monkeypatch.setattr(
        polynomials, "compute", lambda case, data: {"monomials": 5, "represented": 4, "missing": [[2, 2]]}
    )
    said: list[str] = []
    assert not recompute("polynomials", ["n = 2, L = 2"], folder=folder, say=said.append)
    assert 'was {"monomials": 4' in said[0]
    assert load("polynomials", folder)["n = 2, L = 2"]["value"]["represented"] == 4
    assert load("polynomials", folder)["n = 3, L = 2"]["value"]["represented"] == 10


def test_two_processes_at_different_cases_keep_both(folder, monkeypatch):
    compute = polynomials.compute

    def meanwhile(case, data):
        monkeypatch.setattr(polynomials, "compute", compute)
        recompute("polynomials", ["n = 2, L = 3"], folder=folder, say=lambda line: None)
        return compute(case, data)

    monkeypatch.setattr(polynomials, "compute", meanwhile)
    recompute("polynomials", ["n = 4, L = 2"], folder=folder, say=lambda line: None)
    assert list(load("polynomials", folder)) == ["n = 2, L = 2", "n = 3, L = 2", "n = 4, L = 2", "n = 2, L = 3"]


def test_another_version_made_it(folder, monkeypatch):
    monkeypatch.setattr("gt_bench.claims.experiments.registry.version_in", lambda path: 2)
    assert stale("polynomials", folder) == ["n = 2, L = 2", "n = 3, L = 2"]


def test_nobody_types_a_number(folder):
    path = folder / "polynomials.json"
    path.write_text(path.read_text().replace('"represented": 4', '"represented": 3'))
    with pytest.raises(
        FindingError,
        match=r"polynomials.json: was edited after it was computed; .* `gt-bench claims --recompute polynomials`",
    ):
        load("polynomials", folder)


@pytest.mark.parametrize("content", ["", "[]", '{"cases": {}}'])
def test_a_damaged_file_is_one_line(folder, content):
    (folder / "polynomials.json").write_text(content)
    with pytest.raises(FindingError, match=r"polynomials.json: cannot be read .*compute it again by") as error:
        load("polynomials", folder)
    assert "\n" not in str(error.value)


def test_a_case_that_is_gone_and_one_that_is_missing(folder):
    with pytest.raises(FindingError, match="missing case 'n = 4, L = 2'"):
        values("polynomials", folder)
    path = folder / "polynomials.json"
    cases = json.loads(path.read_text())["cases"] | {"n = 9, L = 9": {}}
    path.write_text(json.dumps({"cases": cases, "sha256": registry.sealed(cases)}))
    with pytest.raises(FindingError, match="unknown case 'n = 9, L = 9'"):
        load("polynomials", folder)


def test_unknown_names(tmp_path):
    with pytest.raises(FindingError, match=r"no finding 'polynomial' \(did you mean 'polynomials'\?\)"):
        load("polynomial", tmp_path)
    with pytest.raises(FindingError, match="has no case 'n = 2, L = 22'"):
        recompute("polynomials", ["n = 2, L = 22"], folder=tmp_path)
    with pytest.raises(FindingError, match="no such file; compute it by `gt-bench claims --recompute polynomials`"):
        load("polynomials", tmp_path)


def test_numbers_are_the_same_up_to_rounding():
    assert same({"a": [1.0, 2, "x"]}, {"a": [1.0 + 1e-9, 2, "x"]})
    assert not same({"a": 1.0}, {"a": 1.001})
    assert not same({"a": 1}, {"b": 1})
    assert not same([1.0], [1.0, 1.0])


def test_a_monomial_that_weights_do_not_give_is_seen():
    weights = polynomials.one_hot_weights(3, 2)
    monomial = (2, 1, 1)
    assert polynomials.represents(weights[monomial], monomial)
    assert not polynomials.represents(weights[monomial], (1, 2, 1))


def test_graphs_of_figure_6_are_what_their_names_say():
    import networkx as nx

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
        ("GIN", False),
        ("Graphormer", True),
        ("GRIT", True),
        ("PPGT, S = 0", True),
        ("PPGT, S = 15", True),
        ("HOT (S)", False),
        ("Edge Transformer", True),
    ],
)
def test_untrained_networks_distinguish_what_their_class_does(name, apart):
    gap, control = separation.difference(separation.drawn(name), *FIGURE_6)
    assert control < 1e-13
    assert (gap > 2e-11) == apart
    assert (gap < 1e-13) != apart


def test_every_network_is_held_by_a_known_pair():
    assert set(separation.NETWORKS) == {
        "GIN",
        "Graphormer",
        "GRIT",
        "PPGT, S = 0",
        "PPGT, S = 15",
        "HOT (S)",
        "Edge Transformer",
    }


def test_without_the_pairs_one_line_states_how_to_have_them(tmp_path):
    with pytest.raises(separation.NoPairs, match=r"packed/brec: `dvc repro download@brec`"):
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


def test_hypergraphs_of_order_3_and_all_triples_are_what_they_are_stated_to_be():
    batch = growth_of_order_3.hypergraph(7, 14)
    triples = batch.extras["hyperedge_index"]
    assert triples.shape == (14, 3)
    assert all(len(set(triple)) == 3 for triple in triples.tolist())
    with torch.no_grad():
        assert growth_of_order_3.AllTriples("kernel")(batch).shape == (7**3, growth_of_order_3.SMALL["hidden_dim"])
