"""Random tables: read as the graphs from which they were written, or refused with file, line and column.

The invariants are listed in docs/datasets.md. Examples are drawn from fixed seeds.
"""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gt_bench.data.custom.csv import from_csv
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.custom.readers import Given, Reader
from gt_bench.data.custom.reading import Reading
from gt_bench.data.packed import PackedDataset
from gt_bench.utils.errors import DatasetError

fixed = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
FEATURES = ("mass", "größe", "f 1", "m/z,kg", 'a"b', "x;y", "日本", "tab\there", "weight", "degree", "charge")
CASES = {
    "source": ("source", "Source"),
    "target": ("target", "TARGET"),
    "graph": ("graph", "Graph", "graph_id"),
    "y": ("y", "Y"),
    "id": ("id", "Node_ID", "name"),
}


@dataclass
class Graph:
    """Nodes with features, edges with a weight; `y`: a class per node, or a number of the graph."""

    x: list[list[float]]
    edges: list[tuple[int, int, float]]
    y: list[int] | float


@dataclass
class Style:
    """How a table is written."""

    rng: np.random.Generator
    separator: str
    end: str
    encoding: str
    quoting: int
    comma: bool
    names: dict[str, str]
    features: list[str]
    ids: str | None
    written: dict[str, list[list[str]]] = field(default_factory=dict)


@st.composite
def graphs(draw, level: str) -> list[Graph]:
    count = draw(st.integers(1, 4))
    width = draw(st.integers(1, 3))
    numbers = st.one_of(
        st.integers(-5, 5).map(float), st.floats(-1e6, 1e6, width=32).filter(lambda v: v == 0 or abs(v) > 1e-6)
    )
    classes = draw(st.sampled_from([[0, 1], [1], [0, 3], [2, 5, 9], [0, 1, 2]]))
    tag, found = 0, []
    for _ in range(count):
        size = draw(st.integers(1, 5))
        x = []
        for _ in range(size):
            tag += 1
            x.append([tag + 0.5, *(draw(numbers) for _ in range(width - 1))])  # the first feature identifies the node
        node = st.integers(0, size - 1)
        edges = draw(st.lists(st.tuples(node, node, numbers), max_size=8))
        found.append(
            Graph(x, edges, [draw(st.sampled_from(classes)) for _ in range(size)] if level == "node" else draw(numbers))
        )
    return found


@st.composite
def styles(draw) -> Style:
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    features = draw(st.permutations(FEATURES))
    return Style(
        rng=np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        separator=separator,
        end=draw(st.sampled_from(["\n", "\r\n", "\r"])),
        encoding=draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"])),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        comma=draw(st.booleans()),
        names={name: draw(st.sampled_from(of)) for name, of in CASES.items()},
        features=features,
        ids=draw(st.sampled_from([None, "shuffled", "huge", "negative", "floats", "words"])),
    )


def number(value: float, style: Style) -> str:
    """Always with a decimal mark, so that columns are continuous."""
    text = repr(float(np.float32(value)))
    return text.replace(".", ",") if style.comma else text


def name_of(graph: int, node: int, style: Style) -> str:
    shuffled = (node * 7 + 3) % 11 + 100 * graph
    return {
        "shuffled": str(shuffled),
        "huge": str(10**25 + shuffled),
        "negative": str(-shuffled),
        "floats": f"{shuffled}.0",
        "words": f'Knoten {shuffled}; "é", 日',
    }[style.ids or "shuffled"]


def write(found: list[Graph], level: str, style: Style, folder: Path) -> None:
    """Write the three tables, with columns and rows in random order."""
    several = len(found) > 1 or bool(style.rng.integers(2))
    named = level == "graph" and several and bool(style.rng.integers(2))  # graphs.csv identifies its rows
    label = [f"G{(graph * 5 + 2) % 7}" if named else str(graph) for graph in range(len(found))]
    nodes, edges, targets = [], [], []
    for graph, one in enumerate(found):
        group = {style.names["graph"]: label[graph]} if several else {}
        for node, x in enumerate(one.x):
            row = dict(group)
            if style.ids:
                row[style.names["id"]] = name_of(graph, node, style)
            row |= {style.features[i]: number(value, style) for i, value in enumerate(x)}
            if level == "node":
                row[style.names["y"]] = str(one.y[node])
            nodes.append(row)
        for source, target, weight in one.edges:
            ends = [
                name_of(graph, end, style).removesuffix(".0") if style.ids else str(end) for end in (source, target)
            ]
            row = {
                style.names["source"]: ends[0],
                style.names["target"]: ends[1],
                style.features[0]: number(weight, style),
            }
            edges.append(group | row)
        targets.append((group if named else {}) | {style.names["y"]: number(one.y, style) if level == "graph" else ""})
    order = style.rng.permutation
    if style.ids:
        nodes = [nodes[i] for i in order(len(nodes))]
    edges = [edges[i] for i in order(len(edges))]
    if named:
        targets = [targets[i] for i in order(len(targets))]
    header = [style.names["graph"]] * several + [style.names["source"], style.names["target"], style.features[0]]
    for table, rows, names in (
        ("nodes", nodes, list(nodes[0])),
        ("edges", edges, header),
        ("graphs", targets, list(targets[0])),
    ):
        if table == "graphs" and level == "node":
            continue
        columns = [names[i] for i in order(len(names))]
        style.written[table] = [columns, *([row[name] for name in columns] for row in rows)]
        save(table, style, folder)


def save(table: str, style: Style, folder: Path) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=style.separator, lineterminator=style.end, quoting=style.quoting).writerows(
        style.written[table]
    )
    (folder / f"{table}.csv").write_bytes(text.getvalue().encode(style.encoding))


def shape_of(found: list[Graph], level: str) -> Counter:
    """Graphs without the order of nodes, edges and graphs; nodes are identified by their first feature."""
    shapes = []
    for one in found:
        y = one.y if isinstance(one.y, list) else [one.y] * len(one.x)
        x = [tuple(np.float32(row).tolist()) for row in one.x]
        nodes = frozenset(zip(x, np.float32(y).tolist(), strict=True))
        edges = Counter((x[source][0], x[target][0], float(np.float32(weight))) for source, target, weight in one.edges)
        shapes.append((nodes, frozenset(edges.items())))
    return Counter(shapes)


def graphs_in(arrays: dict[str, np.ndarray], level: str) -> list[Graph]:
    nodes, edges = np.cumsum(arrays["num_nodes"])[:-1], np.cumsum(arrays["num_edges"])[:-1]
    weights = arrays.get("edge_attr", np.zeros((arrays["edge_index"].shape[1], 1)))
    y = np.split(arrays["y"], nodes) if level == "node" else arrays["y"]
    ends = zip(
        np.split(arrays["x"], nodes), np.split(arrays["edge_index"].T, edges), np.split(weights, edges), y, strict=True
    )
    return [
        Graph(
            x.tolist(),
            [(*pair, weight[0]) for pair, weight in zip(pairs.tolist(), weight.tolist(), strict=True)],
            one.tolist(),
        )
        for x, pairs, weight, one in ends
    ]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["node", "graph"])
@settings(fixed, max_examples=150)
@given(data=st.data())
def test_a_table_is_read_as_its_graphs(tmp_path_factory, level, data):
    found, style, folder = data.draw(graphs(level)), data.draw(styles()), tmp_path_factory.mktemp("tables")
    write(found, level, style, folder)
    remarks: list[str] = []
    refused = None
    try:
        arrays = from_csv(folder, Reading(level, remarks=remarks))
    except DatasetError as error:
        refused = str(error)
    if refused is not None:  # the commas of numbers, or the separators in a single column name, are ambiguous
        assert style.comma or any(
            len(rows[0]) == 1 and set(",;\t|") & set(rows[0][0]) for rows in style.written.values()
        )
        assert re.search(
            r"(nodes|edges|graphs)\.csv: line \d+.*(use one of them|line 1 names \d|thousands separator)", refused
        )
        return
    columns = [name for name in style.written["nodes"][0] if name in FEATURES]
    arrays["x"] = arrays["x"][:, [columns.index(name) for name in style.features[: len(columns)]]]
    assert shape_of(graphs_in(arrays, level), level) == shape_of(found, level)
    assert any("identifies the nodes" in remark for remark in remarks) == (style.ids is not None)
    assert any("separated by" in remark for remark in remarks) == (style.separator != ",")


WRONG = {  # wrong content of a cell -> kinds of columns that then cannot be read
    **dict.fromkeys(("", "n/a", "nan"), "any"),  # a missing feature of a node is none
    **dict.fromkeys(("1_0", "1e400", "abc"), "features"),
    **dict.fromkeys(("-7", "0.5", "99", "zzz"), "ends"),
}


@pytest.mark.slow
@settings(fixed, max_examples=200)
@given(data=st.data())
def test_a_wrong_cell_is_named(tmp_path_factory, data):
    """One cell is replaced by an invalid one: the error names its file, line and column."""
    found, style, folder = data.draw(graphs("node")), data.draw(styles()), tmp_path_factory.mktemp("tables")
    style.comma = False
    write(found, "node", style, folder)
    table = data.draw(st.sampled_from([name for name, rows in style.written.items() if len(rows) > 1]))
    rows = style.written[table]
    line, column = data.draw(st.integers(1, len(rows) - 1)), data.draw(st.integers(0, len(rows[0]) - 1))
    name, text = rows[0][column], data.draw(st.sampled_from(sorted(WRONG)))
    ends = name in (*CASES["source"], *CASES["target"])
    kind = "ends" if ends else "features" if name in FEATURES else "other"
    if kind == "other" or WRONG[text] not in ("any", kind):
        return
    if WRONG[text] == "any" and (table, kind) == ("nodes", "features"):
        return
    rows[line][column] = text
    save(table, style, folder)
    with pytest.raises(DatasetError) as error:
        from_csv(folder, Reading("node"))
    shown = name.lower() if ends else " ".join(name.split())
    assert re.search(rf"{table}\.csv: line {line + 1}: column {re.escape(shown)}\b", str(error.value)), error.value


@pytest.mark.slow
@settings(fixed, max_examples=60)
@given(data=st.data())
def test_a_duplicate_or_unknown_identifier_is_named(tmp_path_factory, data):
    found, style, folder = data.draw(graphs("node")), data.draw(styles()), tmp_path_factory.mktemp("tables")
    style.ids, style.names["graph"] = style.ids or "words", "graph"
    write(found, "node", style, folder)
    rows = style.written["nodes"]
    column = rows[0].index(style.names["id"])
    graph = rows[0].index("graph") if "graph" in rows[0] else column
    first, second = data.draw(st.tuples(*2 * [st.integers(1, len(rows) - 1)]))
    if first != second and (graph == column or rows[first][graph] == rows[second][graph]):
        before, rows[second] = rows[second], list(rows[second])
        rows[second][column] = rows[first][column]
        save("nodes", style, folder)
        with pytest.raises(
            DatasetError,
            match=rf"nodes\.csv: line {max(first, second) + 1}: .*duplicate .* line {min(first, second) + 1};",
        ):
            from_csv(folder, Reading("node"))
        rows[second] = before
    header, *edges = style.written["edges"]
    used = {row[header.index(style.names[end])] for row in edges for end in ("source", "target")}
    row = next((row for row in rows[1:] if row[column].removesuffix(".0") in used), None)
    if row is not None:
        row[column] = "nobody"
        save("nodes", style, folder)
        with pytest.raises(
            DatasetError, match=r"edges\.csv: line \d+: column (source|target): .* is not in column .* of nodes\.csv"
        ):
            from_csv(folder, Reading("node"))


@settings(fixed, max_examples=40)
@given(data=st.data())
def test_any_bytes_give_arrays_or_an_error_with_the_file(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "edges.csv").write_text("source,target\n0,0\n")
    text = data.draw(st.one_of(st.binary(max_size=60), st.text('ab1,;."\n\r\t|é _-', max_size=60).map(str.encode)))
    (folder / "nodes.csv").write_bytes(b"y,f\n" + text)
    message = None
    try:
        arrays = from_csv(folder, Reading("node"))
    except DatasetError as error:
        message = str(error)
    if message is None:
        assert len(arrays["x"]) == len(arrays["y"]) == arrays["num_nodes"].sum()
    else:
        assert ".csv" in message


@pytest.mark.slow
@pytest.mark.parametrize("level", ["node", "graph"])
@settings(fixed, max_examples=40)
@given(data=st.data())
def test_data_objects_and_npz_files_are_read_as_their_graphs(tmp_path_factory, level, data):
    found, folder = data.draw(graphs(level)), tmp_path_factory.mktemp("npz")
    several = [
        Data(
            x=torch.tensor(one.x),
            edge_index=torch.tensor([pair[:2] for pair in one.edges], dtype=torch.long).reshape(-1, 2).T,
            edge_attr=torch.tensor([[pair[2]] for pair in one.edges]).reshape(-1, 1),
            y=torch.tensor(one.y),
        )
        for one in found
    ]
    (arrays,) = Reader(Given(lambda: several, "", "here"), level, (0.8, 0.1, 0.1), 1, 0).blocks()
    assert shape_of(graphs_in(arrays, level), level) == shape_of(found, level)
    np.savez(folder / "a.npz", **arrays)
    (again,) = Reader(folder / "a.npz", level, (0.8, 0.1, 0.1), 1, 0).blocks()
    assert shape_of(graphs_in(again, level), level) == shape_of(found, level)
    rows = len(again["y"])
    again["split"] = np.resize([1, 2, 3], (1, rows)).astype(np.uint8)
    np.savez(folder / "b.npz", **again)
    task, metric = ("node-classification", "accuracy") if level == "node" else ("graph-regression", "mae")
    spec = custom_dataset("mine", folder / "b.npz", task=task, metric=metric)
    if level == "node" and len(set(again["y"].tolist())) == 1:
        with pytest.raises(DatasetError, match="needs two classes"):
            spec.prepare(spec, {}, folder / "out")
        return
    spec.prepare(spec, {}, folder / "out")
    packed = PackedDataset.open(folder / "out")
    assert packed.num_graphs == len(found)
    missing = sorted(set(range(int(again["y"].max()) + 1)) - set(again["y"].tolist())) if level == "node" else []
    assert any("number classes without gaps" in note for note in packed.header.notes) == bool(missing)
