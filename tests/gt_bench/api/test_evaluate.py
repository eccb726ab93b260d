"""`gt-bench try`: any model on any dataset with documented defaults, compared with known results; invalid pairs.

Results are stored in the same store as those of the grid.
"""

import csv
import sqlite3
import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from gt_bench.api.evaluate import Incompatible, save, try_pair
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.tried import TriedCell
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.train import train_cell
from gt_bench.plugins.default_recipes import recipe_of
from gt_bench.records.cell import CellNames
from gt_bench.reports.dataset_comparison import comparison
from gt_bench.store.run_store import Store
from gt_bench.tracking.descriptions import command_of, describe_run
from gt_bench.tracking.payload import tracked_run
from gt_bench.training.target_scaling import StandardisedTargets
from gt_bench.utils.errors import MissingPackage
from gt_models.registry import model_info
from tests.conftest import ROOT
from tests.gt_bench.cells import changed, make_result
from tests.gt_bench.conftest import header_of
from tests.gt_bench.custom_data import write_many
from tests.refusals import refused

FAST = {"epochs": 3, "model.hidden_dim": 8}
SHORT = ["--set", "epochs=3", "--set", "model.hidden_dim=8"]


@pytest.mark.slow
def test_a_pair_without_a_recipe(ours):
    shown = CliRunner().invoke(app, ["try", "gcn", "web", *SHORT, "--seeds", "0-1", "--save", "mine"])
    assert shown.exit_code == 0, shown.output
    assert "this run is number 1 of 1" in shown.output
    records = list(Store().records())
    assert sorted(r.run.seed for r in records) == [0, 1]
    saved = Path("suites/mine/recipes/web/gcn-epochs-3-hidden-dim-8.yaml")
    assert f"saved: {saved}" in shown.output
    recipe = load_recipe(saved)
    assert (recipe.epochs, recipe.seeds, recipe.model.arguments["hidden_dim"]) == (3, [0, 1], 8)
    assert recipe.origin["epochs"] == "chosen: by --set"
    assert load_grid().find("mine/web/gcn-epochs-3-hidden-dim-8").dataset == "web"
    # the saved recipe is the one that was run: its runs are already in the store
    grid = load_grid()
    result = train_cell(grid.find("mine/web/gcn-epochs-3-hidden-dim-8"), grid, bar=False)
    assert set(result.runs) == {r.digest for r in records}
    assert len(list(Store().records())) == 2


@pytest.mark.parametrize(
    ("given", "space", "place"),
    [
        ({"model.hiden_dim": 3}, None, "model.hiden_dim"),
        ({"epoch": 3}, None, "epoch"),
        ({}, {"model.hiden": {"choices": [1, 2]}}, "search.space.model.hiden"),
    ],
)
def test_a_wrong_key_is_refused_before_a_download(tmp_path, monkeypatch, capsys, given, space, place):
    monkeypatch.chdir(tmp_path)
    with refused(RecipeError, place=place):
        try_pair("gcn", "cornell", given, None, 2 if space else None, space=space)
    assert not Path("data").exists()
    assert capsys.readouterr().out == ""


def test_every_variant_stays_in_the_table(ours):
    try_pair("mlp", "web", FAST, [0, 1])
    found = try_pair("gcn", "web", FAST, [0])
    assert [row["model"] for row in found.rows if row["of"] == "this run"] == ["gcn-epochs-3-hidden-dim-8"]
    assert {row["of"] for row in found.rows} == {"this run", "tried, own"}
    assert next(row["against"] for row in found.rows if row["of"] != "this run") == "too few runs"
    means = [row["mean"] for row in found.rows]
    assert means == sorted(means, reverse=True)
    assert found.mean == found.row["mean"]
    assert "<table>" in found._repr_html_()
    assert str(found).startswith("web: this run is number ")


def test_numbers_in_another_unit_are_not_ranked_together(ours):
    raw = try_pair("mlp", "many", FAST | {"targets": None}, [0])
    assert raw.unit == ""
    found = try_pair("mlp", "many", FAST, [0])
    assert found.row["targets"] == "train"  # the default for user-supplied data
    others = [(found.row["model"], None), (raw.row["model"], None)]
    assert [(row["model"], row["against"]) for row in found.rows] == others
    assert [texts[2] for texts in found.texts()] == ["mae / σ", "mae"]
    assert "this run is number 1 of 1" in str(found)
    assert found.unit.startswith("mae / σ: in standard deviations of the training targets")
    assert found.unit in str(found)
    shown = CliRunner().invoke(app, ["try", "mlp", "many", *SHORT, "--seeds", "0"])
    assert found.unit in shown.output


def test_whole_numbers_are_quantities_where_that_is_stated(ours):
    """Whole numbers are standardised like others; as integers they would be rounded to 0 and 1."""
    (write_many(ours / "lab/counts") / "graphs.csv").write_text("y\n" + "".join(f"{20 + i}\n" for i in range(30)))
    found = try_pair("mlp", "lab/counts", FAST, [0], data=Description(task="graph-regression", metric="mae"))
    assert found.row["status"] == "ok"
    packed = PackedDataset.open(Path("data/packed/counts"))
    y = StandardisedTargets(packed, "all", 0).batch(torch.arange(30)).y
    torch.testing.assert_close(y, ((torch.arange(30) - 14.5) / torch.arange(30).double().std()).float())


def test_only_data_of_ones_own_have_their_targets_standardised():
    about = {"level": "graph", "in_dim": 4, "out_dim": 1, "split_kind": "graph", "num_splits": 1}
    for provenance, targets in (({"arguments": {"content": "0"}}, "train"), ({"arguments": {}}, None), ({}, None)):
        header = header_of("mine", "graph-regression", provenance=provenance, **about)
        assert recipe_of(model_info("gcn"), header, {}, None, None).targets == targets


@pytest.mark.slow
def test_shipped_numbers_are_listed_next_to_it(ours, monkeypatch):
    grid = load_grid(ROOT / "params.yaml")
    cell = TriedCell(key="tried-texas-x", cell="tried/texas/x", dataset="texas", model="x", settings="recipes")
    result = changed(make_result(cell.cell, []), status="diverged", seeds=[0], recipe={})
    monkeypatch.chdir(ROOT)
    stored, papers = (
        gather(grid, ours / "results", ours / "store", ROOT / "suites"),
        (ours / "results", ROOT / "suites"),
    )
    found = comparison(cell, result, grid, "x", ours / "store", stored, *papers)
    assert any(row["of"] == "edge-transformer, shipped" for row in found.rows)
    assert found.mean is None
    assert "this run has no number" in str(found)


@pytest.mark.slow
def test_encodings_are_as_wide_as_the_model_reads(ours):
    found = try_pair("tokengt", "many", {"epochs": 1, "model.num_layers": 1, "model.node_id_dim": 3}, [0])
    assert load_recipe(found.recipe).encodings == {"laplacian": {"k": 3}}
    assert found.row["status"] == "ok"


def test_an_encoding_that_needs_more_than_a_width_is_requested(ours):
    with refused(RecipeError, file="gt-bench try nagphormer web", place="encodings"):
        try_pair("nagphormer", "web", {"epochs": 1, "model.hops": 5}, [0])


@pytest.mark.slow
def test_a_search_begins_with_the_defaults(ours, capsys):
    found = try_pair("mlp", "web", {"epochs": 2}, [0], 2)
    with Path("tuned/tried/web/mlp-epochs-2-searched.csv").open() as file:
        first, other = csv.DictReader(file)
    assert (first["origin"], other["origin"]) == ("defaults: tried/web/mlp-epochs-2-searched", "")
    assert float(first["optimizer.lr"]) == load_recipe("tried/web/mlp-epochs-2-searched.yaml").optimizer.lr
    assert f"defaults: trial 0, validation {float(first['value']):.4f}" in capsys.readouterr().out
    chosen = load_recipe(found.recipe)
    assert found.recipe == "tuned/tried/web/mlp-epochs-2-searched.yaml"
    assert chosen.origin["optimizer.lr"].startswith("tuned: trial")
    assert found.row["status"] == "ok"


@pytest.mark.slow
def test_an_experiment_of_its_own(ours):
    Path("params.yaml").write_text("run: {parallel: 1}\n")
    try_pair("mlp", "web", FAST, [0])
    with sqlite3.connect("mlruns/mlflow.db") as database:
        assert ("tried",) in database.execute("select name from experiments").fetchall()


@pytest.mark.parametrize(
    ("model", "dataset", "level"),
    [("s2g", "web", "node"), ("gcn", "delaunay-50", "pair"), ("tokengt-attention", "texas", "node")],
)
def test_a_model_of_another_level_is_refused(ours, model, dataset, level):
    with refused(Incompatible, place=f"model {model!r}", value=level):
        try_pair(model, dataset)


ALL_SEARCHED = ("optimizer.lr", "optimizer.weight_decay", "model.hidden_dim", "model.num_layers", "model.dropout")
WRONG = [
    ("gcn", {"optimizer.lrr": 0.1}, None, RecipeError, "optimizer.lrr", "did you mean 'lr'?"),
    ("gcn", {"model.hidden": 3}, None, RecipeError, "model.hidden", "did you mean 'hidden_dim'?"),
    ("gcn", {"epochs.x": 3}, None, OptionError, "--set", "epochs is a value, not a section"),
    ("gcn", {"model.name": "mlp"}, None, OptionError, "--set", "the model is what the command names first"),
    # a model that is built during its run
    ("mlp", {"model.hidden_dim": -4}, None, RecipeError, "model", "negative dimension -4"),
    # one whose encodings are requested before
    ("tokengt", {"model.hidden_dim": -4}, None, RecipeError, "model", "hidden_dim is -4"),
    ("gcn", {"model.hidden_dim": 0}, None, RecipeError, "model", "hidden_dim is 0"),
    ("appnp", {"model.hidden_dim": 0}, None, RecipeError, "model", "has no entries (given: hidden_dim: 0)"),
    ("polynormer", {"phases": [{"name": "warmup", "epochs": 1}]}, None, RecipeError, "phases", "not 'warmup'"),
    ("mlp", {"phases": [{"name": "local", "epochs": 1}], "patience": None}, None, RecipeError, "phases",
     "model 'mlp' does not support phases"),
    ("gcn", {"loss": "bce"}, None, RecipeError, "", "loss 'bce'"),
    ("gcn", dict.fromkeys(ALL_SEARCHED, 1), 2, OptionError, "--search", "nothing is left to search"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "given", "trials", "kind", "place", "problem"), WRONG)
def test_settings_that_a_pair_cannot_have_are_refused(ours, model, given, trials, kind, place, problem):
    with refused(kind, place=place) as error:
        try_pair(model, "web", given if "phases" in given else {"epochs": 1} | given, [0], trials)
    assert problem in error.value.problem
    assert not list(Store().records())


@pytest.mark.parametrize("suite", ["../evil", "", "Mine", "a b"])
def test_an_invalid_save_is_refused_before_anything_is_trained(ours, suite):
    shown = CliRunner().invoke(app, ["try", "mlp", "web", "--save", suite])
    assert str(shown.exception) == f"--save {suite}: a name of a suite has lower-case letters, digits and dashes"
    assert not Path("store").exists()


def test_another_recipe_is_not_written_over(ours):
    found = try_pair("mlp", "web", FAST, [0])
    path = save(found.recipe, "mine")
    assert save(found.recipe, "mine") == path
    content = yaml.safe_load(path.read_text()) | {"epochs": 4}
    path.write_text(yaml.safe_dump(content))
    with refused(RecipeError, file=str(path), problem="another recipe exists"):
        save(found.recipe, "mine")
    with refused(OptionError, place="--save", value="My Suite"):
        save(found.recipe, "My Suite")


def test_a_search_without_optuna_is_one_line_before_any_work(ours, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with refused(MissingPackage, value="optuna"):
        try_pair("gcn", "web", FAST, [0], trials=2)
    assert not Path("data").exists()


def test_without_mlflow_one_line_reports_it_once(ours, monkeypatch, capsys):
    monkeypatch.setattr("gt_bench.tracking.uri.find_spec", lambda _: None)
    Path("params.yaml").write_text("run: {parallel: 1}\n")
    for seeds in ([0], [0], [1]):
        try_pair("mlp", "web", FAST, seeds)
    said = capsys.readouterr().err
    assert said.count("python -m pip install mlflow") == said.count("MLflow") == 1


def test_the_page_of_a_tried_run_names_what_exists(ours):
    given = FAST | {"optimizer.lr": 0.02}
    found = try_pair("gcn", "web", given, [0, 2])
    record = next(Store().records())
    cell = CellNames(cell=found.recipe.removesuffix(".yaml"), suite="tried", dataset="web", model="gcn")
    command = command_of(cell)
    assert command == "gt-bench try gcn web --seeds 0,2 --set epochs=3 --set model.hidden_dim=8 --set optimizer.lr=0.02"
    shown = CliRunner().invoke(app, command.split()[1:])
    assert shown.exit_code == 0, shown.output
    assert len(list(Store().records())) == 2, "the same runs"
    page = describe_run(cell, record, True, Path(found.recipe))
    assert f"Reproduce: `{command}`" in page
    assert f"Recipe: `{found.recipe}`" in page
    assert "gt-bench score" not in page
    source = tracked_run(cell, record).tags["mlflow.source.name"]
    assert Path(source).is_file()
    Path(found.recipe).unlink()
    assert command_of(cell) == "gt-bench try MODEL web"
