"""User-supplied datasets: how they are found, and the error message for each mistake."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Batch, Data

from gt_bench.api.evaluate import try_pair
from gt_bench.config.grid import load_grid
from gt_bench.config.tried import with_tried
from gt_bench.data.custom.description import Description
from gt_bench.data.declared import spec_from
from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import get_spec
from gt_bench.leaderboard.collect import gather
from gt_bench.pipeline.train import train_cell
from gt_bench.plugins.datasets import dataset_name, store_data
from gt_bench.scheduling.planner import plan
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import DatasetError, UserError
from tests.gt_bench.custom_data import write_web
from tests.gt_bench.plugins.cases import FAST, dataset_of, entry_of, graph, run
from tests.gt_bench.user_models import forgotten, install, write  # noqa: F401 - a fixture

LOAD = """
    import torch
    from torch_geometric.data import Data

    def load():
        return Data(x=torch.randn(30, 4), edge_index=torch.randint(0, 30, (2, 60)), y=torch.arange(30) % 3)
"""


@pytest.mark.slow
def test_a_folder_of_csv(ours):
    write_web(ours / "lab/papers")
    found = run("mlp", "lab/papers")
    assert (found.dataset, found.row["status"], found.row["metric"]) == ("papers", "ok", "accuracy")
    about = {"source": "lab/papers", "task": "node-classification", "metric": "accuracy"}
    assert entry_of("papers") == about | {"made_from": get_spec("papers").arguments["content"]}
    # now recipes can use its name
    assert run("mlp", "papers").row["digests"] == found.row["digests"]


def test_another_function_of_the_file_is_other_data(ours):
    """The packed data of the first function must not be used for the second one."""
    text = LOAD.replace("(30", "(N").replace("(0, 30", "(0, N")
    heads = ("load(N=30)", "small(N=24)")
    write("lab/rings.py", "".join(text.replace("def load():", f"def {head}:") for head in heads))
    name = dataset_name("lab/rings.py")
    assert dataset_of(name).sizes.tolist() == [30]
    entry = Path("datasets.yaml").read_text()
    Path("datasets.yaml").write_text(entry.replace("lab/rings.py", "lab/rings.py:small"))
    assert dataset_of(name).sizes.tolist() == [24]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("lab/papers/nodes.csv", ("\n0,", "\n1,")),
        ("datasets.yaml", ("metric: accuracy", "metric: f1-macro")),
        ("datasets.yaml", ("metric: accuracy", "metric: accuracy\n  split: {kind: k-fold, folds: 3}")),
    ],
)
def test_data_that_changed_are_not_trained_on_as_they_were(ours, file, change):
    """`gt-bench train` and `tune` do not pack: the stored runs are of other data."""
    write_web(ours / "lab/papers")
    found = run("mlp", "lab/papers")
    cell = found.row["cell"]
    grid = with_tried(load_grid())
    assert train_cell(grid.find(cell), grid, bar=False)["runs"] == found.row["digests"]
    assert plan([grid.find(cell)], grid, measure=False).missing == []
    text = Path(file).read_text()
    assert change[0] in text
    Path(file).write_text(text.replace(*change))
    with pytest.raises(DatasetError, match="'papers': its files, function or entry in datasets.yaml changed after"):
        train_cell(grid.find(cell), grid, bar=False)
    planned = plan([grid.find(cell)], grid, measure=False)
    assert (len(planned.missing), planned.data) == (1, ["papers"])
    assert run("gcn", "papers").row["status"] == "ok"
    rows = {row["model"].partition("-")[0]: row for row in gather(with_tried(load_grid())).rows}
    assert (rows["gcn"]["status"], rows["mlp"]["status"]) == ("ok", "ok, stale: data")
    assert run("mlp", "papers").row["digests"] != found.row["digests"]
    assert {row["status"] for row in gather(with_tried(load_grid())).rows} == {"ok"}
    assert train_cell(grid.find(cell), grid, bar=False)["status"] == "ok"


def test_a_function_is_called_again_because_what_it_reads_may_have_changed(ours):
    write("lab/rings.py", """
        from pathlib import Path

        import torch
        from torch_geometric.data import Data

        def load():
            n = int(Path("lab/size.txt").read_text())
            y = torch.arange(n) % 3
            return Data(x=torch.ones(n, 4), edge_index=torch.zeros(2, 1, dtype=torch.long), y=y)
    """)  # fmt: skip
    digests = []
    for size in (30, 30, 24):
        Path("lab/size.txt").write_text(str(size))
        packed = dataset_of(dataset_name("lab/rings.py"))
        assert packed.sizes.tolist() == [size]
        digests.append(packed.digest)
    assert digests[0] == digests[1] != digests[2]


def test_data_whose_task_is_open_are_not_declared(ours):
    write("lab/rings.py", LOAD.replace("torch.arange(30) % 3", "torch.arange(30) % 2.0"))
    with pytest.raises(DatasetError):
        dataset_name("lab/rings.py")
    assert not Path("datasets.yaml").exists()


def test_a_source_is_one_however_its_path_is_written(ours):
    write_web(ours / "lab/papers")
    forms = ("lab/papers", "lab/papers/", "./lab/papers", str(ours / "lab/papers"))
    assert {dataset_name(text) for text in forms} == {"papers"}
    assert len(yaml.safe_load(Path("datasets.yaml").read_text())) == 1


def test_an_entry_that_is_none_is_named(ours):
    write_web(ours / "lab/papers")
    dataset_name("lab/papers")
    Path("datasets.yaml").write_text("\n")  # its last entry was removed
    assert dataset_name("lab/papers") == "papers"
    Path("datasets.yaml").write_text("papers: 3\n")
    for text in ("lab/papers", "papers"):
        with pytest.raises(UserError, match=r"^datasets.yaml: papers: expected a mapping of keys \(given: 3\)$"):
            run("mlp", text)


def test_two_that_are_declared_at_once_are_both_stored(ours, monkeypatch):
    for name in ("a", "b"):
        write_web(ours / "lab" / name)

    begun = []

    def meanwhile(*arguments):  # another process does this while this one reads the data
        begun.append(arguments)
        if len(begun) == 1:
            dataset_name("lab/b")
        return spec_from(*arguments)

    monkeypatch.setattr("gt_bench.plugins.datasets.spec_from", meanwhile)
    assert dataset_name("lab/a") == "a"
    assert yaml.safe_load(Path("datasets.yaml").read_text()).keys() == {"a", "b"}


def test_an_iterator_of_graphs_is_read_whole(ours):
    edges = torch.zeros(2, 0, dtype=torch.long)
    graphs = [Data(x=torch.full((4, 1), float(i)), edge_index=edges, y=float(i)) for i in range(12)]
    name = store_data((data for data in graphs), "twelve")
    assert np.load("data/own/twelve.npz")["y"].tolist() == [float(i) for i in range(12)]
    assert get_spec(name).task == "graph-regression"


def test_an_npz_file_of_graphs_of_one_node(ours):
    ones = np.ones(9, np.int64)
    none = {"num_edges": 0 * ones, "edge_index": np.zeros((2, 0), np.int64)}
    np.savez("dots.npz", x=np.zeros((9, 2)), y=np.linspace(0, 1, 9), num_nodes=ones, **none)
    assert get_spec(dataset_name("dots.npz")).task == "graph-regression"


def test_several_functions_of_one_file(ours):
    write("lab/rings.py", LOAD + LOAD.partition("\n\n")[2].replace("load()", "small()").replace("30", "20"))
    found = [dataset_name(text) for text in ("lab/rings.py:load", "lab/rings.py:small", "lab/rings.py")]
    assert found == ["rings", "rings-small", "rings"]


def test_a_file_in_another_encoding(ours):
    Path("latin.py").write_bytes(
        textwrap.dedent("# -*- coding: latin-1 -*-\n# caf\xe9\n" + LOAD.replace("\n    ", "\n")).encode("latin-1")
    )
    assert prepare(dataset_name("latin.py")).header.out_dim == 3


def test_names_in_other_alphabets(ours):
    write_web(ours / "lab/é Größe")
    assert dataset_name("lab/é Größe") == "e-groe"
    write_web(ours / "lab/日本")
    with pytest.raises(DatasetError):
        dataset_name("lab/日本")


def test_names_stay_in_their_folders(ours):
    for name in ("../evil", "", "a/b", ".hidden"):
        with pytest.raises(DatasetError, match="a dataset cannot be named"):
            store_data(graph(), name)
    with pytest.raises(DatasetError, match="'../../evil' is not a name of a dataset"):
        dataset_name("pyg:Planetoid/../../evil")
    with pytest.raises(DatasetError, match="'/etc' is not a name of a dataset"):
        dataset_name("pyg:Planetoid//etc")
    assert not list(ours.rglob("*evil*"))
    assert not Path("data").exists()


def test_an_npz_file(ours):
    x, edges = np.random.default_rng(0).normal(size=(20, 3)), np.array([[0, 1], [1, 0]])
    np.savez("points.npz", x=x, edge_index=edges, y=np.arange(20) % 2)
    assert run("mlp", "points.npz").row["status"] == "ok"


def test_a_function_that_returns_one_data(ours):
    write("lab/rings.py", LOAD)
    found = run("gcn", "lab/rings.py:load")
    assert (found.dataset, found.row["status"]) == ("rings", "ok")
    before = get_spec("rings").digest
    assert get_spec("rings").digest == before
    write("lab/rings.py", LOAD.replace("% 3", "% 2"))
    assert get_spec("rings").digest != before


@pytest.mark.parametrize(
    "data", [graph(), [graph(), graph(20)], Batch.from_data_list([graph(), graph(20)])], ids=["data", "list", "batch"]
)
def test_data_in_hand(ours, data):
    name = store_data(data, "mine")
    assert get_spec(name).task == "node-classification"
    torch.testing.assert_close(dataset_of(name).batch(torch.tensor([0])).x, graph().x)


def test_a_dataset_of_torch_geometric_by_name(ours):
    # generated data, so that no host is needed
    found = run("mlp", "pyg:FakeDataset")
    assert found.dataset == "pyg-fakedataset"
    assert found.row["status"] == "ok"


def test_a_dataset_of_an_installed_package(ours, monkeypatch):
    write("site/acme.py", LOAD)
    names = {"acme-rings": "acme:load", "acme-bad": "acme:nothing", "texas": "acme:load"}
    install(ours, "gt_bench.datasets", names, monkeypatch)
    assert run("mlp", "acme-rings").row["status"] == "ok"
    with pytest.raises(
        DatasetError,
        match=r"the entry point acme-bad = 'acme:nothing' of acme "
        r"\(group gt_bench.datasets\) does not load: .*, line \d+",
    ):
        get_spec("acme-bad")
    with pytest.raises(
        DatasetError, match=r"the entry point texas = .* of acme .*: the name is taken by a dataset of the benchmark"
    ):
        dataset_name("texas")


@pytest.mark.parametrize(
    ("text", "source", "says"),
    [
        ("nowhere.npz", None,
         "nowhere.npz: there is no such file or folder; a dataset is a name, a folder of CSV, an npz file, "
         "file.py:load or pyg:"),
        ("lab/nodes.csv", "a,y\n",
         "lab/nodes.csv: a file of this kind is no dataset: to read its folder, write lab/; a dataset is a name"),
        ("lab/a.py", LOAD.replace("import torch\n", "import sys\n    sys.exit(3)\n"),
         "lab/a.py, line 2: expected a file that Python can import; it raises SystemExit: 3; move"),
        ("lab/a.py", LOAD.replace("return Data(", "exit(Data)("), "lab/a.py, line 5: load() raises SystemExit"),
        ("pyg:Planetiod/Cora", None, "torch_geometric.datasets has no 'Planetiod' (did you mean 'Planetoid'?)"),
        ("lab/a.py:laod", LOAD, "lab/a.py: has no function 'laod' (did you mean 'load'?)"),
        ("lab/a.py", LOAD.replace("def load", "def load(: #"),
         "lab/a.py, line 4: expected a file that Python can import; it raises SyntaxError"),
        ("lab/a.py", LOAD.replace("torch.arange(30) % 3", "torch.arange(30) % 3 + missing"),
         "lab/a.py, line 5: load() raises NameError"),
        ("lab/a.py", LOAD.replace("return Data(", "return dict("),
         "lab/a.py:load: a mapping of 'x': Tensor, 'edge_index': Tensor, 'y': Tensor; expected a Data"),
        ("lab/a.py", LOAD.replace("return Data(", "return [] and Data("),
         "lab/a.py:load: found no graphs; expected a Data of torch_geometric, a list of them"),
        ("lab/a.py", LOAD.replace("return Data(", "Data("),
         "lab/a.py:load: found a NoneType; expected a Data of torch_geometric, a list of them"),
        ("lab/texas.py", LOAD,
         "lab/texas.py: its name 'texas' is taken by a dataset of the benchmark; rename the file or folder"),
        ("lab/a.py", LOAD.replace("torch.arange(30) % 3", "torch.eye(30)"),
         "lab/a.py:load: targets have 30 labels of 0 and 1 per node"),
    ],
)  # fmt: skip
def test_sources_that_are_no_dataset(ours, text, source, says):
    if source:
        write(text.partition(":")[0], source)
    with pytest.raises(ValueError, match=re.escape(says)):
        dataset_name(text)


def test_a_name_that_is_taken_in_this_folder(ours):
    write_web(ours / "lab/papers")
    write_web(ours / "other/papers", nodes=40)
    dataset_name("lab/papers")
    with pytest.raises(DatasetError, match="taken in datasets.yaml by lab/papers; rename the file or folder"):
        dataset_name("other/papers")


def test_data_with_gaps_are_trained_on_only_if_it_is_said_how(ours):
    folder = write_web(ours / "lab/papers")
    lines = (folder / "nodes.csv").read_text().splitlines()
    lines[6] = "1,0.1,,0.3,0.4"
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(
        UserError, match=r"missing values in column 1 \(1 of 60 nodes\) of x.*--set features.missing=mean"
    ):
        run("mlp", "lab/papers")
    columns = PackedDataset.open("data/packed/papers").header.provenance["columns"]
    assert [column["missing"] for column in columns if column["name"] == "b"] == [1]
    assert not list(Path("store").glob("*/*/record.json"))
    for how, width in (("mean", 4), ("indicator", 5)):
        found = run("gcn", "papers", {"features.missing": how})
        assert found.row["status"] == "ok"
        record = Store().get(found.row["digests"][0])
        assert record["measured"]["arguments"]["in_dim"] == width


def test_frames_and_networkx_graphs(ours, capsys):
    import networkx as nx
    import pandas as pd

    folder = write_web(ours / "raw_papers")
    nodes, edges = (pd.read_csv(folder / f"{table}.csv") for table in ("nodes", "edges"))
    nodes["year"] = [90 + i % 20 for i in range(60)]
    data = {"nodes": nodes, "edges": edges}
    name = store_data(data, "shop", Description.parsed({"split": "temporal:year:105,107"}, "test"))
    assert entry_of("shop")["source"] == "data/own/shop"
    assert sorted(path.name for path in Path("data/own/shop").iterdir()) == ["edges.parquet", "nodes.parquet"]
    assert get_spec(name).task == "node-classification"
    before = get_spec(name).digest
    store_data(data, "shop")
    assert get_spec(name).digest == before, "the same data, and the split that was stated"
    other = {"nodes": nodes[::-1].reset_index(drop=True), "edges": edges}
    with pytest.raises(DatasetError):
        store_data(other, "shop")
    assert get_spec(name).digest == before
    assert prepare(name).state == "packed", "the earlier data are still there"
    store_data(other, "shop", Description.parsed({"split": "temporal:year"}, "test"))
    assert get_spec(name).digest != before
    net = nx.from_pandas_edgelist(edges, create_using=nx.DiGraph)
    nx.set_node_attributes(net, {node: int(row["y"]) for node, row in nodes.to_dict("index").items()}, "y")
    assert get_spec(store_data(net, "net")).task == "node-classification"
    with pytest.raises(
        DatasetError, match="'shop' is taken in datasets.yaml by data/own/shop; give another name: evaluate"
    ):
        store_data(graph(), "shop")


def test_a_function_may_return_frames(ours):
    write_web(ours / "raw_papers")
    write("lab/shop.py", """
        import pandas as pd

        def load():
            return {name: pd.read_csv(f"raw_papers/{name}.csv") for name in ("nodes", "edges")}
    """)  # fmt: skip
    name = dataset_name("lab/shop.py:load", Description.parsed({"split": "k-fold:4"}, "test"))
    assert get_spec(name).task == "node-classification"


# what is declared


def declared(**options) -> Description:
    return Description.parsed(options, "test")


def with_year(folder: Path) -> Path:
    rows = (folder / "nodes.csv").read_text().splitlines()
    lines = ["year," + rows[0], *(f"{90 + i % 20},{row}" for i, row in enumerate(rows[1:]))]
    (folder / "nodes.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"task": "graph-regression"},
        {"metric": "roc-auc"},
        {"split": "temporal:yaer"},
        {"split": "temporal:year:500,600"},
        {"split": "temporal"},
        {"split": "k-fold:100"},
        {"task": "graph-regression", "inductive": True},
        {"drop": "size"},
    ],
)
def test_what_the_data_do_not_fit_is_not_declared(ours, options):
    with_year(write_web(ours / "lab/papers"))
    with pytest.raises(UserError):
        dataset_name("lab/papers", declared(**options))
    assert not Path("datasets.yaml").exists()


def test_options_are_declared_once_for_the_same_content(ours):
    with_year(write_web(ours / "lab/papers"))
    name = dataset_name("lab/papers", declared(split="temporal:year:105,107", inductive=True))
    assert entry_of(name)["split"] == {"kind": "temporal", "column": "year", "cuts": [105, 107]}
    digest = get_spec(name).digest
    assert dataset_name("lab/papers") == name
    assert get_spec(name).digest == digest
    dataset_name("lab/papers", declared(metric="f1-macro"))
    assert (entry_of(name)["metric"], entry_of(name)["inductive"]) == ("f1-macro", True)
    dataset_name(
        "lab/papers", declared(inductive=False, undirected=True, negatives=7, task="link-prediction", split="random")
    )
    assert (entry_of(name)["metric"], entry_of(name)["undirected"]) == ("mrr", True)
    dataset_name("lab/papers", declared(task="node-regression"))
    assert "negatives" not in entry_of(name)
    assert entry_of(name)["metric"] == "mae"


@pytest.mark.parametrize("in_memory", [True, False])
def test_options_of_other_content_are_never_inherited(ours, in_memory):
    def declare(nodes: int, **options) -> str:
        if in_memory:
            return store_data(graph(nodes), "mine", declared(**options))
        np.savez("mine.npz", x=graph(nodes).x, edge_index=graph(nodes).edge_index, y=graph(nodes).y)
        return dataset_name("mine.npz", declared(**options))

    name = declare(30, undirected=True, split="k-fold:5")
    before = entry_of(name)
    with pytest.raises(DatasetError) as error:
        declare(40)
    assert "undirected" in str(error.value)
    assert "k-fold" in str(error.value)
    assert entry_of(name) == before
    if not in_memory:
        with pytest.raises(DatasetError):
            prepare(name)
    declare(40, undirected=False)
    assert entry_of(name)["undirected"] is False
    assert "split" not in entry_of(name)
    assert dataset_of(name).sizes.tolist() == [40]


def test_content_that_changes_without_options_is_read_again(ours):
    write_web(ours / "lab/papers")
    dataset_name("lab/papers")
    text = (ours / "lab/papers/nodes.csv").read_text()
    (ours / "lab/papers/nodes.csv").write_text(text.replace("\n0,", "\n1,"))
    assert dataset_of(dataset_name("lab/papers")).header.task == "node-classification"
    lines = [f"{row.replace(',', '.5,', 1) if i else row}" for i, row in enumerate(text.splitlines())]
    (ours / "lab/papers/nodes.csv").write_text("\n".join(lines))
    with pytest.raises(DatasetError):  # the targets are numbers now, and the task was of classes
        dataset_name("lab/papers")
    dataset_name("lab/papers", declared(task="node-regression"))
    assert dataset_of("papers").header.task == "node-regression"


def test_a_description_beside_the_data_declares(ours):
    folder = with_year(write_web(ours / "lab/papers"))
    (folder / "data.yaml").write_text("{target: a, drop: [y], split: temporal, time: year, undirected: true}\n")
    name = dataset_name("lab/papers")
    header = dataset_of(name).header
    assert (header.task, header.in_dim, header.statistics["symmetric"]) == ("node-regression", 3, True)
    assert entry_of(name).keys() == {"source", "made_from", "task", "metric"}
    write("lab/rings.py", LOAD)
    Path("lab/rings.data.yaml").write_text("metric: f1-macro\n")
    assert get_spec(dataset_name("lab/rings.py")).metric == "f1-macro"
    (folder / "data.yaml").write_text("{tagret: a}\n")
    with pytest.raises(UserError) as error:
        dataset_name("lab/papers")
    assert "data.yaml" in str(error.value)


@pytest.mark.parametrize(
    "options", [{"split": "k-fold:5"}, {"inductive": True}, {"metric": "mae"}, {"undirected": True}]
)
def test_a_dataset_of_the_benchmark_is_used_as_it_is_stored(ours, options):
    with pytest.raises(DatasetError):
        dataset_name("texas", declared(**options))
    assert dataset_name("texas", declared(task="node-classification")) == "texas"


def test_each_fold_is_tested_once(ours):
    write_web(ours / "lab/papers")
    found = try_pair("mlp", "lab/papers", FAST, data=declared(split="k-fold:3:0.25"), bar=False)
    assert found.row["runs"] == 3


def test_an_attribute_of_a_data_object_splits_it(ours):
    data = graph(60)
    data.year = torch.arange(60) // 3
    name = store_data(data, "web2", declared(split="temporal:year"))
    store_data(data, "web2")
    assert dataset_of(name).split("train").tolist() == list(range(36))
    del data.year
    with pytest.raises(DatasetError):
        store_data(data, "web2")
