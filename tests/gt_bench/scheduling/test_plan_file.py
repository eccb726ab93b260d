"""Plan files: names, limits, and errors for unknown names."""

from pathlib import Path

import pytest

from gt_bench.config.grid import Limits, load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.scheduling.plan_file import entries_of, limited_grid, read_plan


@pytest.fixture
def grid(project):
    for row in ("mlp", "gcn", "gcn-wide"):
        project.recipe(row=row, limits={"small": {"epochs": 3}})
    return load_grid()


def plan(text: str) -> Path:
    path = Path("plan.yaml")
    path.write_text(text)
    return path


def test_entries_name_suites_cells_and_patterns_and_cut(grid):
    entries = read_plan(
        plan("runs:\n- cells: ['small/web/gcn*', small/web/gcn]\n  seeds: 1\n- {cells: [small]}\n"), grid
    )
    assert [[cell.model for cell in entry.cells] for entry in entries] == [
        ["gcn", "gcn-wide"],
        ["gcn", "gcn-wide", "mlp"],
    ]
    assert entries[0].limits == Limits(seeds=1)
    cell = entries[0].cells[0]
    # other limits of params.yaml remain
    assert limited_grid(grid, cell, entries[0].limits).limits_of(cell) == Limits(seeds=1, epochs=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "runs:\n- {cells: [small/web/gcm]}",
            "plan.yaml: entry 1: no cell 'small/web/gcm' in grid.yaml (did you mean 'small/web/gcn'?)",
        ),
        ("runs:\n- {cells: [small]}\n- {cells: ['big/*']}", "plan.yaml: entry 2: no cell matches 'big/*'"),
        ("runs:\n- {cells: [smal]}", "plan.yaml: entry 1: no suite named 'smal' (did you mean 'small'?)"),
        ("runs:\n- {cells: [small], seed: 3}", "plan.yaml: unknown key 'runs.0.seed' (did you mean 'seeds'?)"),
        ("runs:\n- {cells: [small], seeds: 0}", "plan.yaml: runs.0.seeds"),
        ("runs: []", "plan.yaml: runs: is empty"),
        ("- small", "plan.yaml: expected a mapping"),
    ],
)
def test_a_plan_that_names_what_is_not_there(grid, text, says):
    with pytest.raises(RecipeError) as error:
        read_plan(plan(text), grid)
    assert says in str(error.value)


def test_no_such_plan_and_names_next_to_one(grid):
    with pytest.raises(RecipeError, match=r"no\.yaml: no such file"):
        entries_of([], Path("no.yaml"), grid)
    with pytest.raises(RecipeError, match="not both"):
        entries_of(["small"], Path("plan.yaml"), grid)
