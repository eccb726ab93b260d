"""Validation of shipped files: problems are reported, and nothing is imported from a damaged file."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.train import train_cell
from gt_bench.provenance.transfer import export_cell, import_records
from gt_bench.store.run_store import StoreError
from gt_bench.store.shipped_files import KEYS, contribution_of, problems_of, read
from tests.conftest import ROOT
from tests.gt_bench.cells import ET, changed, make_record
from tests.gt_bench.shipping import export, in_first, resealed, rewrite, run
from tests.refusals import refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (in_first(lambda r: r["deterministic"].update(seed=7)), "digest"),
        (in_first(lambda r: r["measured"].pop("device")), "measured.device"),
        (in_first(lambda r: r["deterministic"].update(parameters=7)), "checksum"),
        (in_first(lambda r: r.update(schema=9)), "schema is 9"),
        (lambda c: c["result"].update(metric="mae"), "has another metric than its result"),
        (lambda c: c["result"].update(seeds=None), "its result: seeds is None"),
        (lambda c: c["result"].update(reduced=[7]), "its result: reduced.0 is 7"),
        (lambda c: c["result"].update(more=1), "its result: unknown key more"),
        (lambda c: c["result"].pop("reduced"), "its result: reduced is missing"),
        (lambda c: (c.update(records=[]), c["result"].update(runs=[])), "contains no record"),
        (lambda c: c["records"].reverse(), "are not the runs that its result lists"),
        (
            lambda c: (c["records"].append(c["records"][0]), c["result"]["runs"].append(c["result"]["runs"][0])),
            "duplicate seed 0",
        ),
        (lambda c: c["result"].update(cell="small/many/mlp"), "is the file of small/many/mlp"),
    ],
)
def test_a_faulty_file_is_refused_and_nothing_is_imported(trained, change, named):
    path = export()
    rewrite(path, change)
    shutil.rmtree("store")
    with pytest.raises(StoreError) as error:
        import_records([read(path)])
    assert named in str(error.value)
    assert not list(Path("store").rglob("record.json"))
    shown = run("store", "verify")
    assert shown.exit_code == 1
    assert named in shown.output


# 50 zeros after the header: zlib.error, which is neither an OSError nor a ValueError
ZEROED = gzip.compress(b"{}" * 99)[:10] + bytes(50)
DEEP = gzip.compress(b'{"schema": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "Expecting value"),
        (b"no gzip", "Not a gzipped file"),
        (gzip.compress(b"{"), "Expecting property name"),
        (ZEROED, "while decompressing data"),
        (DEEP, "maximum recursion depth exceeded"),
        (gzip.compress(b'{"schema": 4}'), "has schema 4"),
        (gzip.compress(b'{"schema": 1}'), "has schema 1"),
        (gzip.compress(json.dumps({key: {} for key in sorted(KEYS)} | {"schema": 2, "more": 1}).encode()), "key more"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path, content, problem):
    path = tmp_path / "row.json.gz"
    path.write_bytes(content)
    with refused(StoreError, file=str(path)) as error:
        read(path)
    assert problem in error.value.problem


def selected_elsewhere(record):
    """The tested epoch becomes the one with the worst validation value; the checksum is computed again."""
    run = record["deterministic"]
    run["epochs"]["val"] = [0.1, 0.2, 0.9, 0.4, 0.5, 0.6]
    run.update(best_epoch=1, val=0.1)
    record.update(resealed(record))


def test_an_epoch_that_validation_did_not_select_is_a_problem(trained):
    path = export()
    rewrite(path, in_first(selected_elsewhere))
    (problem,) = problems_of(read(path))
    assert problem == (
        f"{path}: record 0: its best epoch is 1, but the first best validation value is in epoch 3: the tested epoch "
        "was not selected on validation"
    )


def test_contributed_records_name_who_and_what_was_verified():
    records = [make_record(ET, seed) for seed in range(3)]
    assert contribution_of(records) is None
    marked = [changed(record, by="Jane", verified="schema only") for record in records]
    assert contribution_of(marked) == "contributed by Jane; verified: schema only"
    marked[1] = changed(marked[1], verified="recomputed")
    assert contribution_of(marked) == "contributed by Jane; verified: seed 1 recomputed"
    assert contribution_of([changed(record, verified="recomputed") for record in records]) == (
        "contributed by name not stated; verified: recomputed"
    )
    assert contribution_of([marked[0], *records[1:]]) == "contributed by Jane (1 of 3 runs); verified: schema only"


def test_verify_continues_after_a_file_that_cannot_be_read(trained):
    trained.recipe(row="other")
    train_cell(load_grid().find("small/web/other"), load_grid())
    path = export()
    export_cell(load_grid().find("small/web/other"))
    path.write_bytes(path.read_bytes()[:10] + bytes(50) + path.read_bytes()[60:])
    shown = run("store", "verify")
    assert shown.exit_code == 1
    assert f"{path}: not an export of records" in shown.output
    assert "small/web/other: 2 runs on cpu" in shown.output
    assert "1 shipped cells, 0 stale, 1 problems" in shown.output


def test_doctor_finds_a_record_of_the_store_that_contradicts_itself(trained):
    path = sorted(Path("store").rglob("record.json"))[0]
    record = json.loads(path.read_text())
    record["deterministic"]["test"] = 0.987
    path.write_text(json.dumps(resealed(record)))
    shown = run("doctor")
    assert shown.exit_code == 1
    assert f"{path}: its test value is 0.987" in shown.output


def test_a_folder_of_records_that_is_not_there_is_an_error(trained):
    export()
    places = ("store verify", "store import", "board small", "board web", "compare mlp small/mlp")
    for command in (*places, "page", "board", "claims"):
        shown = run(*command.split(), "--records", "nope")
        assert isinstance(shown.exception, StoreError)
        assert str(shown.exception).startswith("nope: folder of shipped records not found")


def test_every_shipped_record_is_sound():
    found = [read(path) for path in sorted((ROOT / "suites").glob("*/records/*/*.json.gz"))]
    assert [line for one in found for line in problems_of(one, ROOT / "suites")] == []
