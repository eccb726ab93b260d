"""Samplers and pruners by name, several objectives, first trials from recipes and records."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_options import method_in, options_of
from gt_bench.config.search_space import PRUNERS, SAMPLERS, SearchSection
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.provenance.transfer import export_cell
from gt_bench.search.artifacts import search_summary
from gt_bench.search.methods import identity_of, pruner_of, sampler_of
from gt_bench.search.warm_start import starts_of
from gt_bench.utils.errors import MissingPackage

CELL = "small/web/mlp"
RANGES = {"model.dropout": {"low": 0.0, "high": 0.8}, "optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True}}
WIDTHS = {"model.hidden_dim": {"choices": [4, 8, 16]}, "optimizer.lr": RANGES["optimizer.lr"]}


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch):
    monkeypatch.setattr("gt_bench.search.artifacts._plots", lambda *_: None)


def test_default_values_keep_the_identity_of_older_studies_and_others_begin_a_new_one():
    default = SearchSection(trials=60, space=RANGES)
    assert identity_of(default) == {"sampler": ["tpe", default.sampler_seed, "median"]}
    changes = [{"warmup_epochs": 3}, {"sampler": "gp"}, {"pruner": "none"}, {"pruner_options": {"n_min_trials": 2}}]
    identities = [identity_of(SearchSection(trials=60, space=RANGES, **change)) for change in changes]
    assert all(identity != identity_of(default) for identity in identities)


def tune(**folders):
    grid = load_grid()
    return tune_cell(grid.find(CELL), grid, **folders)


def trials():
    with Path("tuned/small/web/mlp.csv").open() as file:
        return list(csv.DictReader(file))


def points():
    return [(row["state"], row["value"], row["model.dropout"], row["optimizer.lr"]) for row in trials()]


METHODS = {
    "gp": {"sampler": "gp", "sampler_options": {"n_startup_trials": 2}},
    "nsga2": {"sampler": "nsga2", "sampler_options": {"population_size": 2}},
    "qmc": {"sampler": "qmc"},
    "random": {"sampler": "random"},
    "tpe": {"sampler_options": {"n_startup_trials": 2, "multivariate": True}},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_sampler_proposes_the_same_values_again(project, name):
    """Run two searches, and one that is stopped after two trials and continued."""
    project.recipe(search={"trials": 4, "pruner": "none", "space": RANGES, **METHODS[name]}, epochs=2)
    tune()
    first = points()
    assert len({(dropout, lr) for _, _, dropout, lr in first}) >= 3
    grid = load_grid()
    stopped = grid.model_copy(
        update={"limits": {CELL: grid.limits_of(grid.find(CELL)).model_copy(update={"trials": 2})}}
    )
    tune_cell(grid.find(CELL), stopped, store_root=Path("store2"), studies=Path("studies2"))
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert points() == first


def test_samplers_and_pruners_are_those_of_optuna(project):
    import optuna

    def section(**keys):
        return SearchSection(trials=60, space=RANGES, **keys)

    assert isinstance(sampler_of(section(sampler="gp"), 0), optuna.samplers.GPSampler)
    assert isinstance(sampler_of(section(sampler="nsga2"), 0), optuna.samplers.NSGAIISampler)
    assert isinstance(sampler_of(section(sampler="qmc"), 0), optuna.samplers.QMCSampler)
    assert isinstance(sampler_of(section(), 0), optuna.samplers.TPESampler)
    several = section(sampler="nsga3", objectives=["validation", "parameters"])
    assert isinstance(sampler_of(several, 0), optuna.samplers.NSGAIIISampler)
    assert isinstance(pruner_of(several, 10, "x"), optuna.pruners.NopPruner)
    assert isinstance(pruner_of(section(), 10, "x"), optuna.pruners.MedianPruner)
    hyperband = pruner_of(section(pruner="hyperband", warmup_epochs=3), 81, "x")
    assert (hyperband._min_resource, hyperband._max_resource) == (3, 81)
    percentile = pruner_of(section(pruner="percentile", pruner_options={"percentile": 25}), 10, "x")
    assert (percentile._percentile, percentile._n_warmup_steps) == (25.0, 10)
    with pytest.raises(RecipeError, match="x: search.pruner_options.min_resource: hyperband compares trials after 10"):
        pruner_of(section(pruner="hyperband"), 5, "x")


@pytest.mark.parametrize(
    ("pruner", "options"),
    [
        ("successive_halving", {"reduction_factor": 2}),
        ("hyperband", {"reduction_factor": 2}),
        ("threshold", {"lower": 2}),
    ],
)
def test_a_pruner_stops_trials(project, pruner, options):
    search = {"trials": 8, "space": RANGES, "seeds": [0, 1], "pruner": pruner, "pruner_options": options}
    project.recipe(search={**search, "sampler": "random", "warmup_epochs": 1}, epochs=8)
    if pruner == "threshold":  # an accuracy is never above 2
        with pytest.raises(RecipeError, match="none of 8 trials gave a validation value"):
            tune()
        return
    tune()
    states = [row["state"] for row in trials()]
    assert set(states) == {"COMPLETE", "PRUNED"}, states
    first = points()
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert points() == first


BAD = {
    "sampler 'gp2'": ({"sampler": "gp2"}, "search.sampler: Input should be 'tpe', 'random'"),
    "option": ({"sampler": "gp", "sampler_options": {"popsize": 3}}, "sampler_options of gp: unknown key 'popsize'"),
    "type": ({"sampler_options": {"n_startup_trials": 1.5}}, "sampler_options of tpe: n_startup_trials: .*given: 1.5"),
    "percentile": ({"pruner": "percentile"}, "pruner_options of percentile: key 'percentile' is missing"),
    "choices": (
        {"sampler": "cmaes", "space": WIDTHS},
        "cmaes samples numbers of a range, and model.hidden_dim has cho",
    ),
    "choices of qmc": ({"sampler": "qmc", "space": WIDTHS}, "qmc samples numbers of a range"),
    "one key": ({"sampler": "cmaes", "space": {"optimizer.lr": RANGES["optimizer.lr"]}}, "cmaes needs a space of two"),
    "population": ({"sampler": "nsga2"}, "nsga2 draws the first 50 trials at random"),
    "pruning": (
        {"objectives": ["validation", "parameters"], "pruner": "hyperband"},
        "pruner: hyperband: Optuna does not prune trials with several objectives",
    ),
    "cmaes": ({"objectives": ["validation", "parameters"], "sampler": "cmaes"}, "cmaes optimises one objective"),
    "objective": ({"objectives": ["test"]}, "search.objectives.0: Input should be 'validation'"),
    "order": ({"objectives": ["parameters", "validation"]}, "expected validation first"),
    "within": ({"select_within": 0.1}, "a search with one objective selects its best trial"),
    "grid": ({"sampler": "grid", "warm_start": ["defaults"]}, "warm_start: grid tries each combination"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_search_cannot_do_is_an_error_before_anything_runs(project, name):
    keys, message = BAD[name]
    project.recipe(search={"trials": 4, "space": RANGES, **keys})
    with pytest.raises(RecipeError, match=message) as error:
        tune()
    assert "suites/small/recipes/web/mlp.yaml: search" in str(error.value)
    assert not Path("studies").exists()
    assert not project.records()


def test_a_sampler_whose_package_is_missing(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", None)
    project.recipe(search={"trials": 4, "space": RANGES, "sampler": "cmaes"})
    with pytest.raises(
        MissingPackage, match="the sampler cmaes needs cmaes, which is not installed; run: python -m pip"
    ):
        tune()
    assert not Path("studies").exists()


def test_cmaes_unpickles_nothing_from_a_database(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", SimpleNamespace(__spec__=None))
    search = {"trials": 4, "space": RANGES, "sampler": "cmaes"}
    project.recipe(search=search, run={"study_storage": "sqlite:///a.db"})
    with pytest.raises(RecipeError, match="Optuna stores the state of cmaes as a pickle"):
        tune()
    assert not Path("a.db").exists()


def test_several_objectives_give_a_pareto_front_and_a_stated_choice(project, capsys):
    import optuna

    search = {"trials": 6, "space": WIDTHS, "objectives": ["validation", "parameters"], "sampler": "random"}
    project.recipe(search=search, epochs=3)
    tune()
    said = capsys.readouterr().out
    rows = trials()
    assert all(row["objective.parameters"] for row in rows)
    summary = search_summary(load_grid().find(CELL))
    assert summary["objectives"] == ["validation", "parameters"]
    backend = optuna.storages.journal.JournalFileBackend("studies/small/web/mlp/journal.log")
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    assert sorted(one["trial"] for one in summary["pareto"]) == sorted(t.number for t in study.best_trials)
    assert f"Pareto front (validation, parameters): {len(study.best_trials)} of 6 complete trials" in said
    best = max(float(row["value"]) for row in rows)
    cheapest = min(float(row["objective.parameters"]) for row in rows if float(row["value"]) == best)
    chosen = next(row for row in rows if (float(row["value"]), float(row["objective.parameters"])) == (best, cheapest))
    assert f"selected: trial {chosen['number']} (best validation value, then fewest parameters); the test split" in said
    assert Path("tuned/small/web/mlp.pareto.png").read_bytes()[:4] == b"\x89PNG"
    assert "plotly" in Path("tuned/small/web/mlp.pareto.html").read_text()[:20_000]
    for record in project.records():
        assert record["deterministic"]["test"] is None
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert result["search"]["pareto"] == summary["pareto"]
    # within all of the best value, the smallest model is selected
    project.recipe(search={**search, "select_within": 0.99}, epochs=3)
    before = len(project.records())
    assert tune().model.arguments["hidden_dim"] == 4
    assert len(project.records()) == before
    assert (
        "fewest parameters, of the trials within 99 % of the best"
        in load_recipe("tuned/small/web/mlp.yaml").origin["optimizer.lr"]
    )


def test_seconds_are_an_objective(project):
    search = {"trials": 2, "space": WIDTHS, "objectives": ["validation", "seconds_per_epoch", "parameters"]}
    project.recipe(search=search, epochs=2)
    tune()
    (first, *_) = [row for row in trials() if row["number"] == "0"]
    measured = {r["measured"]["train_seconds_per_epoch"] for r in project.records()}
    assert float(first["objective.seconds_per_epoch"]) in measured
    tune()  # the study is complete, and its values are those of the records


def test_first_trials_are_the_recipe_s_own_values_and_those_of_neighbours(project, capsys):
    project.recipe(row="other", dataset="many", **{"optimizer": {"name": "adam", "lr": 0.02}})
    project.recipe(row="outside", dataset="many", **{"optimizer": {"name": "adam", "lr": 0.5}})
    search = {"trials": 4, "space": {"optimizer.lr": RANGES["optimizer.lr"]}, "pruner": "none"}
    project.recipe(search={**search, "warm_start": ["defaults", "neighbours"]}, epochs=2)
    tune()
    said, rows = capsys.readouterr().out, trials()
    own = load_recipe("suites/small/recipes/web/mlp.yaml").optimizer.lr
    assert [float(row["optimizer.lr"]) for row in rows[:2]] == [own, 0.02]
    assert [row["origin"] for row in rows] == [
        "defaults: small/web/mlp",
        "neighbours: small/many/other, recipe",
        "",
        "",
    ]
    assert "warm start: trial 1 has the values of neighbours: small/many/other, recipe" in said
    assert "small/many/outside, recipe: left out: optimizer.lr is 0.5, outside the space" in said
    assert search_summary(load_grid().find(CELL))["warm_starts"] == 2
    tune()
    assert trials() == rows
    assert "warm start" not in capsys.readouterr().out


def test_a_shipped_record_gives_first_values(trained):
    search = {"trials": 3, "space": RANGES, "warm_start": ["records"]}
    path = trained.recipe(row="searched", search=search)

    def starts():
        grid = load_grid()
        return starts_of(load_recipe(path), grid.find("small/web/searched"), grid)

    assert starts().found == []
    shipped = export_cell(load_grid().find(CELL))
    # the values are those of the record, not of the recipe
    trained.recipe(optimizer={"name": "adam", "lr": 0.05})
    (start,) = starts().found
    assert start == (f"records: {CELL}, shipped record", {"model.dropout": 0.2, "optimizer.lr": 0.01})
    shipped.write_bytes(b"what")
    found, (line,) = starts()
    assert found == []
    assert f"records: {CELL}: left out: suites/small/records/web/mlp.json.gz" in line


def test_a_first_trial_that_was_killed_is_queued_again(project, monkeypatch):
    import gt_bench.search.optimize as search_module

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    search = {"trials": 3, "space": RANGES, "pruner": "none", "warm_start": ["defaults"]}
    project.recipe(search=search, epochs=2)
    with monkeypatch.context() as patched:
        patched.setattr(search_module, "_run_trial", killed)
        with pytest.raises(Killed):
            tune()
    tune()
    rows = trials()
    assert [row["status"] for row in rows if row["origin"]] == ["killed, queued again", "ok"]
    assert sum(row["status"] == "ok" for row in rows) == 3


def test_params_yaml_and_options_replace_the_method_of_a_recipe(project):
    project.recipe(search={"trials": 3, "space": RANGES, "pruner": "none"}, epochs=2)
    path = Path("params.yaml")
    path.write_text(path.read_text() + "search: {all: {sampler: random}, small: {sampler_seed: 4}}\n")
    tune()
    changed = points()
    options = ["--sampler", "qmc", "--sampler-option", "scramble=false"]
    done = CliRunner().invoke(app, ["tune", CELL, *options])
    assert done.exit_code == 0, done.output
    assert points() != changed
    refused = CliRunner().invoke(app, ["tune", CELL, "--objective", "parameters", "--pruner", "median"])
    assert "does not prune trials with several objectives" in str(refused.exception)
    path.write_text(path.read_text().replace("{all:", "{al:"))
    with pytest.raises(RecipeError, match="search: no suite or cell 'al'.*did you mean 'all'"):
        load_grid()


def test_options_and_methods_are_inverse():
    options = {"sampler": "gp", "sampler_option": ["n_startup_trials=3"], "pruner": "none", "objective": ["parameters"]}
    method = method_in(**options, select_within=0.02, warm_start="defaults, records", search_seeds="0-1")
    words = options_of(method)
    assert json.dumps(words).count("--") == 7
    assert "--sampler-option n_startup_trials=3" in " ".join(words)
    with pytest.raises(OptionError, match="--sampler-option x: expected KEY=VALUE"):
        method_in(sampler="gp", sampler_option=["x"])
    with pytest.raises(OptionError, match="--search-seeds 1-: expected 0-9, or 0,2,5"):
        method_in(search_seeds="1-")


def test_every_method_has_options():
    fields = SearchSection.model_fields
    assert set(SAMPLERS) == set(fields["sampler"].annotation.__args__)
    assert set(PRUNERS) == set(fields["pruner"].annotation.__args__)
