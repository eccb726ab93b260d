"""First trials from recipes and shipped records."""

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.provenance.transfer import export_cell
from gt_bench.search.artifacts import search_summary
from gt_bench.search.warm_start import starts_of
from tests.gt_bench.search.cases import CELL, RANGES, trials, tune


@pytest.mark.slow
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
    assert search_summary(load_grid().find(CELL)).warm_starts == 2
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
