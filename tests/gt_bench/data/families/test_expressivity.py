"""CSL, EXP, CEXP, SR25 from the real files; BREC on the first pairs of the real file."""

import lzma

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.data.families import expressivity
from gt_bench.data.packed import PackedDataset
from gt_bench.data.readers import parse_graph6
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made, prepared
from tests.refusals import refused


def graph(dataset, index) -> nx.Graph:
    batch = dataset.batch(torch.tensor([index]))
    g = nx.Graph()
    g.add_nodes_from(range(batch.num_nodes))
    g.add_edges_from(batch.edge_index.T.tolist())
    return g


def test_csl_is_cycles_with_skips(tmp_path, mirror):
    dataset = prepared("csl", tmp_path, mirror)
    labels = dataset.array("y")
    skips = [2, 3, 4, 5, 6, 9, 11, 12, 13, 16]
    for label, skip in enumerate(skips):
        first = int((labels == label).nonzero()[0])
        assert nx.faster_could_be_isomorphic(graph(dataset, first), nx.circulant_graph(41, [1, skip]))
    for index in range(5):
        for part, each in (("train", 9), ("val", 3), ("test", 3)):
            assert torch.bincount(labels[dataset.split(part, index)]).tolist() == [each] * 10


@pytest.mark.parametrize("name", ["exp", "cexp"])
def test_exp_pairs_stay_in_one_fold(name, tmp_path, mirror):
    dataset = prepared(name, tmp_path, mirror)
    split = dataset.array("split")
    assert torch.equal(split[:, 0::2], split[:, 1::2])
    tested = torch.cat([dataset.split("test", k) for k in range(10)])
    assert sorted(tested.tolist()) == list(range(1200))


def test_sr25_is_strongly_regular(tmp_path, mirror):
    dataset = prepared("sr25", tmp_path, mirror)
    for index in (0, 7, 14):
        g = graph(dataset, index)
        assert nx.is_strongly_regular(g)
        assert set(dict(g.degree()).values()) == {12}
        expected = nx.from_graph6_bytes((mirror / "sr25/sr251256.g6").read_bytes().split()[index])
        assert set(map(frozenset, g.edges)) == set(map(frozenset, expected.edges))


@pytest.mark.slow
def test_brec_layout_on_its_first_pairs(tmp_path, mirror, monkeypatch):
    with lzma.open(mirror / "brec/brec_v3.npy.xz") as file:
        lines = np.lib.format.read_array(file, allow_pickle=False)
    few = np.concatenate([lines[: 4 * 64], lines[25600 : 25600 + 4 * 64]])
    with lzma.open(tmp_path / "few.npy.xz", "wb") as file:
        np.lib.format.write_array(file, few, allow_pickle=False)
    spec = get_spec("brec")
    with refused(DatasetError, file=str(tmp_path / "few.npy.xz")):
        made(spec, tmp_path / "out", tmp_path / "few.npy.xz")
    monkeypatch.setattr(expressivity, "BREC_PAIRS", 4)
    made(spec, tmp_path / "out", tmp_path / "few.npy.xz")
    dataset = PackedDataset.open(tmp_path / "out")
    extras = dataset.batch(torch.arange(dataset.num_graphs)).extras
    for pair in range(4):
        of_pair = extras["pair"] == pair
        sides = [
            (of_pair & (extras["control"] == 0) & (extras["side"] == side)).nonzero().squeeze(1) for side in (0, 1)
        ]
        control = (of_pair & (extras["control"] == 1)).nonzero().squeeze(1)
        assert [len(s) for s in sides] == [32, 32]
        assert len(control) == 64
        first, second = graph(dataset, int(sides[0][0])), graph(dataset, int(sides[1][0]))
        assert not nx.is_isomorphic(first, second)
        assert all(nx.is_isomorphic(first, graph(dataset, int(i))) for i in sides[0][1:4])
        assert all(nx.is_isomorphic(graph(dataset, int(control[0])), graph(dataset, int(i))) for i in control[1:4])
        raw = np.load(mirror / "brec/raw/basic.npy", allow_pickle=False)[2 * pair : 2 * pair + 2]
        originals = [nx.from_graph6_bytes(str(line).encode()) for line in raw]
        assert any(nx.is_isomorphic(first, o) for o in originals)


@settings(max_examples=60)
@given(nodes=st.integers(0, 90), seed=st.integers(0, 1000))
def test_graph6_equals_networkx(nodes, seed):
    g = nx.gnp_random_graph(nodes, 0.3, seed=seed)
    line = nx.to_graph6_bytes(g, header=seed % 2 == 0)
    count, edges = parse_graph6(line)
    assert count == nodes
    assert sorted(map(tuple, edges.T.tolist())) == sorted((min(e), max(e)) for e in g.edges)


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_graph6_of_anything_is_a_graph_or_a_clean_error(line):
    try:
        nodes, edges = parse_graph6(line)
    except DatasetError:
        return
    assert edges.size == 0 or (edges[0] < edges[1]).all()
    assert edges.size == 0 or edges.max() < nodes
