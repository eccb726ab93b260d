"""`gt-bench compare`: which runs are compared, and what is printed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.analysis.dataset_numbers import entries
from gt_bench.analysis.datasets import Filter
from gt_bench.cli.app import app
from gt_bench.config.schema import RecipeError
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import Version
from gt_bench.pipeline.gather import gather
from gt_bench.reports.paired_runs import compare, mean_ranks, sides
from gt_bench.reports.show_paired_runs import comparisons, verdict_of
from gt_bench.store.attempts import remember
from gt_bench.store.run_store import Store, run_digest, sealed
from tests.gt_bench.cells import changed, make_record, make_result, reduction, write, write_grid
from tests.refusals import refused

SETS = ("cornell", "texas", "wisconsin", "csl", "exp")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """gcn, gin and gat on five datasets; gin misses a seed on texas, gat has other seeds on cornell.

    The suite ppgt has gcn on cornell, too.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    cells = [f"edge-transformer/{d}/{m}" for d in SETS for m in ("gcn", "gin", "gat")]
    cells += ["ppgt/cornell/gcn", "ppgt/cornell/mlp"]
    grid = write_grid(tmp_path, cells, suites=["ppgt", "edge-transformer"])
    results, records = [], []
    for cell in cells[:-1]:
        _, dataset, model = cell.split("/")
        base = {"gcn": 0.5, "gin": 0.45, "gat": 0.501}[model]
        first = 20 if (dataset, model) == ("cornell", "gat") else 0
        step = 0.012 if model == "gin" else 0.01
        mine = [make_record(cell, seed, test=base + step * seed) for seed in range(first, first + 4)]
        if (dataset, model) == ("texas", "gin"):
            mine[3] = make_record(cell, 3, "diverged")
        results.append(make_result(cell, mine, None))
        records += mine
    write(tmp_path, results, records)
    return grid


def run(*arguments):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_pairs_are_of_one_suite_seed_and_split(project):
    held = gather(project)
    found, why = compare(sides("gcn", project, held), sides("gin", project, held), Rules())
    assert {one.dataset for one in found} == set(SETS)
    # ppgt comes first in the grid, and has no gin
    assert {one.first.name.split("/")[0] for one in found} == {"edge-transformer"}
    assert {one.dataset: (one.found.pairs, one.left_out) for one in found}["texas"] == (3, 1)
    assert {(one.found.word, one.found.example_error) for one in found} == {("first", None)}
    assert all("has no stored predictions" in one.without_examples for one in found)
    assert why == []
    same, _ = compare(sides("gcn", project, held), sides("gat", project, held), Rules())
    assert {verdict_of(one.found) for one in same} == {"too few runs"}  # four times the same difference


def test_epochs_that_were_chosen_by_different_rules_are_not_compared(project):
    path = Path("results/edge-transformer/cornell/gin.json")
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"recipe": {**result["recipe"], "select": "test"}}))
    held = gather(project)
    named = [sides(name, project, held, ["cornell"]) for name in ("edge-transformer/gcn", "edge-transformer/gin")]
    found, why = compare(*named, Rules())
    assert not found
    assert "edge-transformer/cornell/gin accuracy of an epoch chosen on test" in why[0]


def on_other_data(cell: str, seed: int, test: float):
    """A record of a run on data that were packed again from other files."""
    record = make_record(cell, seed, test=test)
    run = changed(record, run={"digests": record.run.digests.to_disk() | {"data": "f" * 64}}).run
    digest = run_digest(run.recipe, seed, seed, run.digests, run.versions)
    return sealed(record.model_copy(update={"run": run, "digest": digest}))


def test_runs_on_different_data_are_not_compared(project, tmp_path):
    cell = "edge-transformer/csl/gin"
    records = [on_other_data(cell, seed, 0.9) for seed in range(4)]
    write(tmp_path, [make_result(cell, records, None)], records)
    done = run("gcn", "gin", "--dataset", "csl")
    assert "have different data (their files changed" in str(done.exception)
    done = run("gcn", "gin")
    assert "left out: csl: edge-transformer/csl/gcn and edge-transformer/csl/gin have different data" in done.output
    assert "mean ranks over 4 datasets" in done.output
    found, problems = entries(project, project.suite("edge-transformer"), Filter(), "own")
    assert not [one for one in found if (one.model, one.block.dataset) == ("gin", "csl")]
    assert [problem.split(": ")[:2] for problem in problems] == [
        ["edge-transformer/texas/gin", "ok 3/4 (1 diverged)"], [cell, "left out"],
    ]  # fmt: skip


def test_seeds_that_are_not_shared_are_named(project):
    held = gather(project)
    found, why = compare(sides("gcn", project, held), sides("gat", project, held), Rules())
    assert "cornell" not in [one.dataset for one in found]
    (line,) = why
    assert line.startswith("cornell: no seed and split in common: seed/split 0/0, 1/1, 2/2, 3/3 of edge-transformer/")


def test_ranks_are_over_the_datasets_that_all_have(project):
    held = gather(project)
    named = {name: sides(name, project, held) for name in ("gcn", "gin", "gat")}
    found, common = mean_ranks(named, Rules())
    assert set(common) == set(SETS)
    assert found.mean_ranks["gin"] == 3.0
    assert found.critical is not None
    del named["gat"]["exp"]
    found, common = mean_ranks(named, Rules())
    assert (len(common), found.test) == (4, None)


def test_differences_of_several_metrics_have_no_common_unit(project):
    held = gather(project)
    named = {name: sides(name, project, held) for name in ("gcn", "gin")}
    exact, _ = mean_ranks(named, Rules())
    for found in named.values():  # a loss in another unit
        side = found["exp"][0]
        version = Version.of("own", changed(side.version.result, metric="mae"), side.version.records)
        values = {run: 1000 * value for run, value in side.values.items()}
        found["exp"][0] = side._replace(version=version, values=values)
    mixed, common = mean_ranks(named, Rules())
    assert (mixed.p_value, len(common)) == (exact.p_value, 5) == (2 / 2**5, 5)


def test_the_command(project):
    shown = run("gcn", "gin", "gat", "--bayes", "--dataset", "texas", "--dataset", "exp")
    assert shown.exit_code == 0, shown.output
    for text in ("first is better", "1 of edge-transformer/texas/gcn", "P(first)", "too few datasets"):
        assert text in shown.output
    assert "friedman: p =" in run("gcn", "gin", "gat").output
    assert "wilcoxon: p =" in run("gcn", "gin").output
    assert "over all of them: P(first)" in run("gcn", "gin", "--bayes").output


@pytest.mark.parametrize(
    "arguments",
    [
        ["gcn", "gni"],
        ["gcn"],
        ["gcn", "gcn"],
        ["gcn", "mlp"],
        ["gcn@mine", "gin"],
        ["edge-transformer/texas/gcn", "edge-transformer/exp/gcn"],
        ["edge-transformer/texas/gcn@own", "edge-transformer/texas/gcn@shipped"],
    ],
)
def test_incomparable_cells_are_refused_in_one_line(project, arguments):
    shown = run(*arguments)
    assert shown.exit_code == 1


def test_attempts_of_a_cell_are_compared(project):
    cell = "edge-transformer/exp/gcn"
    store = Store()
    before = [make_record(cell, seed, test=0.3 + 0.02 * seed) for seed in range(4)]
    for record in before:
        store.put(record)
    remember(make_result(cell, before, None), store)
    remember(gather(project).versions["own", cell].result, store)
    shown = run(f"{cell}@1", f"{cell}@2")
    assert shown.exit_code == 0, shown.output
    assert "second is better" in shown.output
    assert "there is no attempt 3; there are 1 to 2" in str(run(f"{cell}@1", f"{cell}@3").exception)


def test_a_run_without_a_number_has_no_pair(project):
    held = gather(project)
    its = held.versions["own", "edge-transformer/exp/gcn"].records
    its[0] = changed(its[0], run={"test": float("nan")})
    assert len(sides("gcn", project, held)["exp"][0].values) == 3


def test_shipped_runs_are_compared_where_ones_own_are_cut(project):
    cell = "edge-transformer/exp/gcn"
    held = gather(project)
    own = held.versions["own", cell]
    held.versions["shipped", cell] = Version.of("shipped", own.result, own.records)
    assert sides(cell, project, held)["exp"][0].name == cell
    cut = changed(own.result, reduced=[reduction("3 of 12 epochs").to_disk()])
    held.versions["own", cell] = Version.of("own", cut, own.records)
    (side,) = sides(cell, project, held)["exp"]
    assert (side.name, side.version.source) == (f"{cell}@shipped", "shipped")
    assert "your runs are reduced (3 of 12 epochs)" in side.remark
    (side,) = sides(f"{cell}@own", project, held)["exp"]
    assert (side.name, side.version.source, side.remark) == (f"{cell}@own", "own", "")
    cut = changed(own.result, reduced=[reduction("6 of 12 epochs").to_disk()])
    held.versions["shipped", cell] = Version.of("shipped", cut, own.records)
    assert sides(cell, project, held)["exp"][0].version.source == "own"


def test_a_comparison_without_runs_names_rows_and_cells_of_the_dataset(project):
    held = gather(project)
    with refused(RecipeError, value="ppgt/mlp", remedy="run one: gt-bench work ppgt/cornell/mlp"):
        sides("ppgt/mlp", project, held)
    with refused(RecipeError, value="mlp", remedy="rows with runs on csl: gcn, gin, gat"):
        sides("mlp", project, held, ["csl"])
    with refused(RecipeError, place="--dataset", value="csll"):
        comparisons(["gcn", "gin"], project, held, ["csll"])
