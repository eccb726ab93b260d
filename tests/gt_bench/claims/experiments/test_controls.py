"""Every test of expressivity has a relabelling control.

A method that depends on the order of the nodes distinguishes every pair, and must not count.
"""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_bench.claims.checks import brec as brec_claims
from gt_bench.claims.checks import findings
from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.experiments import graphs
from gt_bench.claims.experiments.registry import module_of, values
from gt_models.batch import GraphBatch

identifiers = module_of("identifiers")
separation = module_of("separation")

PAIR = (graphs.decalin(), graphs.bicyclopentyl())
FINDINGS = {
    "second_eigenvector": "relabelled copies",
    "one_wl": "control",
    "separation": "control",
    "identifiers": "control",
}
# of `identifiers`: methods whose relabelled copies differ by construction, so that they distinguish nothing
ARBITRARY = ("any weights", f"Lap of {identifiers.K}")


class ReadsTheOrder(torch.nn.Module):
    """Another output for nearly every order of the nodes."""

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        first, second = (batch.edge_index - batch.ptr[batch.batch[batch.edge_index[0]]]).double()
        owner = batch.batch[batch.edge_index[0]]
        return torch.zeros(batch.num_graphs, dtype=torch.float64).index_add(0, owner, (first**2 * second).sin())[
            :, None
        ]


def test_untrained_separation():
    gap, control = separation.difference(ReadsTheOrder(), *PAIR)
    assert gap > 1e-3
    assert gap / max(control, separation.FLOOR) < separation.FACTOR


@pytest.mark.parametrize("kind", ["told_apart", "at_least_one_wl"])
def test_a_verdict_over_copies_that_differ_is_none(kind, monkeypatch):
    found = {name: values(name) for name in ("one_wl", "second_eigenvector")}
    for value in found["one_wl"].values():
        value["control"] = 0.5
    for case, value in found["second_eigenvector"].items():
        if case.endswith("v2"):
            value["relabelled copies"] = [[9.0, 9.0] for _ in value["layers"]]
    monkeypatch.setattr(findings.registry, "values", found.__getitem__)
    if kind == "told_apart":
        assert find_check(kind)(paper="polynormer", pair="decalin and bicyclopentyl").holds is False
    else:
        assert find_check(kind)(paper="polynormer", forms=["gcn"]).holds is None


@pytest.mark.parametrize("method", ["1-wl", "gd-wl-rrwp", "gd-wl-shortest-paths", "3-wl"])
def test_colour_refinement_of_many_graphs_and_their_copies(method):
    rng = np.random.default_rng(0)
    for seed in range(6):
        graph = nx.to_numpy_array(nx.gnp_random_graph(9, 0.4, seed=seed))
        order = rng.permutation(9)
        assert not brec_claims.refinement(method)(graph, graph[order][:, order])


@pytest.mark.parametrize(("name", "key"), FINDINGS.items())
def test_every_stored_finding_has_a_control_that_holds(name, key):
    def largest(value) -> float:
        return max(map(largest, value)) if isinstance(value, list) else float(value)

    found = values(name)
    for case, value in found.items():
        if name == "separation" and case.rpartition(", ")[0] in separation.REFINEMENTS:
            continue  # asserted above, on any graph
        if (name, case) == ("second_eigenvector", "CSL(11, 2) and CSL(11, 3), v2"):
            assert largest(value[key]) > 0.01  # a double eigenvalue: as the verdict states
        elif name == "identifiers" and any(word in case for word in ARBITRARY):
            assert "any weights" not in case or (largest(value[key]) > 1e-6 and value["apart"] == 0), case
        else:
            assert largest(value[key]) < 1e-9, case
