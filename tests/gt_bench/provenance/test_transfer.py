"""Records are exported from one store and imported into another, with checks."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.leaderboard.row import Row
from gt_bench.provenance.staleness import freshness
from gt_bench.provenance.transfer import Conflict, file_problems, import_records
from gt_bench.records.cell import Imported
from gt_bench.records.state import Stale, StalePart
from gt_bench.store.run_store import Store, StoreError, sealed
from gt_bench.store.shipped_files import Shipped, problems_of, read, shipped_cells
from gt_bench.utils.paths import record_file
from tests.gt_bench.cells import changed
from tests.gt_bench.conftest import COMMIT
from tests.gt_bench.shipping import CELL, export, resealed, rewrite, run, train
from tests.refusals import refused


def test_there_and_back_gives_equal_records_and_equal_bytes(trained):
    path = export()
    first = path.read_bytes()
    stored = {p: p.read_text() for p in Path("store").rglob("record.json")}
    assert len(stored) == 2
    shutil.rmtree("store")
    assert import_records(list(shipped_cells(load_grid()))) == (2, 0)
    assert {p: json.loads(p.read_text()) for p in Path("store").rglob("record.json")} == {
        p: json.loads(t) for p, t in stored.items()
    }
    assert import_records(list(shipped_cells(load_grid()))) == (0, 2)
    path.unlink()
    assert export().read_bytes() == first
    # a cell whose records were imported is not trained again
    shutil.rmtree("results")
    before = {p: p.stat().st_mtime_ns for p in Path("store").rglob("record.json")}
    assert train().status == "ok"
    assert {p: p.stat().st_mtime_ns for p in Path("store").rglob("record.json")} == before


def test_a_record_of_another_machine_is_there_already_and_one_that_contradicts_stops_everything(trained):
    path = export()
    digest = json.loads(Path("results", f"{CELL}.json").read_text())["runs"][1]
    file = Store().folder(digest) / "record.json"
    elsewhere = json.loads(file.read_text())
    elsewhere["measured"]["device"] = "another"
    file.write_text(json.dumps(elsewhere))
    assert import_records([read(path)]) == (0, 2)
    assert json.loads(file.read_text())["measured"]["device"] == "another"
    elsewhere["deterministic"]["test"] = 0.125
    file.write_text(json.dumps(resealed(elsewhere)))
    other = next(p for p in Path("store").rglob("record.json") if p != file)
    other.unlink()
    with refused(Conflict) as error:
        import_records([read(path)])
    assert error.value.problem.endswith("differ in test")
    assert not other.exists()
    elsewhere["measured"]["environment"]["cpu"] = "another"
    file.write_text(json.dumps(resealed(elsewhere)))
    with refused(Conflict) as error:
        import_records([read(path)])
    assert "differ in test (computed on another and on " in error.value.problem


def test_the_same_run_told_in_two_ways(trained):
    one = read(export())
    other = sealed(changed(one.records[0], run={"parameters": one.records[0].run.parameters + 1}))
    second = Shipped(
        Path("suites/small/records/web/twin.json.gz"),
        changed(one.result, cell="small/web/twin"),
        [other, one.records[1]],
    )
    assert file_problems([one]) == {one.path: []}
    (problem,) = file_problems([one, second])[second.path]
    assert "contain different records of one run (they differ in parameters)" in problem


def test_an_import_is_on_the_leaderboard_at_once(trained):
    from gt_bench.pipeline.leaderboard import collect

    def row() -> Row:
        return collect([load_grid().find(CELL)], Path("results"), Store(), 1.0)[0][0]

    computed = row()
    export()
    for folder in ("store", "results"):
        shutil.rmtree(folder)
    assert "1 results written" in run("store", "import").output
    assert row() == replace(computed, imported=Imported(commit=COMMIT, stale=[]))
    exported = record_file(CELL).read_bytes()
    export()
    assert record_file(CELL).read_bytes() == exported  # an export does not contain whether a record was imported
    # stale records are marked; training uses all others
    trained.recipe(epochs=7)
    run("store", "import")
    assert row().imported.stale == row().state.stale == [Stale(part=StalePart.RECIPE)]
    trained.recipe()
    assert train().runs == list(computed.summary.digests)
    assert row() == computed
    # a local result is not replaced, neither is a broken one
    assert "0 results written" in run("store", "import").output
    assert row() == computed
    Path("results", f"{CELL}.json").write_text("[]")
    assert "0 results written" in run("store", "import").output
    # a result without runs is replaced
    Path("results", f"{CELL}.json").unlink()
    shutil.move("data", "elsewhere")
    assert train().status == "not run: data"
    assert "1 results written" in run("store", "import").output
    assert row().summary.runs == 2


def test_a_reduced_cell_does_not_take_the_place_of_a_full_one(trained):
    path = export()
    full = path.read_bytes()
    trained.recipe(limits={"small": {"epochs": 2, "seeds": 1}})
    train()
    with refused(StoreError, file=str(path), remedy="use --replace to overwrite it"):
        export()
    assert path.read_bytes() == full
    export(replace=True)
    # the cell reports that epochs were cut; its recipe is still the current one
    shipped = read(path)
    assert [*map(str, shipped.result.reduced)] == ["1 of 2 seeds", "2 of 6 epochs"]
    trained.recipe()
    assert freshness(shipped, load_grid()).stale == []


@pytest.mark.slow
def test_a_search_travels_with_its_cell_and_is_found_again_without_training(project, monkeypatch):
    from gt_bench.pipeline.tune import tune_cell
    from gt_bench.training.trainer import Run

    spec = DatasetSpec(name="web", task="node-classification", metric="accuracy", prepare=print, level="node")
    monkeypatch.setitem(catalog(), "web", spec)
    search = {"trials": 3, "seeds": [0, 1], "sampler": "grid", "space": {"model.dropout": {"choices": [0.0, 0.3, 0.5]}}}
    project.recipe(search=search)
    grid = load_grid()
    chosen = tune_cell(grid.find(CELL), grid)
    result = train()
    shipped = read(export())
    assert (len(shipped.trials), len(shipped.records)) == (6, 2)
    # trials of another recipe are not imported
    project.recipe(search={"trials": 1, "space": {"model.dropout": {"choices": [0.1]}}})
    tune_cell(load_grid().find(CELL), load_grid())
    project.recipe(search=search)
    assert read(export()) == shipped

    for folder in ("store", "studies", "tuned", "results"):
        shutil.rmtree(folder)
    assert import_records([shipped]) == (8, 0)
    monkeypatch.setattr(Run, "train", lambda *_: pytest.fail("a run was repeated"))
    assert tune_cell(grid.find(CELL), grid) == chosen
    assert train().runs == result.runs
    rewrite(shipped.path, lambda content: content["trials"].append(content["records"][0]))
    assert problems_of(read(shipped.path)) == [f"{shipped.path}: trial 6: is not a search trial"]
    rewrite(shipped.path, lambda content: content["records"].append(content["trials"].pop(0)))
    assert f"{shipped.path}: record 2: is a search trial" in problems_of(read(shipped.path))


def test_the_command_line(trained):
    shown = run("store", "export", "small")
    assert shown.exit_code == 0, shown.output
    assert "1 cells exported; 0 without a run" in shown.output
    shutil.rmtree("store")
    assert "2 records imported, 0 already present" in run("store", "import").output
    shown = run("store", "verify", CELL)
    assert shown.exit_code == 0, shown.output
    assert "2 runs on cpu; up to date" in shown.output


def test_records_of_code_that_is_in_no_commit_are_not_exported_unasked(trained, monkeypatch):
    monkeypatch.setattr("gt_bench.runtime.checkout.commit", lambda: f"{COMMIT}-dirty")
    shutil.rmtree("store")
    train()
    with refused(StoreError, place=CELL, value=f"{COMMIT}-dirty"):
        export()
    assert not list(Path("suites").rglob("*.json.gz"))
    assert isinstance(run("store", "export", CELL).exception, StoreError)
    assert "1 cells exported" in run("store", "export", CELL, "--dirty").output
    assert run("store", "verify").exit_code == 0


def test_records_whose_code_was_committed_since_are_exported(trained, monkeypatch):
    monkeypatch.setattr("gt_bench.runtime.checkout.commit", lambda: f"{COMMIT}-dirty")
    shutil.rmtree("store")
    train()
    monkeypatch.setattr("gt_bench.runtime.checkout.commit", lambda: "fedcba9876543210")
    assert export() is not None
    monkeypatch.setattr("gt_bench.provenance.transfer.code_now", lambda record, task: "of other code")
    with refused(StoreError, place=CELL, value=f"{COMMIT}-dirty"):
        export()


def test_a_missing_record_is_named(trained):
    path = next(Path("store").rglob("record.json"))
    path.unlink()
    with refused(StoreError, file=str(path), problem="is missing"):
        export()
