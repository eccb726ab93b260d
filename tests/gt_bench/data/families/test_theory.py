"""Theory datasets: bytes, the properties that the theory uses, and the limits in suites/embedded/theory.yaml."""

from collections import Counter
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from gt_bench.config.recipe import load_recipe
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.leaderboard.expectations import theory
from gt_models.batch import GraphBatch
from gt_models.tokengt_attention import TokenGTAttention
from tests.gt_bench.data.checks import prepared

EMBEDDED = theory("embedded")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return cache(lambda name: prepared(name, root, None))


def limit(name: str, row: str) -> float:
    return EMBEDDED[name].rows[row].limit


def layers_of(name: str, row: str) -> int:
    return load_recipe(f"suites/embedded/recipes/{name}/{row}.yaml").model.arguments["num_layers"]


def colours(batch: GraphBatch, rounds: int) -> list[Counter]:
    """Count the colours of 1-WL in each graph after some rounds, with edge features."""
    colour = [tuple(x) for x in batch.x.tolist()]
    kinds = [tuple(e) for e in batch.edge_attr.tolist()] if batch.edge_attr is not None else [()] * batch.num_edges
    edges, known = list(zip(*batch.edge_index.tolist(), kinds, strict=True)), {}
    for _ in range(rounds):
        seen = [[] for _ in colour]
        for source, target, kind in edges:
            seen[target].append((colour[source], kind))
        keys = [(own, tuple(sorted(others))) for own, others in zip(colour, seen, strict=True)]
        colour = [(known.setdefault(key, len(known)),) for key in keys]
    return [Counter(colour[a:b]) for a, b in pairwise(batch.ptr.tolist())]


def all_of(packed: PackedDataset, part: str | None = None, split: int = 0) -> GraphBatch:
    return packed.batch(packed.split(part, split) if part else torch.arange(packed.num_graphs))


def test_colours_alone_give_a_quarter_of_skip_circles(dataset):
    packed = dataset("skip-circles")
    batch = all_of(packed)
    assert len(set(map(str, colours(batch, 3)))) == 1  # any function of them predicts the same class for all graphs
    for part in ("train", "val", "test"):
        assert torch.bincount(all_of(packed, part).y).unique().numel() == 1
    chance = 1 / packed.header.out_dim
    assert [EMBEDDED["skip-circles"].chance, limit("skip-circles", "gcn"), limit("skip-circles", "gin")] == [chance] * 3
    # graphs of a class are isomorphic, graphs of different classes are not
    closed = closed_walks(batch, 8)
    assert all(
        torch.equal(closed[i], closed[j]) == (int(batch.y[i]) == int(batch.y[j]))
        for i in range(0, 100, 7)
        for j in range(100)
    )


def closed_walks(batch: GraphBatch, most: int) -> torch.Tensor:
    """Count closed walks of each graph by length: [B, most]."""
    adjacency = torch.zeros(batch.num_graphs, batch.max_nodes, batch.max_nodes, dtype=torch.float64)
    adjacency[batch.edge_slots()] = 1.0
    power, found = adjacency, []
    for _ in range(most):
        found.append(power.diagonal(dim1=1, dim2=2).sum(1))
        power = power @ adjacency
    return torch.stack(found, 1)


def test_rook_and_shrikhande_are_strongly_regular_and_different(dataset):
    batch = all_of(dataset("rook-shrikhande"))
    adjacency = torch.zeros(100, 16, 16)
    adjacency[batch.edge_slots()] = 1.0
    eye, ones = torch.eye(16), torch.ones(16, 16)
    # lambda = mu = 2: powers of the adjacency are combinations of I, A and J, also for walks and 2-FWL
    assert torch.equal(adjacency @ adjacency, (6 * eye + 2 * (ones - eye)).expand(100, 16, 16))
    # the neighbours of a node form two triangles in the rook's graph and a cycle of six in Shrikhande's graph: the
    # trace of the cube of their adjacency differs
    near = [a[a[0] > 0][:, a[0] > 0] for a in adjacency]
    assert [int(torch.trace(a @ a @ a)) == 0 for a in near] == batch.y.bool().tolist()
    limits = [limit("rook-shrikhande", row) for row in ("ppgt", "edge-transformer")]
    assert [EMBEDDED["rook-shrikhande"].chance, *limits] == [0.5] * 3


def test_every_closed_neighbourhood_of_the_torus_has_all_colours(dataset):
    batch = all_of(dataset("torus-colours"))
    source, target = batch.edge_index
    one_hot = torch.nn.functional.one_hot(batch.y)
    assert torch.equal(one_hot.index_add(0, target, one_hot[source]), torch.ones_like(one_hot))
    noise = batch.x - one_hot
    assert noise.std() == pytest.approx(get_spec("torus-colours").arguments["noise"], rel=0.02)
    assert noise.mean() == pytest.approx(0, abs=0.02)


def test_the_best_accuracy_of_a_node_alone(dataset):
    """The largest of five independent normal entries is the one with the non-zero mean."""
    shift = 1 / get_spec("torus-colours").arguments["noise"]
    best = quad(lambda z: norm.pdf(z) * norm.cdf(z + shift) ** 4, -10, 10)[0]
    assert limit("torus-colours", "mlp") == limit("torus-colours", "polynormer") == pytest.approx(best, abs=5e-5)
    assert EMBEDDED["torus-colours"].chance == limit("torus-colours", "gcn") == 0.2


@pytest.mark.slow
def test_colours_alone_leave_half_the_bonus_of_fused_rings(dataset):
    packed = dataset("ring-molecules")
    for part in ("train", "val", "test"):
        batch = all_of(packed, part)
        found = colours(batch, 20)
        assert found[::2] == found[1::2]  # both graphs of a pair are consecutive and in the same part
        gap = (batch.y[1::2] - batch.y[::2]).squeeze(-1)
        assert torch.allclose(gap, torch.tensor(get_spec("ring-molecules").arguments["fused"]))
    # |y1 - f| + |y2 - f| over a pair, by the triangle inequality
    floor = get_spec("ring-molecules").arguments["fused"] / 2
    assert {EMBEDDED["ring-molecules"].rows[row].limit for row in EMBEDDED["ring-molecules"].rows} == {floor}
    train, test = (all_of(packed, part).y for part in ("train", "test"))
    assert EMBEDDED["ring-molecules"].chance == pytest.approx(float((test - train.median()).abs().mean()), abs=5e-4)


def test_tokens_without_identifiers_leave_the_floor_of_the_basis(dataset):
    """Without identifiers all node tokens are equal, and all edge tokens: attention is constant on both."""
    packed, floor, uniform = dataset("basis-small"), [], []
    model = TokenGTAttention(hidden_dim=15, num_heads=15, head_dim=1)
    for split in range(3):
        for graph in packed.split("test", split).tolist():
            batch = packed.batch(torch.tensor([graph]))
            target = model.targets(batch)[0].double()  # [15, T, 1 + T]
            groups = target[..., 1:].split([batch.num_nodes, batch.num_edges], -1)
            floor.append(sum(float((g - g.mean(-1, keepdim=True)).square().sum()) for g in groups) / 15)
            uniform.append(float((target - 1 / target.size(-1)).square().sum()) / 15)
    rows = EMBEDDED["basis-small"].rows
    assert [row.limit for row in rows.values()] == [pytest.approx(fmean(floor), abs=5e-4)] * 2
    assert EMBEDDED["basis-small"].chance == pytest.approx(fmean(uniform), abs=5e-4)


def test_limits_of_chains_by_receptive_field():
    """Classes are balanced in every part: a model that does not see the end node has an accuracy of one half."""
    length = get_spec("chains").arguments["test_length"]
    seen = {"mlp": 1, "gcn": 1 + layers_of("chains", "gcn")}
    for row, nodes in seen.items():
        assert limit("chains", row) == nodes / length + (1 - nodes / length) / 2
    assert all(limit("chains", row) == limit("chains", "gcn") for row in EMBEDDED["chains"].rows if row not in seen)
    assert EMBEDDED["chains"].chance == 0.5
