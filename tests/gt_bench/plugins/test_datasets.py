"""User-supplied datasets: how they are found, and the error message for each mistake."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch_geometric.data import Batch

from gt_bench.api.evaluate import try_pair
from gt_bench.config.grid import load_grid
from gt_bench.config.tried import with_tried
from gt_bench.data.custom.description import Description
from gt_bench.data.declared import spec_from
from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import get_spec
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.train import train_cell
from gt_bench.plugins.datasets import dataset_name, store_data
from gt_bench.scheduling.planner import plan
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import DatasetError, UserError
from tests.gt_bench.custom_data import write_web
from tests.gt_bench.plugins.cases import FAST, dataset_of, entry_of, graph, run
from tests.gt_bench.user_models import forgotten, install, write  # noqa: F401 - a fixture
from tests.refusals import refused

LOAD = """
    import torch
    from torch_geometric.data import Data

    def load():
        return Data(x=torch.randn(30, 4), edge_index=torch.randint(0, 30, (2, 60)), y=torch.arange(30) % 3)
"""


def declared(**options) -> Description:
    return Description.parsed(options, "test")


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
    assert train_cell(grid.find(cell), grid, bar=False).runs == found.row["digests"]
    assert plan([grid.find(cell)], grid, measure=False).missing == []
    text = Path(file).read_text()
    assert change[0] in text
    Path(file).write_text(text.replace(*change))
    with refused(DatasetError, file="dataset 'papers'"):
        train_cell(grid.find(cell), grid, bar=False)
    planned = plan([grid.find(cell)], grid, measure=False)
    assert (len(planned.missing), planned.data) == (1, ["papers"])
    assert run("gcn", "papers").row["status"] == "ok"
    rows = {row.model.partition("-")[0]: row for row in gather(with_tried(load_grid())).rows}
    assert (rows["gcn"].state.stale, [*map(str, rows["mlp"].state.stale)]) == ([], ["data"])
    assert run("mlp", "papers").row["digests"] != found.row["digests"]
    assert not any(row.state.stale for row in gather(with_tried(load_grid())).rows)
    assert train_cell(grid.find(cell), grid, bar=False).status == "ok"


def test_a_function_is_called_again_because_what_it_reads_may_have_changed(ours):
    head = "def load():\n        torch.manual_seed(0)\n        n = int(open('lab/size.txt').read())"
    write("lab/rings.py", LOAD.replace("30", "n").replace("def load():", head))
    digests = []
    for size in (30, 30, 24):
        Path("lab/size.txt").write_text(str(size))
        packed = dataset_of(dataset_name("lab/rings.py"))
        assert packed.sizes.tolist() == [size]
        digests.append(packed.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_source_is_one_however_its_path_is_written(ours):
    write_web(ours / "lab/papers")
    forms = ("lab/papers", "lab/papers/", "./lab/papers", str(ours / "lab/papers"))
    assert {dataset_name(text) for text in forms} == {"papers"}
    assert len(yaml.safe_load(Path("datasets.yaml").read_text())) == 1
    write_web(ours / "other/papers", nodes=40)
    with refused(DatasetError, file="other/papers", value="papers"):  # the name is taken
        dataset_name("other/papers")


def test_an_entry_that_is_none_is_named(ours):
    write_web(ours / "lab/papers")
    dataset_name("lab/papers")
    Path("datasets.yaml").write_text("\n")  # its last entry was removed
    assert dataset_name("lab/papers") == "papers"
    Path("datasets.yaml").write_text("papers: 3\n")
    for text in ("lab/papers", "papers"):
        with refused(UserError, file="datasets.yaml", place="papers", value=3):
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


def test_names_stay_in_their_folders(ours):
    for name in ("../evil", "", "a/b", ".hidden"):
        with refused(DatasetError, value=name):
            store_data(graph(), name)
    for text, value in (("pyg:Planetoid/../../evil", "../../evil"), ("pyg:Planetoid//etc", "/etc")):
        with refused(DatasetError, value=value):
            dataset_name(text)
    assert not list(ours.rglob("*evil*"))
    assert not Path("data").exists()
    for name in ("é Größe", "日本"):
        write_web(ours / "lab" / name)
    assert dataset_name("lab/é Größe") == "e-groe"
    with refused(DatasetError, file="lab/日本", remedy="rename that"):
        dataset_name("lab/日本")


@pytest.mark.parametrize(
    "data",
    [lambda: graph(), lambda: [graph(), graph(20)], lambda: Batch.from_data_list([graph(), graph(20)]),
     lambda: (graph(n) for n in (30, 20, 10))],
    ids=["data", "list", "batch", "iterator"],
)  # fmt: skip
def test_data_in_hand(ours, data):
    name = store_data(data(), "mine")
    assert get_spec(name).task == "node-classification"
    packed = dataset_of(name)
    assert packed.sizes.tolist() == [30, 20, 10][: packed.num_graphs]
    torch.testing.assert_close(packed.batch(torch.tensor([0])).x, graph().x)


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
    with refused(DatasetError, file="the entry point acme-bad = 'acme:nothing' of acme (group gt_bench.datasets)"):
        get_spec("acme-bad")
    with refused(DatasetError, file="the entry point texas = 'acme:load' of acme (group gt_bench.datasets)"):
        dataset_name("texas")


@pytest.mark.parametrize(
    ("text", "source", "file", "place"),
    [
        ("nowhere.npz", None, "nowhere.npz", ""),
        ("lab/nodes.csv", "a,y\n", "lab/nodes.csv", ""),
        ("lab/a.py", LOAD.replace("import torch\n", "import sys\n    sys.exit(3)\n"), "lab/a.py", "line 2"),
        ("lab/a.py", LOAD.replace("return Data(", "exit(Data)("), "lab/a.py", "line 5"),
        ("pyg:Planetiod/Cora", None, "pyg:Planetiod/Cora", ""),
        ("lab/a.py:laod", LOAD, "lab/a.py", ""),
        ("lab/a.py", LOAD.replace("def load", "def load(: #"), "lab/a.py", "line 4"),
        ("lab/a.py", LOAD.replace("torch.arange(30) % 3", "torch.arange(30) % 3 + missing"), "lab/a.py", "line 5"),
        ("lab/a.py", LOAD.replace("return Data(", "return dict("), "lab/a.py:load", ""),
        ("lab/a.py", LOAD.replace("return Data(", "return [] and Data("), "lab/a.py:load", ""),
        ("lab/a.py", LOAD.replace("return Data(", "Data("), "lab/a.py:load", ""),
        ("lab/texas.py", LOAD, "lab/texas.py", ""),
        ("lab/a.py", LOAD.replace("torch.arange(30) % 3", "torch.eye(30)"), "lab/a.py:load", ""),
    ],
)
def test_sources_that_are_no_dataset(ours, text, source, file, place):
    if source:
        write(text.partition(":")[0], source)
    with refused(UserError, file=file, place=place):
        dataset_name(text)


def test_data_with_gaps_are_trained_on_only_if_it_is_said_how(ours):
    folder = write_web(ours / "lab/papers")
    lines = (folder / "nodes.csv").read_text().splitlines()
    lines[6] = "1,0.1,,0.3,0.4"
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="--set features.missing=mean"):
        run("mlp", "lab/papers")
    columns = PackedDataset.open("data/packed/papers").header.provenance["columns"]
    assert [column["missing"] for column in columns if column["name"] == "b"] == [1]
    assert not list(Path("store").glob("*/*/record.json"))
    for how, width in (("mean", 4), ("indicator", 5)):
        found = run("gcn", "papers", {"features.missing": how})
        assert found.row["status"] == "ok"
        record = Store().get(found.row["digests"][0])
        assert record.measured.arguments["in_dim"] == width


def test_frames_and_networkx_graphs(ours, capsys):
    import networkx as nx
    import pandas as pd

    folder = write_web(ours / "raw_papers")
    nodes, edges = (pd.read_csv(folder / f"{table}.csv") for table in ("nodes", "edges"))
    nodes["year"] = [90 + i % 20 for i in range(60)]
    data = {"nodes": nodes, "edges": edges}
    name = store_data(data, "shop", declared(split="temporal:year:105,107"))
    assert entry_of("shop")["source"] == "data/own/shop"
    assert sorted(path.name for path in Path("data/own/shop").iterdir()) == ["edges.parquet", "nodes.parquet"]
    assert get_spec(name).task == "node-classification"
    before = get_spec(name).digest
    store_data(data, "shop")
    assert get_spec(name).digest == before, "the same data, and the split that was stated"
    other = {"nodes": nodes[::-1].reset_index(drop=True), "edges": edges}
    with refused(DatasetError, file="dataset 'shop'") as error:
        store_data(other, "shop")
    assert "the data are not those for which datasets.yaml says" in error.value.problem
    assert get_spec(name).digest == before
    assert prepare(name).state == "packed", "the earlier data are still there"
    store_data(other, "shop", declared(split="temporal:year"))
    assert get_spec(name).digest != before
    net = nx.from_pandas_edgelist(edges, create_using=nx.DiGraph)
    nx.set_node_attributes(net, {node: int(row["y"]) for node, row in nodes.to_dict("index").items()}, "y")
    assert get_spec(store_data(net, "net")).task == "node-classification"
    with refused(DatasetError, value="shop"):
        store_data(graph(), "shop")


def test_a_function_may_return_frames(ours):
    write_web(ours / "raw_papers")
    body = 'return {name: pd.read_csv(f"raw_papers/{name}.csv") for name in ("nodes", "edges")}'
    write("lab/shop.py", f"import pandas as pd\n\ndef load():\n    {body}\n")
    assert get_spec(dataset_name("lab/shop.py:load", declared(split="k-fold:4"))).task == "node-classification"


# what is declared


def with_year(folder: Path) -> Path:
    rows = (folder / "nodes.csv").read_text().splitlines()
    lines = ["year," + rows[0], *(f"{90 + i % 20},{row}" for i, row in enumerate(rows[1:]))]
    (folder / "nodes.csv").write_text("\n".join(lines))
    return folder


def test_a_declaration_that_contradicts_the_data_is_refused(ours):
    with_year(write_web(ours / "lab/papers"))
    with refused(DatasetError, place="time", value="yaer"):
        dataset_name("lab/papers", declared(split="temporal:yaer"))
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
    options = {"inductive": False, "undirected": True, "negatives": 7, "task": "link-prediction", "split": "random"}
    dataset_name("lab/papers", declared(**options))
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
        with refused(DatasetError, file="dataset 'mine'") as error:
            prepare(name)
        assert "the data are not those for which datasets.yaml says undirected: True" in error.value.problem
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
    # the targets are numbers now, and the task was of classes
    with refused(DatasetError, file="dataset 'papers'") as error:
        dataset_name("lab/papers")
    assert "for which datasets.yaml says task: node-classification" in error.value.problem
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
    ("place", "value"), [("split", "k-fold:5"), ("inductive", True), ("metric", "mae"), ("undirected", True)]
)
def test_a_dataset_of_the_benchmark_is_used_as_it_is_stored(ours, place, value):
    with refused(DatasetError, file="dataset 'texas'", place=place):
        dataset_name("texas", declared(**{place: value}))
    assert dataset_name("texas", declared(task="node-classification")) == "texas"


def test_each_fold_is_tested_once(ours):
    write_web(ours / "lab/papers")
    found = try_pair("mlp", "lab/papers", FAST, data=declared(split="k-fold:3:0.25"))
    assert found.row["runs"] == 3


def test_data_in_place_of_others_are_announced(ours, capsys):
    for nodes in (30, 30, 20):
        store_data(graph(nodes), "mine")
    assert [", in place of other data: " in line for line in capsys.readouterr().out.splitlines()] == [False, True]


def test_options_of_a_name_are_those_of_its_path(ours):
    write_web(ours / "lab/papers")
    name = dataset_name("lab/papers")
    with refused(DatasetError, file="lab/papers/nodes.csv", value="lable"):
        dataset_name(name, Description(target=("lable",)))
    assert dataset_name(name, Description(undirected=True)) == name
    assert get_spec(name).arguments["reader"].description.undirected
