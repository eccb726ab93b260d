"""What is stated of a user-supplied dataset (task, metric, split): stored in datasets.yaml, if the data fit it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from gt_bench.api.evaluate import try_pair
from gt_bench.data.prepare import prepare
from gt_bench.data.registry import get_spec
from gt_bench.plugins.data_options import DataOptions
from gt_bench.plugins.datasets import dataset_name, store_data
from gt_bench.utils.errors import DatasetError, UserError
from tests.gt_bench.custom_data import write_many, write_web
from tests.gt_bench.plugins.cases import dataset_of, entry_of, graph, run


def test_a_task_that_is_stated(ours):
    folder = write_many(ours / "lab/mine")
    (folder / "graphs.csv").write_text("y\n" + "".join(f"{i}\n" for i in range(30)))
    assert get_spec(dataset_name("lab/mine", DataOptions(task="graph-regression", metric="mse"))).metric == "mse"


@pytest.mark.slow
def test_a_task_that_the_data_do_not_fit_is_not_stored(ours):
    write_web(ours / "lab/papers")
    for name, says in (
        ("lab/papers", "lab/papers/graphs.csv: no such file"),
        ("papers", "has the task node-classification, not graph-regression"),
    ):
        with pytest.raises(DatasetError, match=says):
            run("mlp", name, data=DataOptions(task="graph-regression"))
        assert run("mlp", "lab/papers").row["status"] == "ok"
    with pytest.raises(DatasetError, match="dataset 'web' has the metric accuracy, not mae"):
        run("mlp", "web", data=DataOptions(metric="mae"))


def test_a_metric_that_the_data_do_not_fit_is_not_stored(ours):
    write_web(ours / "lab/papers")
    with pytest.raises(DatasetError, match="the metric roc-auc needs two classes; the targets have 3"):
        dataset_name("lab/papers", DataOptions(metric="roc-auc"))
    assert get_spec(dataset_name("lab/papers")).metric == "accuracy"


def test_labels_as_floats_are_classes_where_that_is_stated(ours):
    folder = write_many(ours / "lab/mine")
    (folder / "graphs.csv").write_text("y\n" + "".join(f"{i % 2}.0\n" for i in range(29)) + "nan\n")
    header = prepare(dataset_name("lab/mine")).header
    assert header.task == "graph-regression"
    (note,) = (note for note in header.notes if "all targets are whole numbers (0, 1)" in note)
    assert "--task graph-classification" in note
    header = prepare(dataset_name("lab/mine", DataOptions(task="graph-classification"))).header
    assert (header.out_dim, header.statistics["label_counts"], header.statistics["unlabelled"]) == (2, [15, 14], 1)


def with_year(folder: Path) -> Path:
    rows = (folder / "nodes.csv").read_text().splitlines()
    (folder / "nodes.csv").write_text(
        "\n".join(["year," + rows[0], *(f"{90 + i % 20},{row}" for i, row in enumerate(rows[1:]))])
    )
    return folder


def test_a_split_is_stated_once_and_kept(ours, capsys):
    with_year(write_web(ours / "lab/papers"))
    name = dataset_name("lab/papers", DataOptions.parsed({"split": "temporal:year:105,107", "inductive": True}))
    assert "papers': node-classification, accuracy, inductive (datasets.yaml)" in capsys.readouterr().out
    assert entry_of(name)["split"] == {"kind": "temporal", "column": "year", "cuts": [105, 107]}
    digest = get_spec(name).digest
    assert dataset_name("lab/papers") == name
    assert get_spec(name).digest == digest, "as it was stated"
    dataset_name("lab/papers", DataOptions(metric="f1-macro"))
    entry = entry_of(name)
    assert (entry["metric"], entry["inductive"], entry["split"]["cuts"]) == ("f1-macro", True, [105, 107])
    dataset_name("lab/papers", DataOptions.parsed({"split": "grouped:year", "inductive": False}))
    entry = entry_of(name)
    assert "inductive" not in entry
    assert entry["split"] == {"kind": "grouped", "column": "year"}


def test_what_is_not_stated_again_stays(ours):
    """Another split or direction changes neither the task, nor the metric, nor the number of negatives."""
    with_year(write_web(ours / "lab/papers"))
    name = dataset_name("lab/papers", DataOptions(task="node-regression", metric="rmse"))
    dataset_name("lab/papers", DataOptions.parsed({"split": "temporal:year", "undirected": True}))
    assert (entry_of(name)["task"], entry_of(name)["metric"]) == ("node-regression", "rmse")
    dataset_name("lab/papers", DataOptions.parsed({"task": "link-prediction", "split": "random"}))
    assert entry_of(name)["metric"] == "mrr", "the metric of another task is not used"
    content = yaml.safe_load(Path("datasets.yaml").read_text())
    content[name] = {**content[name], "negatives": 7, "metric": "hits@5"}
    Path("datasets.yaml").write_text(yaml.safe_dump(content))
    dataset_name("lab/papers", DataOptions.parsed({"split": "random:0.5,0.25,0.25"}))
    assert (entry_of(name)["negatives"], entry_of(name)["metric"]) == (7, "hits@5")
    dataset_name("lab/papers", DataOptions(task="node-classification"))
    assert "negatives" not in entry_of(name)


def test_data_of_a_program_are_read_for_the_task_of_datasets_yaml(ours):
    """Links have no y: without the stored task, the targets would be looked for."""
    data = graph(60)
    del data.y
    name = store_data(data, "friends", DataOptions(task="link-prediction"))
    data.x = data.x + 1
    store_data(data, name)
    assert dataset_of(name).header.task == "link-prediction"
    np.testing.assert_array_equal(dataset_of(name).array("x").numpy(), data.x.numpy())


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"split": "temporal:yaer"}, "no column 'yaer' for the split (did you mean 'year'?); it has: year, a, b, c, d"),
        ({"split": "temporal:year:500,600"}, "the val part is empty: column year goes from 90 to 109"),
        ({"split": "temporal"}, "--split temporal: the column is missing; expected random"),
        ({"split": "k-fold:100"}, "100 folds of 60 nodes with a target; use at most 60"),
        ({"task": "graph-regression", "inductive": True}, "inductive is for targets of nodes"),
    ],
)
def test_a_split_that_the_data_do_not_have_is_not_kept(ours, said, says):
    with_year(write_web(ours / "lab/papers"))
    with pytest.raises(UserError) as error:
        dataset_name("lab/papers", DataOptions.parsed(said))
    assert says in str(error.value)
    assert not Path("datasets.yaml").exists()


def test_a_dataset_of_the_benchmark_keeps_its_split(ours):
    for said, says in (
        ({"split": "k-fold:5"}, "'web' has its own split"),
        ({"inductive": True}, "'web' is used as it is stored"),
    ):
        with pytest.raises(DatasetError, match=says):
            run("mlp", "web", data=DataOptions.parsed(said))


def test_each_fold_is_tested_once(ours):
    write_web(ours / "lab/papers")
    folds = DataOptions.parsed({"split": "k-fold:3:0.25"})
    found = try_pair("mlp", "lab/papers", {"epochs": 1, "model.hidden_dim": 8}, data=folds, bar=False)
    assert found.row["runs"] == 3
    (path,) = Path("tried/papers").glob("*.yaml")
    assert yaml.safe_load(path.read_text())["seeds"] == [0, 1, 2]


def test_an_attribute_of_a_data_object_splits_it(ours):
    data = graph(60)
    data.year = torch.arange(60) // 3
    name = store_data(data, "web2", DataOptions.parsed({"split": "temporal:year"}))
    assert "split.year" in np.load("data/own/web2.npz")
    store_data(data, "web2")
    assert dataset_of(name).split("train").tolist() == list(range(36))
    del data.year
    with pytest.raises(DatasetError, match="web2: graph 0: no column 'year' for the split"):
        store_data(data, "web2")
