"""User-supplied data whose targets belong to edges: tables, splits without leaks, and messages for mistakes."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gt_bench.data.custom.dataset import check
from gt_bench.tasks.link_prediction import Negatives
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import mine, packed
from tests.gt_bench.data.custom.inputs import options_in, read
from tests.refusals import refused

LINKS, CLASSES = "link-prediction", "edge-classification"


def write(folder, edges, nodes="a\n" + "0.5\n" * 8):
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def lines(header, rows):
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"


RING = [(i, (i + 1) % 8) for i in range(8)]


def links_of(folder, rows, header="source,target", **options):
    """Edges as CSV files, packed for link prediction."""
    source = write(folder / "in", lines(header, rows))
    return packed(source, folder / "out", **{"task": LINKS, "split": (0.5, 0.25, 0.25)} | options)


def test_both_directions_and_all_copies_of_an_undirected_edge_are_one_link(tmp_path):
    rows = [*RING, *[(b, a) for a, b in RING], (0, 1), (3, 3)]
    dataset = links_of(tmp_path, rows)
    pairs = dataset.array("target_pair").tolist()
    assert sorted(map(tuple, pairs)) == sorted((min(e), max(e)) for e in RING)
    link = dataset.array("link").tolist()
    assert [None if i < 0 else tuple(pairs[i]) for i in link] == [*[(min(e), max(e)) for e in rows[:-1]], None]
    assert dataset.array("protocol").tolist() == [100, 0, 1]
    assert [len(dataset.split(part)) for part in ("train", "val", "test")] == [4, 2, 2]
    assert "y" not in dataset._arrays
    assert any("1 self-loops are no targets" in note for note in dataset.header.notes)


def test_directed_edges_are_links_of_their_own(tmp_path):
    rows = [*RING, (1, 0)]
    dataset = links_of(tmp_path, rows, negatives=7, seed=3)
    assert sorted(map(tuple, dataset.array("target_pair").tolist())) == sorted(rows)
    assert dataset.array("protocol").tolist() == [7, 3, 0]
    assert any("2 of 9 edges have their reverse: each direction is a target" in note for note in dataset.header.notes)


def test_added_reverse_edges_belong_to_the_link_of_the_given_one(tmp_path):
    rows = [(a, b, {2: "val", 5: "test"}.get(a, "train")) for a, b in RING]
    dataset = links_of(tmp_path, rows, "source,target,split", undirected=True, split=None)
    assert dataset.num_edges == 16
    pairs, link = dataset.array("target_pair"), dataset.array("link")
    batch = dataset.batch(torch.tensor([0]))
    assert torch.equal(pairs[link.long()], batch.edge_index.sort(0).values.T)
    held = {part: pairs[dataset.split(part)].tolist() for part in ("val", "test")}
    assert held == {"val": [[2, 3]], "test": [[5, 6]]}


def test_a_drawn_split_does_not_depend_on_the_order_of_rows(tmp_path):
    rows = [*RING, *[(a, (a + 3) % 8) for a in range(8)]]
    found = []
    for number, order in enumerate((rows, rows[::-1])):
        (folder := tmp_path / str(number)).mkdir()
        dataset = links_of(folder, order, num_splits=2)
        found.append([dataset.array("target_pair")[dataset.split("test", s)].tolist() for s in (0, 1)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_classes_of_edges_with_a_split_and_features(tmp_path):
    rows = [(0, 1, "a", "train", 0.5), (1, 2, "b", "train", 1.5), (2, 3, "a", "val", 2.5), (3, 0, "", "none", 4.5),
            (4, 5, "b", "test", 3.5)]  # fmt: skip
    folder = write(tmp_path / "in", lines("source,target,y,split,weight", rows))
    assert read(folder).task == "edge-classification"
    dataset = packed(folder, tmp_path / "out", CLASSES)
    header = dataset.header
    assert (header.level, header.split_kind, header.out_dim, header.edge_dim) == ("edge", "edge", 2, 1)
    assert dataset.array("y").tolist() == [0, 1, 0, -1, 1]
    assert dataset.array("target_pair").tolist() == [[0, 1], [1, 2], [2, 3], [3, 0], [4, 5]]
    weights = dataset.batch(torch.tensor([0])).edge_attr[dataset.array("target_edge").long(), 0]
    assert weights.tolist() == [0.5, 1.5, 2.5, 4.5, 3.5]
    assert [dataset.split(part).tolist() for part in ("train", "val", "test")] == [[0, 1], [2], [4]]
    assert header.statistics["label_counts"] == [2, 2]


def test_added_reverse_edges_have_no_target(tmp_path):
    nodes = "graph,a\n" + "0,0.5\n" * 4 + "1,0.5\n" * 4
    rows = [(g, i, (i + 1) % 4, 10 * g + i + 0.5) for g in (1, 0) for i in range(4)]
    folder = write(tmp_path / "in", lines("graph,source,target,y", rows), nodes)
    dataset = packed(folder, tmp_path / "out", "edge-regression", undirected=True, split=(0.5, 0.25, 0.25))
    assert dataset.num_edges == 16
    y, pairs = dataset.array("y"), dataset.array("target_pair")
    assert {(*pair, value) for pair, value in zip(pairs.tolist(), y.tolist(), strict=True)} == {
        (4 * g + i, 4 * g + (i + 1) % 4, 10 * g + i + 0.5) for g in (0, 1) for i in range(4)
    }
    batch = dataset.batch(torch.arange(2))
    assert torch.equal(batch.edge_index[:, dataset.array("target_edge").long()].T, pairs)


def test_both_directions_of_an_edge_are_in_the_same_part_of_a_drawn_split(tmp_path):
    rows = [(a, b, min(a, b) % 2) for a, b in RING for a, b in ((a, b), (b, a), (a, b))]
    dataset = links_of(tmp_path, rows, "source,target,y", task=CLASSES, num_splits=4)
    pairs = [tuple(sorted(pair)) for pair in dataset.array("target_pair").tolist()]
    for split in range(4):
        parts = [{pairs[i] for i in dataset.split(part, split).tolist()} for part in ("train", "val", "test")]
        assert [len(part) for part in parts] == [4, 2, 2]
        assert len(set.union(*parts)) == 8


def test_targets_of_nodes_are_not_features_of_link_prediction(tmp_path):
    nodes = "a,y,split\n" + "0.5,1,train\n" * 8
    folder = write(tmp_path / "in", lines("source,target,y", [(*e, 1) for e in RING]), nodes)
    dataset = packed(folder, tmp_path / "out", LINKS)
    assert (dataset.header.in_dim, dataset.header.edge_dim) == (1, None)
    roles = {f"{c['table']}.{c['name']}": c["role"] for c in dataset.header.provenance["columns"]}
    assert {key for key, role in roles.items() if role == "not used"} == {"nodes.y", "nodes.split", "edges.y"}


@pytest.mark.parametrize(
    ("given", "task", "targets"),
    [
        ({"y": torch.arange(8), "train_mask": torch.ones(8, dtype=torch.bool)}, LINKS, None),
        ({"edge_label": torch.arange(16) % 3}, CLASSES, torch.arange(16) % 3),
        ({"y": torch.arange(16) / 2}, "edge-regression", torch.arange(16) / 2),
    ],
)
def test_a_data_object_gives_links_and_labels_of_edges(given, task, targets, tmp_path):
    code = torch.arange(16) % 4
    masks = {"train_mask": code < 2, "val_mask": code == 2, "test_mask": code == 3}
    edges = torch.tensor([*RING, *[(b, a) for a, b in RING]]).T
    found = Data(x=torch.rand(8, 2), edge_index=edges, **given, **masks if task == CLASSES else {})
    dataset = packed(lambda: found, tmp_path, task)
    assert len(dataset.array("target_pair")) == (8 if task == LINKS else 16)
    assert targets is None or dataset.array("y").flatten().tolist() == targets.tolist()
    assert task != CLASSES or dataset.split("val").tolist() == [2, 6, 10, 14]


def test_an_npz_file_with_targets_of_edges(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.random.rand(8, 2), edge_index=np.array(RING).T, y=np.arange(8) / 2)
    assert read(tmp_path / "a.npz").task == "node-regression", "unless the task is declared"
    assert len(packed(tmp_path / "a.npz", tmp_path / "out", LINKS).array("target_pair")) == 8


@pytest.mark.parametrize(
    ("header", "rows", "more", "place", "problem"),
    [
        (",split", [(0, 1, "train"), (1, 0, "val"), (2, 3, "test"), (3, 2, "test")], {}, "split 0",
         "in several parts: train and val"),
        (",split", [(0, 1, "none"), (0, 1, "val"), (2, 3, "test")], {}, "split 0", "in several parts: none and val"),
        ("", [(0, 0), (1, 1)], {}, "", "no edge between two different nodes"),
        ("", RING[:3], {}, "", "3 edges with a target cannot be split"),
        (",t", [(*e, 0.5) for e in RING], {"split": "temporal:t"}, "split", "is temporal"),
        ("", RING, {"split": "given"}, "split", "the data have no split"),
        ("", RING, {"inductive": True}, "inductive", "is for targets of nodes"),
        ("", RING, {"metric": "hits@10", "negatives": 5}, "", "hits@10 is always 1 with 5 negatives"),
        ("", RING, {"metric": "accuracy"}, "", "no metric 'accuracy'"),
        (",split", [(a, b, "train" if a else "val") for a, b in RING], {}, "split 0", "the test part is empty"),
        ("", [(a, b) for a in range(8) for b in range(8) if a != b], {}, "", "have no negative"),
        ("", RING, {"task": CLASSES}, "", "no column label (or y)"),
        (",y", [(*e, 0) for e in RING], {"task": CLASSES}, "", "all labels are 0"),
        (",y", [(*e, "fast") for e in RING], {"task": CLASSES}, "", "all labels are fast"),
        (",y,split", [(0, 1, "", "train"), (1, 2, 0, "val"), (1, 3, 1, "test")], {"task": CLASSES}, "edge 0",
         "has no target, but is in the train part"),
        (",y", [(*e, i % 3) for i, e in enumerate(RING)], {"task": CLASSES, "metric": "f1-binary"}, "",
         "f1-binary needs two classes"),
        (",y", [(*e, i % 2) for i, e in enumerate(RING)], {"task": CLASSES, "negatives": 5}, "negatives",
         "is for link-prediction"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path, header, rows, more, place, problem):
    folder = write(tmp_path / "in", lines(f"source,target{header}", rows))
    with refused(DatasetError, place=place) as error:
        check(mine(folder, **{"task": LINKS} | more))
    assert problem in error.value.problem


# users 0-4 buy items 5-9
BOUGHT = [(u, i) for u in range(5) for i in range(5, 10) if (u + i) % 3]
PARTS = [(0, 5), (1, 5), (2, 6), (3, 6)]


@pytest.mark.parametrize(
    ("rows", "declared", "sides"),
    [
        (BOUGHT, {}, True),
        (BOUGHT, {"undirected": True}, True),
        ([*BOUGHT, *((b, a) for a, b in BOUGHT)], {}, True),
        ([*BOUGHT, *((b, a) for a, b in BOUGHT)], {"bipartite": False}, False),
        (PARTS, {"undirected": True}, True),
        ([*BOUGHT, (0, 1), (1, 0)], {"undirected": True}, False),
        ([*BOUGHT, *((b, a) for a, b in [*BOUGHT, (0, 1)]), (0, 1)], {}, False),
    ],
)
def test_negatives_join_the_sides_of_a_graph_that_has_two(rows, declared, sides, tmp_path):
    folder = write(tmp_path / "in", lines("source,target", rows), "a\n" + "0.5\n" * 11)
    dataset = packed(folder, tmp_path / "out", LINKS, split="random:0.5,0.25,0.25", **declared)
    assert ("side" in dataset.header.extras) == sides
    side = dataset.array("side").numpy().astype(int) if sides else None
    links = dataset.array("target_pair").numpy()
    drawn, exists = Negatives(links, np.array([0, 11]), "undirected" in declared, side).draw(
        links, 40, np.random.default_rng(0)
    )
    ends = {tuple(sorted("user" if node < 5 else "item" for node in pair)) for pair in drawn[exists].tolist()}
    assert (ends == {("item", "user")}) == sides
    assert (10 in drawn) != sides, "a node without an edge"


def test_sides_that_are_open_are_refused(tmp_path):
    both = [*PARTS, *((b, a) for a, b in PARTS)]
    folder = write(tmp_path / "in", lines("source,target", both))
    with pytest.raises(DatasetError) as error:
        check(mine(folder, LINKS, split="random:0.5,0.25,0.25"))
    assert {"undirected", "no-bipartite"} <= options_in(error.value)
    check(mine(folder, LINKS, split="random:0.5,0.25,0.25", bipartite=False))
    with refused(DatasetError, place="bipartite", remedy="write edges from one side to the other"):
        check(mine(write(tmp_path / "b", lines("source,target", RING)), LINKS, bipartite=True))
