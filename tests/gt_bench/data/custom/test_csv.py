"""CSV files of pandas, R, spreadsheets and graph editors: read correctly, or refused with file, line and column."""

import re
from pathlib import Path

import numpy as np
import pytest

from gt_bench.data.custom.csv import from_csv
from gt_bench.data.custom.reading import Reading
from gt_bench.utils.errors import DatasetError

EDGES = "source,target\n0,1\n1,2\n"
AB = "id,y\na,1.5\nb,2.5\n"  # of graphs.csv
NODES = "y,f\n0,1.5\n1,2.5\n"


def folder(path: Path, encoding: str = "utf-8", **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.csv").write_bytes(text.encode(encoding))
    return path


def read(path: Path, level: str = "node") -> tuple[dict[str, np.ndarray], list[str]]:
    remarks: list[str] = []
    return from_csv(path, Reading(level, remarks=remarks)), remarks


def refused(path: Path, level: str = "node") -> str:
    with pytest.raises(DatasetError) as error:
        read(path, level)
    return str(error.value)


@pytest.mark.parametrize("name", ["id", "ID", "Id", "node_id", "node", "index", "name", "user_id", "paperId"])
@pytest.mark.parametrize(
    "ids",
    [("0", "2", "1"), ("10", "30", "20"), ("a", "c", "b"), ("-1", "99999999999999999999", "0"), ("Zoë", "日本", "b c")],
)
def test_edges_are_joined_by_an_identifier(name, ids, tmp_path):
    first, last, middle = ids
    nodes = f"{name},f,y\n{first},0.5,0\n{last},2.5,1\n{middle},1.5,0\n"
    arrays, remarks = read(folder(tmp_path, nodes=nodes, edges=f"source,target\n{first},{middle}\n{middle},{last}\n"))
    assert arrays["x"].tolist() == [[0.5], [2.5], [1.5]]  # the identifier is not a feature
    assert arrays["edge_index"].tolist() == [[0, 2], [2, 1]]
    assert remarks == [
        f"nodes.csv: column {name} identifies the nodes: edges are joined by it, and it is not a feature"
    ]


def test_numbers_are_one_identifier_however_they_are_written(tmp_path):
    arrays, _ = read(folder(tmp_path, nodes="id,y\n7.0,0\n3.0,1\n", edges="source,target\n3,7\n7.00,+3\n"))
    assert arrays["edge_index"].tolist() == [[1, 0], [0, 1]]
    arrays, _ = read(folder(tmp_path, nodes="id,y\n07,0\n7,1\n", edges="source,target\n7,07\n"))  # as in postal codes
    assert arrays["edge_index"].tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("id,y\n4,0\n5,1\n4,1\n", EDGES, "nodes.csv: line 4: column id: duplicate identifier 4, first in line 2"),
        ("id,y\n4,0\n5,1\n", "source,target\n4,5\n\n5,6\n", r"edges.csv: line 4: column target: 6 is not in column id"),
        ("id,y\n4,0\n5,1\n", "source,target\n4,5\n\n5,6\n", r"nodes.csv \(which has 4, 5\); add it there, or remove"),
        ("id,y\n4,0\n,1\n", EDGES, "nodes.csv: line 3: column id is empty; give each row an identifier"),
        ("id,name,y\n4,a,0\n5,b,1\n", EDGES, "columns id and name both identify the nodes; remove one"),
        (NODES, "source,target\n0,bob\n", "edges.csv: line 2: column target: bob is not a number of a node; .* column"),
        (NODES, "source,target\n0,\n", "edges.csv: line 2: column target: an empty cell is not a number of a node"),
        (NODES, "source,target\n1,2\n", r"line 2: column target names node 2, .* from 0 to 1 \(.* count from 1\)"),
        (NODES, "from,to\n1,2\n", "edges.csv: needs the columns source and target; it has from, to: rename them"),
        (NODES, "id,source,target\n0,0,1\n", "edges.csv: column id seems to identify edges; remove it, or rename it"),
        (NODES, "y,source,target\n0,0,1\n", r"edges.csv: column y: targets are read from nodes.csv \(column y\)"),
    ],
)  # fmt: skip
def test_invalid_identifiers(nodes, edges, message, tmp_path):
    assert re.search(message, refused(folder(tmp_path, nodes=nodes, edges=edges)))


def test_a_column_named_like_an_identifier_with_repeated_values_is_a_feature(tmp_path):
    arrays, remarks = read(folder(tmp_path, nodes="type_id,y\n1,0\n1,1\n0,1\n", edges=EDGES))
    assert arrays["x"].tolist() == [[1], [1], [0]]
    assert remarks == [
        "nodes.csv: column type_id has the name of an identifier and is used as a feature; "
        "remove it if it is not a feature"
    ]
    folder(tmp_path, edges="source,target,type_id\n0,1,0\n")
    assert (
        "nodes.csv: column type_id is in edges.csv too; name it graph in both if it is the graph of a row"
        in refused(tmp_path)
    )


def test_targets_and_parts_go_with_their_nodes(tmp_path):
    nodes = "graph,id,y,split,f\n1,c,2,test,0.5\n0,b,0,val,1.5\n1,d,1,train,2.5\n0,a,1,none,3.5\n"
    arrays, _ = read(folder(tmp_path, nodes=nodes, edges="graph,source,target\n1,d,c\n0,b,a\n"))
    assert (arrays["x"].ravel().tolist(), arrays["y"].tolist(), arrays["split"].tolist()) == (
        [1.5, 3.5, 0.5, 2.5],
        [0, 1, 2, 1],
        [2, 0, 3, 1],
    )
    assert arrays["edge_index"].tolist() == [[0, 1], [1, 0]]


def test_several_splits_are_columns_with_numbers(tmp_path):
    nodes = (
        "graph,id,y,split_1,split_0,f\n"
        "1,c,2,test,train,0.5\n0,b,0,val,test,1.5\n1,d,1,train,val,2.5\n0,a,1,none,none,3.5\n"
    )
    folder(tmp_path, nodes=nodes, edges="graph,source,target\n1,d,c\n0,b,a\n")
    arrays, _ = read(tmp_path)
    assert arrays["x"].shape == (4, 1)
    assert arrays["split"].tolist() == [[3, 0, 1, 2], [2, 0, 3, 1]]
    folder(tmp_path, nodes="y,split_0,split_2\n0,train,val\n", edges="source,target\n")
    assert "has the columns split_0, split_2; name one split `split`, several split_0, split_1, ..." in refused(
        tmp_path
    )
    folder(tmp_path, nodes="y,split_0\n0,trian\n", edges="source,target\n")
    assert "nodes.csv: line 2: column split_0: unknown split 'trian'" in refused(tmp_path)


@pytest.mark.parametrize("key", ["graph", "graph_id", "Graph", "mol_id"])
def test_graphs_are_joined_by_an_identifier(key, tmp_path):
    nodes = f"{key},id,f\nb,1,0.5\nb,0,1.5\na,0,2.5\na,1,3.5\na,2,4.5\n"
    edges = f"target,source,{key}\n1,0,a\n0,1,b\n2,0,a\n"
    arrays, remarks = read(folder(tmp_path, nodes=nodes, edges=edges, graphs=f"y,{key}\n7.5,a\n8.5,b\n"), "graph")
    assert (arrays["num_nodes"].tolist(), arrays["num_edges"].tolist(), arrays["y"].tolist()) == (
        [3, 2],
        [2, 1],
        [7.5, 8.5],
    )
    assert arrays["x"].ravel().tolist() == [2.5, 3.5, 4.5, 0.5, 1.5]
    assert arrays["edge_index"].tolist() == [[0, 0, 0], [1, 2, 1]]
    assert f"nodes.csv: column {key.lower() if key == 'Graph' else key} is joined with column" in remarks[0]


def test_edges_without_a_graph_are_of_the_graph_of_their_ends(tmp_path):
    nodes = "graph,id,f\n0,a,0.5\n0,b,1.5\n1,c,2.5\n1,d,3.5\n"
    arrays, _ = read(folder(tmp_path, nodes=nodes, edges="source,target\nd,c\na,b\n", graphs="y\n1.5\n2.5\n"), "graph")
    assert (arrays["num_edges"].tolist(), arrays["edge_index"].tolist()) == ([1, 1], [[0, 1], [1, 0]])
    message = refused(folder(tmp_path, edges="source,target\na,c\n"), "graph")
    assert "edges.csv: line 2: column target: c is not in column id of nodes.csv in its graph" in message


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"graphs": "id,y\na,1.5\na,2.5\n"}, "graphs.csv: line 3: column id: duplicate identifier a, first in line 2"),
        ({"graphs": "id,y\na,1.5\nc,2.5\n"}, r"line 3: column graph: b is not in column id of graphs.csv \(which has"),
        ({"graphs": AB + "c,3.5\n"}, "graphs.csv: line 4: column id: graph c has no nodes in nodes.csv; remove it"),
        ({"graphs": "y\n1.5\n2.5\n"}, "nodes.csv: line 2: column graph: a: column graph must number the graphs from"),
        ({"graphs": AB, "edges": "graph,source,target\nz,0,0\n"}, "edges.csv: line 2: column graph: z is not in"),
        ({"graphs": "graph,id,y\na,1,1.5\nb,2,2.5\n"}, "columns graph and id both identify the graphs; remove one"),
        ({"graphs": AB, "nodes": "graph,f,y\na,0.5,1\nb,0.5,1\n"}, r"nodes.csv: column y: targets are read from"),
        ({"graphs": AB, "nodes": "graph,f,split\na,0.5,val\nb,0.5,val\n"}, r"column split: splits are read from"),
    ],
)  # fmt: skip
def test_invalid_graphs(files, message, tmp_path):
    files = {"nodes": "graph,f\na,0.5\nb,1.5\n", "edges": "graph,source,target\na,0,0\n"} | files
    assert re.search(message, refused(folder(tmp_path, **files), "graph"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",f,y\n0,0.5,0\n1,1.5,1\n", r"nodes.csv: line 1: column 1 has no name; name it, .* to_csv\(..."),
        ("f,Unnamed: 0,y\n0.5,0,0\n1.5,1,1\n", "nodes.csv: line 1: column 2 has no name"),
        ("f,y,\n0.5,0,\n1.5,1,\n", "nodes.csv: column 3 has no name and no values: remove the separator at the end of"),
        ("f,y\n1,0.5,0\n2,1.5,1\n", r"nodes.csv: line 2 has 3 columns, line 1 names 2; if the first one"),
        ("0.5,0\n1.5,1\n", "nodes.csv: line 1 has numbers, expected names of columns"),
        ("f,y\n0.5,0\n1,5,1\n", "nodes.csv: line 3 has 3 columns, line 1 names 2; .* commas: a decimal comma needs"),
        ('f,y\n0.5,0\n"1.5,1\n', "nodes.csv: line 3: cannot be read .*; close each quoted cell"),
        ("f,y\n1_000,0\n2,1\n", "nodes.csv: line 2: column f: '1_000' is not a number"),
        ("f,y\n0.5,0\n1e39,1\n", "nodes.csv: line 3: column f: 1e39 is too large; numbers are stored as float32"),
        ("f,y\n5,0\n100000000000000000000,1\n", "line 3: column f: 100000000000000000000 is too large for a whole"),
        ("f,y\n5,0\n-3,1\n", "nodes.csv: line 3: column f is -3; .* categories from 0; write quantities with a point:"),
        ("f,y,split\n5,0,train\n3,1,valid\n", "nodes.csv: line 3: column split: unknown split 'valid'"),
        ("f,y\n5,0.5\n3,inf\n", "nodes.csv: line 3: column y is inf; a target is a finite number"),
        ("f,y,y_1\n5,0,1\n3,1,1\n", "nodes.csv: has the columns y, y_1; name one target y, or several y_1, y_2"),
        ("zip,y\n10115,0\n80331,1\n", "nodes.csv: column zip has whole numbers up to 80331: 80,332 categories for 2"),
        ("f;y\n1,234;0\n5,678;1\n", "line 2: column f: the comma of 1,234 may be a decimal mark or a thousands"),
        ("f;g;y\n0,5;1;0\n1;1.5;1\n", "line 3: column g: 1.5 has a decimal point, but other .* decimal comma; use one"),
        ("", "nodes.csv: is empty; the first line must name the columns"),
        ("f,y\n0.5,0\ninf,1\n", "nodes.csv: line 3: column f is inf; a feature is a finite number"),
        ("a,b;c\n1,2;3\n", "nodes.csv: line 1: columns may be separated by commas or by semicolons; use one of them"),
    ],
)  # fmt: skip
def test_ambiguous_and_invalid_tables(text, message, tmp_path):
    assert re.search(message, refused(folder(tmp_path, nodes=text, edges="source,target\n0,1\n")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("größe,y\n0.5,0\n".encode("latin-1"), "nodes.csv: line 1: cannot be read as UTF-8 .*; save the file as UTF-8"),
        ("f,y\n0.5,0\n".encode("utf-16-le"), "nodes.csv: line 1: contains a zero byte, which is not UTF-8"),
        (b"\xff\xfef,y\n0", "cannot be read as UTF-16"),
    ],
)
def test_content_that_is_not_text(content, message, tmp_path):
    folder(tmp_path, edges=EDGES)
    (tmp_path / "nodes.csv").write_bytes(content)
    assert re.search(message, refused(tmp_path))


PLAIN = [["größe", "y", "split"], ["0.5", "0", "train"], ["-1.25", "1", "val"], ["3.0", "1", "test"]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
@pytest.mark.parametrize(
    ("separator", "word"), [(",", None), (";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars"), (" ", "spaces")]
)
def test_separators_encodings_and_line_ends(encoding, end, separator, word, tmp_path):
    quoted = [[f'"{cell}"' if i % 2 else cell for i, cell in enumerate(row)] for row in PLAIN]
    text = "".join(separator.join(row) + end for row in quoted)
    arrays, remarks = read(folder(tmp_path, encoding, nodes=text, edges=EDGES))
    assert (arrays["x"].ravel().tolist(), arrays["y"].tolist(), arrays["split"].tolist()) == (
        [0.5, -1.25, 3.0],
        [0, 1, 1],
        [1, 2, 3],
    )
    assert remarks == ([f"nodes.csv: columns are separated by {word}"] if word else [])


def test_decimal_commas_and_the_first_line_of_a_spreadsheet(tmp_path):
    arrays, remarks = read(folder(tmp_path, nodes="sep=;\nf;y\n0,5;0\n-1,25e1;1\n", edges="source,target\n0,1\n"))
    assert arrays["x"].ravel().tolist() == [0.5, -12.5]
    assert remarks == [
        "nodes.csv: columns are separated by semicolons",
        "nodes.csv: numbers have decimal commas: 0,5 is a half",
    ]
    arrays, _ = read(folder(tmp_path, nodes='f,y\n"0,5",0\n"2",1\n'))
    assert arrays["x"].ravel().tolist() == [0.5, 2.0]


@pytest.mark.parametrize("values", [("11", "10", "12"), ("11.0", "10.0", "12.0")])
def test_a_column_that_differs_in_every_row_is_named(values, tmp_path):
    nodes = "account,y\n" + "".join(f"{value},{i % 2}\n" for i, value in enumerate(values))
    _, remarks = read(folder(tmp_path, nodes=nodes, edges=EDGES))
    assert remarks == [
        "nodes.csv: column account has a different whole number in each of 3 rows and is used as a feature; "
        "remove it if it identifies the rows"
    ]


def test_edges_may_have_any_order_and_name_nodes_by_whole_floats(tmp_path):
    nodes = "graph,f\n0,0.5\n0,1.5\n1,2.5\n"
    arrays, _ = read(
        folder(
            tmp_path, nodes=nodes, edges="graph,source,target,w\n1,0.0,0.0,0.5\n0,1.0,0.0,1.5\n", graphs="y\n1.5\n2.5\n"
        ),
        "graph",
    )
    assert (arrays["num_edges"].tolist(), arrays["edge_index"].tolist(), arrays["edge_attr"].tolist()) == (
        [1, 1],
        [[1, 0], [0, 0]],
        [[1.5], [0.5]],
    )


def test_messages_hold_no_control_characters(tmp_path):
    message = refused(folder(tmp_path, nodes="id,y\na\x1b[31m\x07,0\nb,1\n", edges="source,target\nb,\x1b]0;x\x07c\n"))
    assert "column target: ]0;xc is not in column id of nodes.csv (which has a[31m, b)" in message
    assert message.isprintable()


def test_words_are_classes_in_sorted_order(tmp_path):
    """The mapping is printed as a remark and returned; a missing value is not a class."""
    labels: list[str] = []
    remarks: list[str] = []
    folder(tmp_path, nodes="f,y\n0.5,dog\n1.5,cat\n2.5,zebra\n3.5,dog\n4.5,\n", edges="source,target\n0,1\n")
    arrays = from_csv(tmp_path, Reading("node", remarks=remarks, labels=labels))
    assert arrays["y"].tolist() == [1, 0, 2, 1, -1]
    assert labels == ["cat", "dog", "zebra"]
    assert "nodes.csv: column y has words, numbered in sorted order: 0 = cat, 1 = dog, 2 = zebra" in remarks
    assert "nodes.csv: column y is missing in 1 rows, which have no class" in remarks


def test_a_word_is_missing_only_as_programs_write_it(tmp_path):
    """Sodium and the class none are words; the missing value of R is not, and the remark names it."""
    nodes = "element,y\nNa,none\nC,mild\nNA,severe\nC,NA\nNa,none\n"
    arrays, remarks = read(folder(tmp_path, nodes=nodes, edges="source,target\n0,1\n"))
    assert arrays["y"].tolist() == [1, 0, 2, -1, 1]  # mild, none, severe
    assert arrays["x"].ravel().tolist() == [1, 0, 2, 0, 1]  # C, Na, missing
    assert (
        "nodes.csv: column y is missing in 1 rows (NA: for a class, write another word), which have no class" in remarks
    )


def test_a_missing_word_of_an_edge_is_refused(tmp_path):
    edges = "source,target,bond\n0,1,single\n1,0,double\n0,1,\n1,0,single\n"
    assert "edges.csv: line 4: column bond is empty; a feature of an edge cannot be missing" in refused(
        folder(tmp_path, nodes=NODES, edges=edges)
    )


def test_targets_are_in_the_order_of_their_numbers(tmp_path):
    arrays, remarks = read(folder(tmp_path, nodes="y_10,y_2,f,y_1\n10,2,0.5,1\n11,3,1.5,2\n", edges=EDGES[:18]))
    assert arrays["y"].tolist() == [[1, 2, 10], [2, 3, 11]]
    assert not any("targets are" in remark for remark in remarks)


def test_targets_with_other_names_are_named(tmp_path):
    """A feature such as y_pos would be a target, which nothing else shows."""
    arrays, remarks = read(folder(tmp_path, nodes="x_pos,y_pos\n0.5,1.5\n2.5,3.5\n", edges=EDGES[:18]))
    assert arrays["y"].ravel().tolist() == [1.5, 3.5]
    assert "nodes.csv: targets are, in this order, y_pos: their names begin with y_" in remarks


def test_a_word_among_numbers_is_refused(tmp_path):
    folder(tmp_path, nodes="f,y\n0.5,0\n1.5,cat\n", edges="source,target\n0,1\n")
    assert "nodes.csv: line 3: column y: 'cat' is not a number" in refused(tmp_path)


def test_words_are_categories_and_gaps_are_missing(tmp_path):
    nodes = "place,size,kind,y\nnorth,0.5,2,0\nsouth,,0,1\n,1.5,,0\nnorth,nan,2,1\n"
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text("source,target,bond\n0,1,single\n1,2,double\n2,3,single\n")
    remarks: list[str] = []
    arrays = from_csv(tmp_path, Reading("node", remarks=remarks))
    # place: north, south, missing; size; kind: 0, 1, 2, missing
    expected = [
        [1, 0, 0, 0.5, 0, 0, 1, 0],
        [0, 1, 0, np.nan, 1, 0, 0, 0],
        [0, 0, 1, 1.5, 0, 0, 0, 1],
        [1, 0, 0, np.nan, 0, 0, 1, 0],
    ]
    np.testing.assert_array_equal(arrays["x"], np.array(expected, np.float32))
    assert arrays["edge_attr"].ravel().tolist() == [1, 0, 1]
    assert remarks[:4] == [
        "nodes.csv: column place has words and is used as a category, numbered in sorted order: 0 = north, 1 = south; "
        "it is missing in 1 rows, which get the category 2",
        "nodes.csv: column size is missing in 2 of 4 rows, first in line 3",
        "nodes.csv: column kind has only whole numbers and is missing in 1 rows, which get the category 3; if it is a "
        "quantity, write 12.0 for 12",
        "nodes.csv: column kind has only whole numbers and is used as a category, 4 columns of 0 and 1; if it is a "
        "quantity, write 12.0 for 12",
    ]
    assert not any("place has only whole numbers" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["north", "south", "7", "north"], "nodes.csv: line 2: column place: 'north' is not a number"),
        (["0.5", "1.5", "cheap", "2.5"], "nodes.csv: line 4: column place: 'cheap' is not a number"),
        (
            ["a", "b", "c", "d"],
            "nodes.csv: line 2: column place: a is a word, and 4 rows have 4 different words; remove the column",
        ),
    ],
)
def test_words_that_are_no_categories(tmp_path, column, message):
    (tmp_path / "nodes.csv").write_text("place,y\n" + "".join(f"{cell},{i % 2}\n" for i, cell in enumerate(column)))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(DatasetError, match=message):
        from_csv(tmp_path, Reading("node"))


def test_a_gap_in_a_feature_of_an_edge_is_an_error(tmp_path):
    (tmp_path / "nodes.csv").write_text("y\n0\n1\n")
    for gap, says in (
        ("", "edges.csv: line 3: column bond is empty; write a number"),
        ("nan", "edges.csv: line 3: column bond is nan"),
    ):
        (tmp_path / "edges.csv").write_text(f"source,target,bond\n0,1,0.5\n1,0,{gap}\n")
        with pytest.raises(DatasetError, match=says):
            from_csv(tmp_path, Reading("node"))


@pytest.mark.parametrize(("column", "known"), [("y", "id, t"), ("split", "id, t"), ("tt", "id, t")])
def test_a_column_that_cannot_split_the_data(column, known, tmp_path):
    folder(tmp_path, nodes="id,y,split,t\na,0,train,1\nb,1,test,2\n", edges="source,target\na,b\n")
    with pytest.raises(DatasetError) as error:
        from_csv(tmp_path, Reading("node", column))
    assert f"nodes.csv: no column {column!r} for the split" in str(error.value)
    assert str(error.value).endswith(f"it has: {known}")


def test_identifiers_split_the_data_and_join_edges(tmp_path):
    folder(tmp_path, nodes="id,y,f\n5,0,0.5\n7,1,1.5\n", edges="source,target\n7,5\n")
    arrays = from_csv(tmp_path, Reading("node", "id"))
    assert arrays["by"].tolist() == ["5", "7"]
    assert arrays["edge_index"].tolist() == [[1], [0]]
    assert arrays["x"].tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("id,label\na,0\n", "source,target\n", "no column y (or y_1, y_2, ...) with the targets; it has id, label: "
         "rename one"),
        ("id,y\na,0\nb,1\n", "source,target\na,\n", "column target: an empty cell is not in column id of nodes.csv"),
        ("id,y,c\na,0,1\nb,1,x\n", "source,target\n", "column c: 'x' is not a number; expected a number: "
         "number categories 0, 1, ..., or write only words"),
        ("id,y,c\na,0,2020-01-01\nb,1,2020-01-02\nc,0,2020-01-03\n", "source,target\n", "line 2: column c: 2020-01-01 "
         "is a word, and 3 rows have 3 different words; remove the column, or write numbers (for a date, days since"),
    ],
)  # fmt: skip
def test_mistakes_name_a_remedy(nodes, edges, message, tmp_path):
    assert message in refused(folder(tmp_path, nodes=nodes, edges=edges))
