"""Shipped cells compared with the current code: recipe, versions, golden values, data and encodings."""

import shutil
from pathlib import Path

import pytest

from gt_bench.config.components import code_of
from gt_bench.config.grid import load_grid
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.encodings import compute
from gt_bench.pipeline.gather import gather
from gt_bench.pipeline.train import train_cell
from gt_bench.plugins.model_errors import OwnModelError
from gt_bench.provenance.staleness import freshness
from gt_bench.provenance.transfer import export_cell
from gt_bench.store.shipped_files import Shipped, problems_of, read
from gt_bench.utils.code_digest import _read_version
from gt_bench.utils.paths import recipe_file
from gt_models.encodings import compute_with_flags
from tests.gt_bench.shipping import CELL, edit_header, export, run, train


def test_changes_since_the_runs_make_a_cell_stale(trained, monkeypatch):
    shipped = read(export())
    grid = load_grid()
    assert freshness(shipped, grid).text == "up to date"
    # without data: the digests of their inputs
    shutil.move("data", "elsewhere")
    assert freshness(shipped, grid).text == "up to date"
    nowhere = Shipped(shipped.path, shipped.result, shipped.records)
    assert freshness(nowhere, grid).text == "unknown: data (not available)"
    shutil.move("elsewhere", "data")
    with monkeypatch.context() as patched:
        patched.setattr(
            "gt_bench.config.components.version_of", lambda module: 2 if module == "gt_models.baselines.mlp" else 1
        )
        assert [*map(str, freshness(shipped, grid).stale)] == ["model (version 1, now 2)"]
    newer = shipped.records[0].run.versions
    newer["trainer"] = 3
    assert [*map(str, freshness(shipped, grid).stale)] == [
        "trainer (version 3, now 1: these records were computed by newer code)"
    ]
    newer["trainer"] = 1
    with monkeypatch.context() as patched:  # a model with a syntax error
        code_of.cache_clear()
        patched.setattr("gt_bench.utils.code_digest.ast.parse", lambda text: compile("1 +", "model.py", "exec"))
        patched.setattr("gt_bench.utils.code_digest._read_version", _read_version.__wrapped__)
        patched.setattr("gt_bench.utils.code_digest._parsed", dict)  # nothing is cached
        assert [*map(str, freshness(shipped, grid).stale)] == ["code"]
    trained.recipe(epochs=7)
    assert [*map(str, freshness(shipped, load_grid()).stale)] == ["recipe"]
    trained.recipe(seeds=[0, 1, 2])
    assert [*map(str, freshness(shipped, load_grid()).stale)] == ["recipe"]
    trained.recipe()
    edit_header(in_dim=6)
    assert [*map(str, freshness(shipped, load_grid()).stale)] == ["data"]
    edit_header(provenance={"spec": "older"})
    assert freshness(nowhere, load_grid()).text == "unknown: data (computed by other code)"


def test_a_fine_tuned_cell_is_compared_but_for_the_run_that_it_starts_from(trained):
    trained.recipe(keep_weights=True)
    trained.recipe(row="tuned-on", start={"cell": CELL, "load": "all"})
    grid = load_grid()
    for row in ("mlp", "tuned-on"):
        train_cell(grid.find(f"small/web/{row}"), grid)
    shipped = read(export_cell(grid.find("small/web/tuned-on")))
    assert problems_of(shipped) == []
    assert freshness(shipped, grid).text == "unknown: the run that it starts from"
    trained.recipe(row="tuned-on", start={"cell": CELL, "load": "common"})
    assert [*map(str, freshness(shipped, load_grid()).stale)] == ["recipe"]


def other_last_digits(*given, **arguments):
    arrays, flags = compute_with_flags(*given, **arguments)
    return {name: array * (1 + 2e-7) for name, array in arrays.items()}, flags


@pytest.mark.slow
def test_encodings_are_compared_by_what_is_computed_and_never_by_bits(trained, monkeypatch):
    from gt_bench.pipeline.encode import encode_dataset

    trained.recipe(
        model={"name": "tokengt", "hidden_dim": 8, "num_layers": 1, "num_heads": 2},
        encodings={"laplacian": {"k": 16}},
        epochs=1,
    )
    grid = load_grid()
    encode_dataset("web", grid)
    train()
    shipped = read(export())
    assert [*shipped.records[0].measured.encodings] == ["laplacian-k=16-normalization=sym-which=lowest"]
    shutil.rmtree("data/encodings")  # not computed yet here, then computed by another library
    assert freshness(shipped, grid).text == "up to date"
    monkeypatch.setattr(compute, "compute_with_flags", other_last_digits)
    encode_dataset("web", grid)
    assert freshness(shipped, grid).text == "up to date"
    assert train().runs == shipped.result.runs
    shutil.rmtree("data")
    assert freshness(shipped, grid).text == "up to date"
    monkeypatch.setattr("gt_bench.encodings.cache.version_of", lambda module: 2)
    assert freshness(shipped, grid).text == "unknown: encodings (not available)"


@pytest.mark.slow
def test_a_searched_cell_is_compared_with_its_search_space(project, monkeypatch):
    from gt_bench.pipeline.tune import tune_cell

    spec = DatasetSpec(name="web", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    search = {"trials": 2, "space": {"model.dropout": {"choices": [0.0, 0.5]}}}
    project.recipe(search=search)
    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    train()
    shipped = read(export())
    assert "recipe" not in [*map(str, freshness(shipped, grid).stale)]
    project.recipe(search={**search, "space": {"model.dropout": {"choices": [0.3]}}})
    assert "recipe" in [*map(str, freshness(shipped, load_grid()).stale)]
    project.recipe(search=search, epochs=9)
    assert "recipe" in [*map(str, freshness(shipped, load_grid()).stale)]


def test_a_recipe_and_a_model_that_cannot_be_read_are_stale_and_stop_nothing(trained, monkeypatch):
    export()

    def fails(*_):
        raise OwnModelError("lab/net.py: there is no such file")

    monkeypatch.setattr("gt_bench.provenance.staleness.is_own", fails)
    shown = run("store", "verify")
    assert (shown.exit_code, f"{CELL}: 2 runs on cpu; stale: code" in shown.output) == (0, True), shown.output
    Path(recipe_file(CELL)).write_text("model: [")
    shown = run("store", "verify")
    assert (shown.exit_code, f"{CELL}: 2 runs on cpu; stale: recipe, code" in shown.output) == (0, True), shown.output
    assert gather(load_grid()).rows[0].state.complete
