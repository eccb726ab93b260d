"""`gt-bench doctor`: one line for each problem of a grid, with the file and the remedy."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.cli.app import app
from gt_bench.pipeline.grid import main as write_grid
from tests.conftest import ROOT

RECIPE = Path("suites/embedded/recipes/chains/mlp.yaml")


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_sound_grid(repository):
    shown = run("doctor")
    assert (shown.exit_code, shown.output) == (0, "1 cells, 0 records, 0 problems\n")
    assert "embedded/chains/mlp" in run("list", "embedded").output


@pytest.mark.parametrize(
    ("addition", "says"),
    [
        (
            "published: {paper: hott, table: Table 1, method: GCN}",
            "published.paper: no paper 'hott' (did you mean 'hot'?)",
        ),
        ("published: {paper: hot, table: Table 1, method: GNC}", "published.method: results.yaml has no 'GNC'"),
        ("encodings: {rrwp: {steps: 3}}", "encodings.rrwp: model 'mlp' does not use it"),
        (
            "search: {trials: 1, space: {model.dropout: {choices: [0.1]}}}",
            "expected `settings: tuned` if and only if",
        ),
        (
            "search: {trials: 1, space: {model.droput: {choices: [0.1]}}}",
            "search.space.model.droput: unknown key (did you mean 'dropout'?)",
        ),
        ("epocs: 3", "epocs: unknown key (did you mean 'epochs'?)"),
    ],
)
def test_faults_of_a_recipe_are_reported(repository, addition, says):
    RECIPE.write_text(f"{RECIPE.read_text()}{addition}\n")
    shown = run("doctor")
    assert shown.exit_code == 1
    assert says in shown.output
    assert str(RECIPE) in shown.output
    assert "1 problems" in shown.output


def test_several_processes_for_one_graph(repository):
    path = Path("suites/edge-transformer/recipes/texas/edge-transformer.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"{(ROOT / path).read_text()}processes: 2\n")
    assert write_grid([]) == 0
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: processes: 2 processes cannot share a batch, because 'texas' is a single graph" in shown.output


def test_a_dataset_that_does_not_exist(repository):
    RECIPE.parent.rename("suites/embedded/recipes/chians")
    assert write_grid([]) == 0
    shown = run("doctor")
    assert shown.exit_code == 1
    assert "no dataset named 'chians' (did you mean 'chains'?)" in shown.output


def test_a_damaged_record(repository):
    path = Path("store/ab/ab12/record.json")
    path.parent.mkdir(parents=True)
    path.write_text('{"digest": ')
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: not a record" in shown.output
    assert "delete the file" in shown.output
