"""What a search leaves: the Pareto front and the chosen trial, pictures, and trials in MLflow."""

from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.pipeline.train import train_cell
from gt_bench.search.artifacts import search_summary, varied
from gt_bench.store.run_store import Store
from gt_bench.tracking.mirror import Mirror
from gt_bench.tracking.sync import complete, track_cells
from gt_bench.tracking.uri import tracking_uri
from tests.gt_bench.search.cases import CELL, GRID, SPACE, WIDTHS, trials, tune


@pytest.mark.slow
def test_several_objectives_give_a_pareto_front_and_a_stated_choice(project, capsys):
    import optuna

    search = {"trials": 6, "space": WIDTHS, "objectives": ["validation", "parameters"], "sampler": "random"}
    project.recipe(search=search, epochs=3)
    tune()
    said = capsys.readouterr().out
    rows = trials()
    assert all(row["objective.parameters"] for row in rows)
    summary = search_summary(load_grid().find(CELL))
    assert summary.objectives == ["validation", "parameters"]
    backend = optuna.storages.journal.JournalFileBackend("studies/small/web/mlp/journal.log")
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    assert sorted(one["trial"] for one in summary.pareto) == sorted(t.number for t in study.best_trials)
    assert f"Pareto front (validation, parameters): {len(study.best_trials)} of 6 complete trials" in said
    best = max(float(row["value"]) for row in rows)
    cheapest = min(float(row["objective.parameters"]) for row in rows if float(row["value"]) == best)
    chosen = next(row for row in rows if (float(row["value"]), float(row["objective.parameters"])) == (best, cheapest))
    assert f"selected: trial {chosen['number']} (best validation value, then fewest parameters); the test split" in said
    assert Path("tuned/small/web/mlp.pareto.png").read_bytes()[:4] == b"\x89PNG"
    assert "plotly" in Path("tuned/small/web/mlp.pareto.html").read_text()[:20_000]
    for record in project.records():
        assert record.run.test is None
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert result.search.pareto == summary.pareto
    # within all of the best value, the smallest model is selected
    project.recipe(search={**search, "select_within": 0.99}, epochs=3)
    before = len(project.records())
    assert tune().model.arguments["hidden_dim"] == 4
    assert len(project.records()) == before
    assert (
        "fewest parameters, of the trials within 99 % of the best"
        in load_recipe("tuned/small/web/mlp.yaml").origin["optimizer.lr"]
    )


@pytest.mark.slow
def test_seconds_are_an_objective(project):
    search = {"trials": 2, "space": WIDTHS, "objectives": ["validation", "seconds_per_epoch", "parameters"]}
    project.recipe(search=search, epochs=2)
    tune()
    (first, *_) = [row for row in trials() if row["number"] == "0"]
    measured = {r.measured.train_seconds_per_epoch for r in project.records()}
    assert float(first["objective.seconds_per_epoch"]) in measured
    tune()  # the study is complete, and its values are those of the records


def shown(suite: str) -> dict[str, dict]:
    """Returns what an experiment shows, by name of the run."""
    mirror = Mirror(tracking_uri(), suite)
    return {
        run.info.run_name: {
            "status": run.info.status,
            "params": run.data.params,
            "metrics": run.data.metrics,
            "tags": {k: v for k, v in run.data.tags.items() if k.startswith("gt.") and k != "gt.workspace"},
            "artifacts": sorted(a.path for a in mirror.client.list_artifacts(run.info.run_id)),
        }
        for run in mirror.runs.values()
    }


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_trials_are_in_an_experiment_of_their_own_and_pictures_with_the_cell(project, monkeypatch):
    project.recipe(search={**GRID, "trials": 2}, run={"tracking": True}, seeds=[0], epochs=2)
    tune()
    searched = shown("small-search")
    assert sorted(searched) == ["web mlp search", "web mlp trial 0", "web mlp trial 1"]
    rows = trials()
    assert searched["web mlp trial 1"]["params"] == {k: rows[1][k] for k in SPACE}
    assert searched["web mlp trial 1"]["metrics"] == {"result/validation": float(rows[1]["value"])}
    pictures = ["search.history.png", "search.importance.png", "search.parallel.png"]
    assert searched["web mlp search"]["artifacts"] == pictures
    assert shown("small") == {}
    grid = load_grid()
    result = train_cell(grid.find(CELL), grid)
    assert shown("small") == {}, "a short cell is tracked by the leaderboard"
    track_cells([grid.find(CELL)])
    cell = shown("small")
    assert sorted(cell) == ["web mlp", "web mlp seed 0"]
    assert set(pictures) < set(cell["web mlp"]["artifacts"])
    # a tracking store that is rebuilt from the records is equal
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///again/mlflow.db")
    complete("small", [result], {r.digest: r for r in project.records()}, store=Store())
    assert shown("small-search") == searched
    assert shown("small") == cell


@pytest.mark.parametrize(("trials", "is_shown"), [(2, False), (9, False), (10, True)])
def test_importance_is_of_ten_trials_or_more(trials, is_shown):
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("optimizer.lr", 0, 1), n_trials=trials)
    assert varied(study.trials) == is_shown
