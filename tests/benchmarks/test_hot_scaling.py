"""HOT's runtime study: its six models and graphs, the largest graph of a model, and the files of the figure."""

import csv

import pytest
import torch

from benchmarks.hot_scaling import MODELS, build, graph, largest, walk, write

CPU = torch.device("cpu")


def test_graphs_and_models_are_those_of_the_study():
    batch = graph(36, 3)
    assert (batch.num_nodes, batch.num_edges, batch.x.shape, batch.edge_attr.shape) == (
        36,
        10 * 31,
        (36, 16),
        (310, 16),
    )
    assert torch.equal(batch.x, graph(36, 3).x)
    counts = {name: sum(p.numel() for p in build(name).parameters()) for name in MODELS}
    assert counts["Ours (D, phi)"] == counts["Ours (S, phi)"]
    assert counts["MLP_pi (D)"] == counts["MLP_pi (S)"]
    assert build("Ours (S)").training


@pytest.mark.slow
def test_every_model_is_walked_to_the_figure(tmp_path):
    rows = [row for model in MODELS for row in walk(model, [6, 12], 2, CPU, 100.0)]
    assert len(rows) == len(MODELS) * 2 * 2
    assert all(row["status"] == "ok" and row["forward_seconds"] > 0 and row["backward_seconds"] > 0 for row in rows)
    assert largest(rows) == dict.fromkeys(MODELS, (70, "all sizes"))
    write(rows, tmp_path)
    with open(tmp_path / "hot_scaling.csv") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert (tmp_path / "hot_scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_stops_where_it_is_too_slow_or_has_no_memory(monkeypatch):
    rows = list(walk("MLP_pi (S)", [6, 12, 18], 1, CPU, 0.0))
    assert [row["status"] for row in rows] == ["slow"]
    assert largest(rows) == {"MLP_pi (S)": (0, "slow")}

    clock = iter([1.0, 2.0, 3.0, 4.0])  # the second graph does not fit into memory
    monkeypatch.setattr("benchmarks.hot_scaling._now", lambda device: next(clock, None) or torch.empty(2**60))
    rows = list(walk("MLP_pi (S)", [6, 12, 18], 1, CPU, 100.0))
    assert [row["status"] for row in rows] == ["ok", "oom"]
    assert largest(rows)["MLP_pi (S)"] == (10, "oom")


def test_a_bug_is_no_lack_of_memory(monkeypatch):
    def broken(name):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr("benchmarks.hot_scaling._now", broken)
    with pytest.raises(RuntimeError, match="shapes differ"):
        list(walk("MLP_pi (S)", [6], 1, CPU, 100.0))
