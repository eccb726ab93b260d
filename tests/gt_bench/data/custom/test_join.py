"""Random tables are read as the graphs from which they were written (docs/datasets.md)."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gt_bench.data.custom.description import Description
from gt_bench.data.custom.join import joined
from gt_bench.data.custom.source import Given, Reader
from gt_bench.data.custom.tables import read_folder, tables_of
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.custom.inputs import frames, packed_of, source_of

fixed = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
NAMES = {
    "numbers": lambda g, n: 100 * g + (7 * n + 3) % 11,
    "negative": lambda g, n: -100 * g - (7 * n + 3) % 11,
    "floats": lambda g, n: 100.0 * g + (7 * n + 3) % 11,
    "words": lambda g, n: f'Knoten {100 * g + n}; "é", 日',
}


@st.composite
def tables(draw) -> tuple[dict[str, pd.DataFrame], Counter]:
    """Tables of 1 to 4 graphs with rows and columns in random order, and the graphs without any order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = NAMES[draw(st.sampled_from(sorted(NAMES)))]
    of_graphs = draw(st.sampled_from([lambda g: g * 3 + 2, lambda g: f"G{(5 * g + 2) % 7}"]))
    nodes, edges, graphs, expected = [], [], [], []
    for graph in range(draw(st.integers(1, 4))):
        size, label = draw(st.integers(1, 5)), of_graphs(graph)
        x = [(10 * graph + node + 0.5, float(draw(st.integers(-5, 5)))) for node in range(size)]
        nodes += [{"graph": label, "id": names(graph, n), "mass": m, "charge": c} for n, (m, c) in enumerate(x)]
        pairs = draw(st.lists(st.tuples(*2 * [st.integers(0, size - 1)], st.integers(1, 9)), max_size=8))
        edges += [
            {"graph": label, "source": names(graph, a), "target": names(graph, b), "weight": w / 4} for a, b, w in pairs
        ]
        graphs.append({"id": label, "label": graph + 0.25})
        joins = Counter((x[a], x[b], w / 4) for a, b, w in pairs)
        expected.append((frozenset(x), frozenset(joins.items()), graph + 0.25))
    found = {"nodes": pd.DataFrame(nodes), "graphs": pd.DataFrame(graphs)}
    found["edges"] = pd.DataFrame(edges, columns=["graph", "source", "target", "weight"])
    shuffled = {
        name: table.iloc[rng.permutation(len(table)), rng.permutation(table.shape[1])].reset_index(drop=True)
        for name, table in found.items()
    }
    return shuffled, Counter(expected)


def shape_of(arrays: dict[str, np.ndarray], columns: list[str]) -> Counter:
    nodes, edges = np.cumsum(arrays["num_nodes"])[:-1], np.cumsum(arrays["num_edges"])[:-1]
    weights = arrays.get("edge_attr", np.zeros((0, 1)))
    shapes = []
    x_of = arrays["x"][:, [columns.index("mass"), columns.index("charge")]]
    for x, pairs, weight, y in zip(
        np.split(x_of, nodes), np.split(arrays["edge_index"].T, edges), np.split(weights, edges), arrays["y"]
    ):
        rows = [tuple(row) for row in x.tolist()]
        joins = Counter((rows[a], rows[b], w) for (a, b), (w,) in zip(pairs.tolist(), weight.tolist()))
        shapes.append((frozenset(rows), frozenset(joins.items()), float(y)))
    return Counter(shapes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "frames"])
@settings(fixed, max_examples=20)
@given(drawn=tables())
def test_tables_are_read_as_their_graphs(tmp_path_factory, kind, drawn):
    found, expected = drawn
    source, nothing = source_of(kind, found, tmp_path_factory.mktemp("tables")), Description(numbers=["mass", "charge"])
    opened = tables_of(source.load(), "here", nothing) if isinstance(source, Given) else read_folder(source, nothing)
    arrays = joined(opened, nothing, "graph-regression", "graph", None, [], [])
    features = [name for name in found["nodes"].columns if name in ("mass", "charge")]
    assert shape_of(arrays, features) == expected


@settings(fixed, max_examples=100)
@given(text=st.one_of(st.binary(max_size=60), st.text('ab1,;."\n\r\t|é _-[%', max_size=60).map(str.encode)))
def test_any_bytes_give_arrays_or_an_error_with_the_file(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "edges.csv").write_text("source,target\n0,0\n")
    (folder / "nodes.csv").write_bytes(b"y,f\n" + text)
    file = ""
    try:
        (arrays,) = Reader(folder, Description(), "node-classification").blocks()
    except DatasetError as error:
        file = error.file
    if file:
        assert file.endswith(".csv")
    else:
        assert len(arrays["x"]) == len(arrays["y"]) == arrays["num_nodes"].sum()


@pytest.mark.parametrize("repeated", [0, 3])
def test_repeated_edges_are_kept_and_mentioned(tmp_path, repeated):
    tables = frames()
    tables["edges"] = pd.concat([tables["edges"], tables["edges"][:repeated]])
    header = packed_of(source_of("frames", tables, tmp_path), tmp_path).header
    assert header.statistics["edges"] == 60 + repeated
    assert header.notes == (["3 edges repeat an earlier one, and are kept"] if repeated else [])
