"""Samplers and pruners by name, their options, and what they refuse."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_options import method_in, options_of
from gt_bench.config.search_section import PRUNERS, SAMPLERS, SearchSection
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.methods import identity_of, pruner_of, sampler_of
from gt_bench.utils.errors import MissingPackage
from tests.gt_bench.search.cases import CELL, RANGES, WIDTHS, trials, tune
from tests.refusals import refused


def test_default_values_keep_the_identity_of_older_studies_and_others_begin_a_new_one():
    default = SearchSection(trials=60, space=RANGES)
    assert identity_of(default) == {"sampler": ["tpe", default.sampler_seed, "median"]}
    changes = [{"warmup_epochs": 3}, {"sampler": "gp"}, {"pruner": "none"}, {"pruner_options": {"n_min_trials": 2}}]
    identities = [identity_of(SearchSection(trials=60, space=RANGES, **change)) for change in changes]
    assert all(identity != identity_of(default) for identity in identities)


def points():
    return [(row["state"], row["value"], row["model.dropout"], row["optimizer.lr"]) for row in trials()]


METHODS = {
    "gp": {"sampler": "gp", "sampler_options": {"n_startup_trials": 2}},
    "nsga2": {"sampler": "nsga2", "sampler_options": {"population_size": 2}},
    "qmc": {"sampler": "qmc"},
    "random": {"sampler": "random"},
    "tpe": {"sampler_options": {"n_startup_trials": 2, "multivariate": True}},
}


@pytest.mark.slow
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
    with refused(RecipeError, file="x", place="search.pruner_options.min_resource", value=10):
        pruner_of(section(pruner="hyperband"), 5, "x")


@pytest.mark.slow
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
        with refused(RecipeError, place="search.space"):
            tune()
        return
    tune()
    states = [row["state"] for row in trials()]
    assert set(states) == {"COMPLETE", "PRUNED"}, states
    first = points()
    tune(store_root=Path("store2"), studies=Path("studies2"))
    assert points() == first


SEVERAL = ["validation", "parameters"]
BAD = {
    "sampler 'gp2'": ({"sampler": "gp2"}, "sampler"),
    "option": ({"sampler": "gp", "sampler_options": {"popsize": 3}}, "sampler_options.popsize"),
    "type": ({"sampler_options": {"n_startup_trials": 1.5}}, "sampler_options.n_startup_trials"),
    "percentile": ({"pruner": "percentile"}, "pruner_options.percentile"),
    "choices": ({"sampler": "cmaes", "space": WIDTHS}, "sampler"),
    "choices of qmc": ({"sampler": "qmc", "space": WIDTHS}, "sampler"),
    "one key": ({"sampler": "cmaes", "space": {"optimizer.lr": RANGES["optimizer.lr"]}}, "sampler"),
    "population": ({"sampler": "nsga2"}, "sampler"),
    "pruning": ({"objectives": SEVERAL, "pruner": "hyperband"}, "pruner"),
    "cmaes": ({"objectives": SEVERAL, "sampler": "cmaes"}, "sampler"),
    "objective": ({"objectives": ["test"]}, "objectives.0"),
    "order": ({"objectives": SEVERAL[::-1]}, "objectives"),
    "within": ({"select_within": 0.1}, "select_within"),
    "grid": ({"sampler": "grid", "warm_start": ["defaults"]}, "warm_start"),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_searches_are_refused_before_anything_runs(project, name):
    keys, place = BAD[name]
    project.recipe(search={"trials": 4, "space": RANGES, **keys})
    with refused(RecipeError, file="suites/small/recipes/web/mlp.yaml", place=f"search.{place}"):
        tune()
    assert not Path("studies").exists()
    assert not project.records()


def test_a_sampler_whose_package_is_missing(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", None)
    project.recipe(search={"trials": 4, "space": RANGES, "sampler": "cmaes"})
    with refused(MissingPackage, value="cmaes"):
        tune()
    assert not Path("studies").exists()


def test_cmaes_unpickles_nothing_from_a_database(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "cmaes", SimpleNamespace(__spec__=None))
    search = {"trials": 4, "space": RANGES, "sampler": "cmaes"}
    project.recipe(search=search, run={"study_storage": "sqlite:///a.db"})
    with refused(RecipeError, place="search.sampler", value="cmaes"):
        tune()
    assert not Path("a.db").exists()


@pytest.mark.slow
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
    done = CliRunner().invoke(app, ["tune", CELL, "--objective", "parameters", "--pruner", "median"])
    assert (done.exception.place, done.exception.value) == ("search.pruner", "median")
    path.write_text(path.read_text().replace("{all:", "{al:"))
    with refused(RecipeError, place="search", value="al"):
        load_grid()


def test_options_and_methods_are_inverse():
    options = {"sampler": "gp", "sampler_option": ["n_startup_trials=3"], "pruner": "none", "objective": ["parameters"]}
    method = method_in(**options, select_within=0.02, warm_start="defaults, records", search_seeds="0-1")
    words = options_of(method)
    assert json.dumps(words).count("--") == 7
    assert "--sampler-option n_startup_trials=3" in " ".join(words)
    with refused(OptionError, place="--sampler-option", value="x"):
        method_in(sampler="gp", sampler_option=["x"])
    with refused(OptionError, place="--search-seeds", value="1-"):
        method_in(search_seeds="1-")


def test_every_method_has_options():
    fields = SearchSection.model_fields
    assert set(SAMPLERS) == set(fields["sampler"].annotation.__args__)
    assert set(PRUNERS) == set(fields["pruner"].annotation.__args__)
