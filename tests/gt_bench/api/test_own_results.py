"""Results of `gt-bench try` appear in every command, on the page, in `load_results`, and next to baselines."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gt_bench
from gt_bench.api.evaluate import Incompatible, try_pair
from gt_bench.cli.app import app
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset
from gt_bench.records.cell import CellNames
from gt_bench.store.run_store import Store
from gt_bench.tracking.descriptions import command_of
from gt_bench.utils.errors import DatasetError
from tests.conftest import ROOT
from tests.gt_bench.custom_data import write_web
from tests.refusals import refused

FAST = {"epochs": 3, "model.hidden_dim": 8}
GCN, MLP = "tried/web/gcn-epochs-3-hidden-dim-8", "tried/web/mlp-epochs-3-hidden-dim-8"


@pytest.fixture
def tried(ours):
    for model in ("gcn", "mlp"):
        try_pair(model, "web", FAST, [0, 1])
    return ours


def run(*words: str) -> str:
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, f"{words}: {shown.output} {shown.exception!r}"
    return shown.output


@pytest.mark.slow
def test_every_command_knows_what_was_tried(tried):
    assert "attempt 1" in run("history", GCN)
    assert "name: gcn" in run("board", GCN, "--recipe")
    listed = run("list", "tried")
    assert listed.count("tried/web/") == 4  # cells, and where their recipes are
    assert "to remove a cell of tried: rm CELL.yaml results/CELL.json" in listed
    assert [row["cell"] for row in json.loads(run("board", "tried", "--json"))] == [GCN, MLP]
    assert "gcn-epochs-3-hidden-dim-8" in run("board", "tried")
    assert "(second)" in run("compare", GCN, MLP)
    run("page", "--out", "page.html")
    page = Path("page.html").read_text()
    assert "gcn-epochs-3-hidden-dim-8" in page
    assert run("train", GCN).count("from the store") == 2
    try_pair("gcn", "web", FAST, [2, 3])
    assert "attempt 2" in run("history", GCN)
    assert "attempt 2" in run("diff", GCN)


def test_results_as_data(tried):
    results = gt_bench.load_results("tried")
    assert results[["cell", "source", "runs"]].values.tolist() == [[GCN, "own", 2], [MLP, "own", 2]]
    assert results.equals(gt_bench.load_results(dataset="web"))
    assert results["mean"].between(0, 1).all()
    assert (results["suite"] == "tried").all()
    with refused(RecipeError, place="dataset", value="wb"):
        gt_bench.load_results(dataset="wb")
    with refused(RecipeError, place="suite", value="web", remedy="use dataset='web'"):
        gt_bench.load_results("web")
    with pytest.raises(RecipeError, match="no suite named 'tride'"):
        gt_bench.load_results("tride")


def test_runs_as_data(tried):
    runs = gt_bench.load_runs("tried")
    assert runs[["cell", "seed", "status"]].values.tolist() == [
        [cell, seed, "ok"] for cell in (GCN, MLP) for seed in (0, 1)
    ]
    assert (runs["suite"] == "tried").all()
    assert (runs["dataset"] == "web").all()
    assert runs["model"].tolist() == [cell.split("/")[-1] for cell in runs["cell"]]
    assert (runs["epochs"] == [len(curves["epoch"]) for curves in runs["curves"]]).all()
    results = gt_bench.load_results("tried")
    assert [tests.tolist() for _, tests in runs.groupby("cell")["test"]] == results["values"].tolist()
    assert not {"recipe", "curves", "test_metrics", "cpu", "commit", "torch"} & {*runs.columns[runs.isna().any()]}


@pytest.mark.parametrize("load", [gt_bench.load_results, gt_bench.load_runs])
def test_without_results_a_table_has_all_columns(ours, load):
    assert load("tried").empty
    assert load("tried").columns.tolist() == load().columns.tolist()


@pytest.mark.slow
def test_baselines_by_the_same_protocol(ours):
    given = {**FAST, "optimizer.lr": 0.05, "patience": 2}
    found = try_pair("mlp", "web", given, [0, 1], against=["gcn", "gin"])
    assert {row["model"]: row["of"] for row in found.rows} == {
        "mlp-epochs-3-hidden-dim-8-lr-0.05-patience-2": "this run",
        "gcn-epochs-3-patience-2": "tried, own",
        "gin-epochs-3-patience-2": "tried, own",
    }
    assert all(row["against"] for row in found.rows if row["of"] != "this run")
    recipe = load_recipe("tried/web/gcn-epochs-3-patience-2.yaml")
    assert (recipe.epochs, recipe.patience, recipe.seeds, recipe.optimizer.lr) == (3, 2, [0, 1], 0.01)
    assert len(list(Store().records())) == 6


def test_baselines_that_cannot_be_are_refused_before_anything_is_trained(ours):
    with refused(OptionError, place="--against", value="gcn"):
        try_pair("gcn", "web", FAST, [0], against=["gcn"])
    with refused(Incompatible, place="model 'tokengt-attention'"):
        try_pair("gcn", "web", FAST, [0], against=["tokengt-attention"])
    assert not Path("store").exists()


def test_undirected_data_of_ones_own(ours, capsys):
    folder = write_web(ours / "lab/shop")
    run("try", "mlp", str(folder), "--seeds", "0", "--epochs", "2", "--undirected")
    assert "undirected: true" in Path("datasets.yaml").read_text()
    header = PackedDataset.open("data/packed/shop").header
    assert header.statistics["symmetric"]
    said = run("try", "mlp", str(folder), "--seeds", "0", "--epochs", "2")  # it is in datasets.yaml
    assert "symmetric" in said
    found = try_pair("mlp", str(folder), FAST, [0], data=Description(undirected=False))
    assert "directed: some have no reverse" in capsys.readouterr().out
    other = next(row for row in found.rows if row["of"] != "this run")
    assert other["against"] == "other data: not comparable"
    with refused(DatasetError, file="dataset 'texas'", place="undirected", value=True):
        try_pair("gcn", "texas", FAST, [0], data=Description(undirected=True))


@pytest.mark.slow
def test_a_search_prints_its_space_and_takes_another(ours, capsys):
    space = ["--space", "model.hidden_dim=4,8", "--space", "optimizer.lr=1e-3..1e-1:log"]
    said = run("try", "mlp", "web", "--seeds", "0", "--epochs", "2", "--search", "2", *space)
    assert "tried/web/mlp-epochs-2-searched: 2 trials over 24 points times 2 continuous keys:\n" in said
    assert "  model.hidden_dim        4,8\n" in said
    assert "  optimizer.lr            0.001..0.1:log\n" in said
    assert said.index("optimizer.lr  ") < said.index("trial 0")
    assert load_recipe("tuned/tried/web/mlp-epochs-2-searched.yaml").model.arguments["hidden_dim"] in (4, 8)
    assert "defaults: " in said  # the default width is outside this space
    cell = CellNames(cell="tried/web/mlp-epochs-2-searched", suite="tried", dataset="web", model="mlp")
    before = Path("tried/web/mlp-epochs-2-searched.yaml").read_bytes()
    run(*command_of(cell).split()[1:])
    assert Path("tried/web/mlp-epochs-2-searched.yaml").read_bytes() == before
    with refused(RecipeError, remedy="add --search TRIALS"):
        try_pair("mlp", "web", FAST, [0], space={"optimizer.lr": {"choices": [0.1]}})
    with refused(RecipeError, place="search.space.model.hiden"):
        try_pair("mlp", "web", {"epochs": 1}, [0], 2, space={"model.hiden": {"choices": [4]}})


def test_a_comparison_for_pandas_and_latex(tried):
    """The output also fits 100 columns."""
    found = try_pair("gcn", "web", FAST, [0, 1])
    frame = found.to_pandas()
    assert list(frame["of"]) == [row["of"] for row in found.rows]
    assert frame["mean"].tolist() == [row["mean"] for row in found.rows]
    printed = str(found).splitlines()
    assert max(map(len, printed)) <= 100
    assert all(row["model"][:8] in str(found) for row in found.rows)
    assert "difference [95 %]" in str(found)
    tex = found.to_latex()
    assert tex.startswith("\\begin{tabular}")
    assert tex.count(r"\\") == 3  # the head and two rows
    assert r"accuracy \%" in tex


@pytest.mark.slow
def test_every_command_with_results_prints_json_as_documented(tried, monkeypatch):
    """Each key of the JSON output is in docs/json_output.md; progress of `try` goes to standard error."""
    documented = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs/json_output.md").read_text()))
    found = {
        "history": json.loads(run("history", GCN, "--json"))[0],
        "list": json.loads(run("list", "tried", "--json"))["cells"][0],
        "board": json.loads(run("board", "tried", "--json"))[0],
        "compare": json.loads(run("compare", GCN, MLP, "--json", "--bayes"))["comparisons"][0],
        "table": json.loads(run("board", "--json"))[0],
        "entries": json.loads(run("board", "hot", "--table", "1", "--json"))["entries"][0],
    }
    try_pair("gcn", "web", FAST, [2, 3])
    found["diff"] = json.loads(run("diff", GCN, "--json"))
    options = ["--set", "epochs=3", "--set", "model.hidden_dim=8", "--json"]
    shown = CliRunner().invoke(app, ["try", "gcn", "web", "--seeds", "0", *options])
    made = json.loads(shown.stdout)
    assert "splits" in shown.stderr
    found |= {"try": made, "rows": made["rows"][0]}
    for command, content in found.items():
        assert not set(content) - documented, command
    assert (found["compare"]["pairs"], found["compare"]["interval"]) == (2, None)
    assert found["diff"]["before"]["seeds"] == 2
