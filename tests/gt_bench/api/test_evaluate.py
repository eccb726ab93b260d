"""`gt-bench try`: any model on any dataset with documented defaults, compared with known results; invalid pairs.

Results are stored in the same store as those of the grid.
"""

import json
import sqlite3
import sys
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from gt_bench.api.evaluate import Incompatible, try_pair
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset, PackedHeader
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.plugins.default_recipes import recipe_of
from gt_bench.schemas import Named
from gt_bench.store.run_store import Store
from gt_bench.training.target_scaling import StandardisedTargets
from gt_bench.utils.errors import UserError
from gt_models.registry import list_models, model_info
from tests.gt_bench.custom_data import write_many, write_web

FAST = {"epochs": 3, "model.hidden_dim": 8}


@pytest.mark.slow
def test_a_pair_without_a_recipe(ours):
    arguments = ["try", "gcn", "web", "--seeds", "0-1", "--set", "epochs=3", "--set", "model.hidden_dim=8"]
    shown = CliRunner().invoke(app, [*arguments, "--save", "mine"])
    assert shown.exit_code == 0, shown.output
    assert "this run is number 1 of 1" in shown.output
    records = list(Store().records())
    assert sorted(r["deterministic"]["seed"] for r in records) == [0, 1]
    saved = Path("suites/mine/recipes/web/gcn-epochs-3-hidden-dim-8.yaml")
    assert f"saved: {saved}" in shown.output
    recipe = load_recipe(saved)
    assert (recipe.epochs, recipe.seeds, recipe.model.arguments["hidden_dim"]) == (3, [0, 1], 8)
    assert recipe.origin["epochs"] == "chosen: by --set"
    assert load_grid().find("mine/web/gcn-epochs-3-hidden-dim-8").dataset == "web"
    # the saved recipe is the one that was run: its runs are already in the store
    from gt_bench.pipeline.train import train_cell

    grid = load_grid()
    result = train_cell(grid.find("mine/web/gcn-epochs-3-hidden-dim-8"), grid, bar=False)
    assert set(result["runs"]) == {r["digest"] for r in records}
    assert len(list(Store().records())) == 2


@pytest.mark.slow
def test_every_command_prints_the_notes_of_its_dataset(ours, capsys, monkeypatch):
    from gt_bench import evaluate
    from gt_bench.experiment.cell import cell_stage
    from gt_bench.pipeline.encode import main as encode
    from gt_bench.pipeline.train import train_cell

    folder = write_web(ours / "lab/papers")
    rows = (folder / "nodes.csv").read_text().splitlines()
    rows[1] = "9" + rows[1][1:]  # the only node of its class
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    options = ["--seeds", "0", "--set", "epochs=2", "--set", "model.hidden_dim=8", "--save", "mine"]
    shown = CliRunner().invoke(app, ["try", "mlp", "lab/papers", *options])
    note = next(line for line in shown.output.splitlines() if line.startswith("papers: note: "))
    assert shown.output.count(note) == 1
    capsys.readouterr()
    evaluate("mlp", "papers", 1, set={"epochs": 2, "model.hidden_dim": 8})
    assert capsys.readouterr().out.count(note) == 1
    cell = "mine/papers/mlp-epochs-2-hidden-dim-8"
    assert CliRunner().invoke(app, ["train", cell]).output.count(note) == 1
    monkeypatch.setattr("sys.argv", ["train", cell])
    assert cell_stage("", train_cell) == 0
    assert capsys.readouterr().out.count(note) == 1
    assert encode(["papers"]) == 0
    assert capsys.readouterr().out.count(note) == 1


def test_a_name_that_was_not_tried(ours):
    try_pair("mlp", "web", FAST, [0], bar=False)
    with pytest.raises(RecipeError, match="tried/web/mlp-epochs-3: not found in this folder .*mlp-epochs-3-hidden"):
        raise CliRunner().invoke(app, ["history", "tried/web/mlp-epochs-3"]).exception


def test_every_variant_stays_in_the_table(ours):
    try_pair("mlp", "web", FAST, [0, 1], bar=False)
    found = try_pair("gcn", "web", FAST, [0], bar=False)
    assert [row["model"] for row in found.rows if row["of"] == "this run"] == ["gcn-epochs-3-hidden-dim-8"]
    assert {row["of"] for row in found.rows} == {"this run", "tried, own"}
    assert next(row["against"] for row in found.rows if row["of"] != "this run") == "too few runs"
    means = [row["mean"] for row in found.rows]
    assert means == sorted(means, reverse=True)
    assert found.mean == found.row["mean"]
    assert "<table>" in found._repr_html_()
    assert str(found).startswith("web: this run is number ")


def test_numbers_in_another_unit_are_not_ranked_together(ours):
    raw = try_pair("mlp", "many", FAST | {"targets": None}, [0], bar=False)
    assert raw.unit == ""
    found = try_pair("mlp", "many", FAST, [0], bar=False)
    assert found.row["targets"] == "train"  # the default for user-supplied data
    assert [(row["model"], row["against"]) for row in found.rows] == [
        (found.row["model"], None),
        (raw.row["model"], None),
    ]
    assert [texts[2] for texts in found.texts()] == ["mae / σ", "mae"]
    assert "this run is number 1 of 1" in str(found)
    assert found.unit.startswith("mae / σ: in standard deviations of the training targets")
    assert found.unit in str(found)
    shown = CliRunner().invoke(
        app, ["try", "mlp", "many", "--seeds", "0", "--set", "epochs=3", "--set", "model.hidden_dim=8"]
    )
    assert found.unit in shown.output


def test_numbers_of_the_nodes_of_ones_own_graph(ours):
    """CSV files with two numbers per node, one unknown: a regression with standardised targets."""
    folder = ours / "readings"
    folder.mkdir()
    readings = [f"{i / 7:.3f},{'nan' if i == 5 else i % 9 + 0.5},0.{i % 10},1.{i % 3}" for i in range(60)]
    (folder / "nodes.csv").write_text("\n".join(["y_1,y_2,a,b", *readings]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"{i},{(i + 1) % 60}" for i in range(60))]) + "\n")
    shown = CliRunner().invoke(app, ["try", "gcn", str(folder), "--metric", "mse", "--seeds", "0", "--set", "epochs=3"])
    assert shown.exit_code == 0, shown.output
    assert yaml.safe_load(Path("datasets.yaml").read_text())["readings"]["task"] == "node-regression"
    assert "mse / σ²: in variances of the training targets" in shown.output
    (record,) = Store().records()
    assert 0 < record["deterministic"]["test"] < 10


def test_whole_numbers_are_quantities_where_that_is_stated(ours):
    """Whole numbers are standardised like others; as integers they would be rounded to 0 and 1."""
    (write_many(ours / "lab/counts") / "graphs.csv").write_text("y\n" + "".join(f"{20 + i}\n" for i in range(30)))
    found = try_pair("mlp", "lab/counts", FAST, [0], data=Description(task="graph-regression", metric="mae"), bar=False)
    assert found.row["status"] == "ok"
    packed = PackedDataset.open(Path("data/packed/counts"))
    y = StandardisedTargets(packed, "all", 0).batch(torch.arange(30)).y
    torch.testing.assert_close(y, ((torch.arange(30) - 14.5) / torch.arange(30).double().std()).float())


@pytest.mark.slow
def test_what_was_tried_is_compared(ours):
    (ours / "suites").mkdir()
    for model in ("mlp", "gcn"):
        try_pair(model, "many", FAST, [0, 1, 2], bar=False)
    raw = try_pair("mlp", "many", FAST | {"targets": None}, [0, 1, 2], bar=False)
    names = [f"tried/many/{model}-epochs-3-hidden-dim-8" for model in ("mlp", "gcn")]
    shown = CliRunner().invoke(app, ["compare", *names])
    assert shown.exit_code == 0, shown.output
    assert f"{names[0]} (first) and {names[1]} (second)" in " ".join(shown.output.split())
    says = r"nothing to compare: many: .* has mae in standard deviations \(targets: train\), tried/many/.* mae$"
    with pytest.raises(RecipeError, match=says):
        raise CliRunner().invoke(app, ["compare", names[0], f"tried/many/{raw.row['model']}"]).exception


def test_only_data_of_ones_own_have_their_targets_standardised():
    about = {"name": "mine", "task": "graph-regression", "metric": "mae", "level": "graph", "in_dim": 4, "out_dim": 1}
    about |= {"split_kind": "graph", "num_splits": 1}
    for provenance, targets in (({"arguments": {"content": "0"}}, "train"), ({"arguments": {}}, None), ({}, None)):
        assert (
            recipe_of(model_info("gcn"), PackedHeader(**about, provenance=provenance), {}, None, None).targets
            == targets
        )


@pytest.mark.slow
def test_what_was_tried_is_on_the_board_of_its_dataset(ours):
    Path("suites").mkdir()
    with pytest.raises(RecipeError, match="no dataset 'wed' .did you mean 'web'"):
        raise CliRunner().invoke(app, ["board", "--dataset", "wed"]).exception
    try_pair("mlp", "web", FAST, [0], bar=False)
    try_pair("gcn", "web", FAST, [0], bar=False)
    shown = CliRunner().invoke(app, ["board", "--dataset", "web", "--json"])
    assert [(row["cell"], row["source"], row["runs"]) for row in json.loads(shown.output)] == [
        ("tried/web/gcn-epochs-3-hidden-dim-8", "own", 1),
        ("tried/web/mlp-epochs-3-hidden-dim-8", "own", 1),
    ]
    assert "tried / gcn-epochs-3-hidden-dim-8" in CliRunner().invoke(app, ["board", "--dataset", "web"]).output


@pytest.mark.slow
def test_shipped_numbers_are_listed_next_to_it(ours, monkeypatch):
    from tests.conftest import ROOT

    grid = load_grid(ROOT / "params.yaml")
    monkeypatch.setattr("gt_bench.reports.dataset_comparison.ROOT", ROOT / "suites")
    from gt_bench.config.tried import TriedCell
    from gt_bench.reports.dataset_comparison import comparison

    cell = TriedCell(key="tried-texas-x", cell="tried/texas/x", dataset="texas", model="x", settings="recipes")
    result = {
        "cell": cell.cell,
        "suite": "tried",
        "dataset": "texas",
        "model": "x",
        "status": "diverged",
        "runs": [],
        "seeds": [0],
        "recipe": {},
    }
    monkeypatch.chdir(ROOT)
    found = comparison(
        cell,
        result | {"metric": "accuracy", "direction": "max"},
        grid,
        "x",
        ours / "store",
        ours / "results",
        ROOT / "suites",
    )
    assert any(row["of"] == "edge-transformer, shipped" for row in found.rows)
    assert found.mean is None
    assert "this run has no number" in str(found)


@pytest.mark.slow
def test_encodings_are_as_wide_as_the_model_reads(ours):
    found = try_pair("tokengt", "many", {"epochs": 1, "model.num_layers": 1, "model.node_id_dim": 3}, [0], bar=False)
    assert load_recipe(found.recipe).encodings == {"laplacian": {"k": 3}}
    assert found.row["status"] == "ok"


def test_an_encoding_that_needs_more_than_a_width_is_requested(ours):
    with pytest.raises(
        RecipeError, match=r"gt-bench try nagphormer web: encoding 'hops': .* Give both `columns` and `steps`"
    ):
        try_pair("nagphormer", "web", {"epochs": 1, "model.hops": 5}, [0], bar=False)


@pytest.mark.slow
def test_a_search(ours):
    found = try_pair("mlp", "web", {"epochs": 2}, [0], 2, bar=False)
    chosen = load_recipe(found.recipe)
    assert found.recipe == "tuned/tried/web/mlp-epochs-2-searched.yaml"
    assert chosen.origin["optimizer.lr"].startswith("tuned: trial")
    assert found.row["status"] == "ok"


@pytest.mark.slow
def test_an_experiment_of_its_own(ours):
    Path("params.yaml").write_text("run: {parallel: 1}\n")
    try_pair("mlp", "web", FAST, [0], bar=False)
    with sqlite3.connect("mlruns/mlflow.db") as database:
        assert ("tried",) in database.execute("select name from experiments").fetchall()


@pytest.mark.parametrize(
    ("model", "dataset", "says"),
    [
        ("s2g", "web", ["'s2g' predicts per pair or per hyperedge", "'web' needs a prediction per node",
         "models that fit web: ", "gcn"]),
        ("gcn", "delaunay-50", ["per node or per graph", "a prediction per pair", "models that fit delaunay-50: ",
         "s2g", "datasets that fit gcn: ", "texas"]),
        ("tokengt-attention", "texas", ["'tokengt-attention' predicts per attention",
         "datasets that fit tokengt-attention: ", "basis-small"]),
    ],
)  # fmt: skip
def test_a_pair_that_cannot_be_states_why_and_what_fits(ours, model, dataset, says):
    with pytest.raises(Incompatible) as error:
        try_pair(model, dataset)
    for text in says:
        assert text in str(error.value)


@pytest.mark.slow
def test_states_of_all_pairs_that_do_not_fit(ours, monkeypatch):
    monkeypatch.setattr("gt_bench.runtime.resources.available_mib", lambda: 0.5)
    with pytest.raises(
        Incompatible,
        match=r"(?s)keeps states of all pairs of nodes: with 60 nodes .*models linear in nodes and edges: .*gcn",
    ) as error:
        try_pair("edge-transformer", "web")
    assert "edge-transformer" not in str(error.value).split("models linear")[1]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"optimizer.lrr": 0.1}, RecipeError, r"unknown key 'optimizer.lrr' \(did you mean 'lr'\?\)"),
        ({"model.hidden": 3}, RecipeError, r"unknown key 'model.hidden' \(did you mean 'hidden_dim'\?\)"),
        ({"epochs.x": 3}, OptionError, "epochs is a value, not a section"),
        (
            {"model.name": "mlp"},
            OptionError,
            "--set model.name: the model is what the command names first: gt-bench try mlp web",
        ),
    ],
)
def test_wrong_settings(ours, given, error, says):
    with pytest.raises(error, match=says):
        try_pair("gcn", "web", given)
    assert not Path("tried").exists()


@pytest.mark.parametrize(
    "model", ["mlp", "tokengt"]
)  # a model that is built during its run, and one whose encodings are requested before
def test_a_width_that_no_layer_can_have_is_no_bug(ours, model):
    with pytest.raises(RecipeError, match=r"model: Trying to create tensor with negative dimension -4|model: .*-4"):
        try_pair(model, "web", {"epochs": 1, "model.hidden_dim": -4}, [0], bar=False)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("gcn", "model: hidden_dim is 0: give at least 1"),
        ("appnp", r"tried/web/appnp-.*yaml: model: .* has no entries .*; give each layer a width above 0"),
    ],
)
def test_a_width_of_0_is_no_bug(ours, model, words):
    with pytest.raises(RecipeError, match=words):
        try_pair(model, "web", {"epochs": 1, "model.hidden_dim": 0}, [0], bar=False)


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        (
            "polynormer",
            {"phases": [{"name": "warmup", "epochs": 1}]},
            "phases: a Polynormer with attention 'local-to-global' has the phases .*, not 'warmup'",
        ),
        (
            "mlp",
            {"phases": [{"name": "local", "epochs": 1}], "patience": None},
            "phases: model 'mlp' does not support phases; use epochs instead",
        ),
        (
            "gcn",
            {"epochs": 1, "loss": "bce"},
            "gt-bench try gcn web: loss 'bce' is not one of this task's: cross-entropy",
        ),
    ],
)
def test_phases_and_losses_that_a_pair_does_not_have(ours, model, given, says):
    with pytest.raises(RecipeError, match=says):
        try_pair(model, "web", given, [0], bar=False)


def test_nothing_is_left_to_search(ours):
    space = {
        "optimizer.lr": 0.1,
        "optimizer.weight_decay": 0,
        "model.hidden_dim": 8,
        "model.num_layers": 2,
        "model.dropout": 0.1,
    }
    with pytest.raises(
        OptionError, match="--search 2: nothing is left to search: --set gives optimizer.lr, .*; leave one out"
    ):
        try_pair("gcn", "web", space, [0], 2, bar=False)


def test_a_model_that_no_memory_holds_is_no_bug(ours):
    with pytest.raises(Incompatible, match="gt-bench try gcn: the model alone does not fit into memory"):
        try_pair("gcn", "web", {"epochs": 1, "model.hidden_dim": 10**12}, [0], bar=False)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["node", "graph"])
@pytest.mark.parametrize("size", [100, 100_000, 1_000_000])
def test_there_are_defaults_for_every_model(split, size):
    task, metric, level = (
        ("node-classification", "accuracy", "node") if split == "node" else ("graph-regression", "mae", "graph")
    )
    header = PackedHeader(
        name="x", task=task, metric=metric, level=level, in_dim=3, out_dim=2, split_kind=split, num_splits=1,
        statistics={"nodes": size, "graphs": size}
    )  # fmt: skip
    for name in list_models():
        if level in model_info(name).levels:
            recipe = recipe_of(model_info(name), header, {}, None, 3)
            check_model(recipe, name)
            check_fit(recipe, level, "x", name)


@pytest.mark.parametrize("suite", ["../evil", "", "Mine", "a b"])
def test_what_cannot_be_saved_is_reported_before_anything_is_trained(ours, suite):
    shown = CliRunner().invoke(app, ["try", "mlp", "web", "--save", suite])
    assert str(shown.exception) == f"--save {suite}: a name of a suite has lower-case letters, digits and dashes"
    assert not Path("store").exists()


def test_another_recipe_is_not_written_over(ours):
    from gt_bench.api.evaluate import save

    found = try_pair("mlp", "web", FAST, [0], bar=False)
    path = save(found.recipe, "mine")
    assert save(found.recipe, "mine") == path
    content = yaml.safe_load(path.read_text()) | {"epochs": 4}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(RecipeError, match="another recipe exists"):
        save(found.recipe, "mine")
    with pytest.raises(RecipeError, match="a name of a suite has lower-case letters"):
        save(found.recipe, "My Suite")


def test_a_search_without_optuna_is_one_line_before_any_work(ours, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        UserError, match="a search needs optuna, which is not installed; run: python -m pip install optuna"
    ):
        try_pair("gcn", "web", FAST, [0], trials=2, bar=False)
    assert not Path("data").exists()


def test_without_mlflow_one_line_reports_it_once(ours, monkeypatch, capsys):
    monkeypatch.setattr("gt_bench.tracking.uri.find_spec", lambda _: None)
    Path("params.yaml").write_text("run: {parallel: 1}\n")
    for seeds in ([0], [0], [1]):
        try_pair("mlp", "web", FAST, seeds, bar=False)
    said = capsys.readouterr().err
    assert said.count("python -m pip install mlflow") == said.count("MLflow") == 1


def test_the_page_of_a_tried_run_names_what_exists(ours):
    from gt_bench.tracking.payload import command_of, describe_run, tracked_run

    given = FAST | {"optimizer.lr": 0.02}
    found = try_pair("gcn", "web", given, [0, 2], bar=False)
    record = next(Store().records())
    cell = Named(cell=found.recipe.removesuffix(".yaml"), suite="tried", dataset="web", model="gcn")
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
