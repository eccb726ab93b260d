"""`gt-bench verify-submission`: a seed is computed again and compared, bit for bit or within the stated tolerance."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.provenance.recompute import chosen_seeds, compare
from gt_bench.store.record_checks import record_problems
from gt_bench.store.run_store import StoreError, sealed
from gt_bench.store.shipped_files import read, write
from gt_bench.utils.errors import UserError
from gt_bench.utils.paths import record_file
from tests.gt_bench.cells import changed as with_values
from tests.gt_bench.shipping import CELL, export, in_first, rewrite, run
from tests.refusals import refused


@pytest.fixture
def contributed(trained, tmp_path) -> Path:
    """The exported cell in a project whose store has no record."""
    export()
    file = tmp_path / "contribution.json.gz"
    file.write_bytes(record_file(CELL).read_bytes())
    shutil.rmtree("store")
    return file


def changed(record, processor=None, **values):
    """A sound record with other values, computed on another processor if one is named."""
    if "test" in values:
        values["test_metrics"] = record.run.test_metrics | {"accuracy": values["test"]}
    cpu = {"cpu": processor} if processor else {}
    record = sealed(
        with_values(record, run=values, measured={"environment": record.measured.environment.to_disk() | cpu})
    )
    assert record_problems(record) == []
    return record


def in_file(path: Path, **options) -> None:
    one = read(path)
    write(replace(one, records=[changed(one.records[0], **options), *one.records[1:]]))


@pytest.mark.slow
def test_equal_runs_are_confirmed_bit_for_bit_and_marked(contributed, trained):
    run("submit", str(contributed), "--by", "Jane")
    shown = run("verify-submission", str(contributed), "--seed", "0", "--mark")
    assert shown.exit_code == 0
    assert "seed 0: equal: test 0.25 and 0.25; same kind of processor; equal bit for bit" in shown.output
    assert "1 of 1 recomputed seeds confirm the records" in shown.output
    assert [(r.verified, r.by) for r in read(contributed).records] == [
        ("recomputed", "Jane"),
        ("schema only", "Jane"),
    ]
    # the recomputed runs are no records of the store
    assert not list(Path("store").glob("??/*/record.json"))
    # a second seed adds its mark; nothing is computed twice
    before = {p: p.stat().st_mtime_ns for p in Path("store/recomputed").rglob("record.json")}
    assert len(before) == 1
    assert run("verify-submission", str(contributed), "--runs", "2", "--mark").exit_code == 0
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert [r.verified for r in read(contributed).records] == ["recomputed"] * 2


def test_without_mark_the_file_is_not_changed(contributed):
    before = contributed.read_bytes()
    shown = run("verify-submission", str(contributed), "--runs", "2", "--json")
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert (found["verified"], [seed["outcome"] for seed in found["seeds"]]) == (True, ["equal", "equal"])
    assert contributed.read_bytes() == before


def test_a_number_that_was_edited_with_its_checksum_is_found(contributed):
    in_file(contributed, test=0.9)
    before = contributed.read_bytes()
    shown = run("verify-submission", str(contributed), "--seed", "0", "--mark")
    assert shown.exit_code == 1
    assert "seed 0: different: test 0.9 and 0.25; same kind of processor; differs in test, test_metrics" in shown.output
    assert "0 of 1 recomputed seeds confirm" in shown.output
    assert contributed.read_bytes() == before
    # a record of the store is never taken for a recomputed one
    run("store", "import")
    assert run("verify-submission", str(contributed), "--seed", "0").exit_code == 1


@pytest.mark.slow
def test_another_processor_has_a_tolerance(contributed):
    records = read(contributed).records
    tests = [record.run.test for record in records]
    assert tests == [0.25, 0.4]

    def outcome(theirs, level=0.05, others=records):
        (found,) = compare([(theirs, records[0])], others, level)
        return found

    same = outcome(changed(records[0], "another"))
    assert (same.outcome, same.why) == ("equal", "equal bit for bit (differs: cpu)")
    near = outcome(changed(records[0], "another", test=0.3))
    assert near.outcome == "within tolerance"
    # Student's t with one degree of freedom: 12.706 * 0.10607 * sqrt(2)
    assert "mean difference of the test metric -0.05, limit 1.906" in near.why
    far = outcome(changed(records[0], "another", test=0.9), level=0.3)
    assert (far.outcome, far.is_verified) == ("different", False)
    alone = changed(records[0], "another", test=0.3)
    assert (outcome(alone, others=[alone]).outcome, outcome(alone, others=[alone]).is_verified) == ("undecided", False)
    curves = records[0].run.epochs
    losses = [curves["train_loss"][0] * 1.02, *curves["train_loss"][1:]]
    lost = outcome(changed(records[0], "another", epochs=curves | {"train_loss": losses}))
    assert lost.outcome == "different"
    assert "more than 1 % apart" in lost.why
    other = changed(records[0], "another", parameters=7)
    assert outcome(other).why == "parameters does not depend on the processor, but differs"


def test_the_seeds_are_drawn_by_the_digest_of_the_file(contributed):
    one = read(contributed)
    assert chosen_seeds(one, 1) == chosen_seeds(one, 1)
    assert chosen_seeds(one, 2) == [0, 1]
    assert chosen_seeds(one, 1, [1, 1]) == [1]
    with refused(OptionError, place="--runs", value=3, remedy="use --runs 2 or less"):
        chosen_seeds(one, 3)
    with refused(OptionError, place="--seed", value=7):
        chosen_seeds(one, 1, [7])


@pytest.mark.parametrize(
    ("prepare", "kind", "problem"),
    [
        (lambda file, project: project.recipe(epochs=7), RecipeError, "recipe of its run is not the one"),
        (lambda file, project: shutil.rmtree("data"), UserError, "no packed dataset"),
        (lambda file, project: file.write_bytes(file.read_bytes()[:300]), StoreError, "Compressed file ended"),
        (
            lambda file, project: rewrite(file, in_first(lambda r: r["deterministic"].update(test=0.9))),
            StoreError,
            "its test value is 0.9, but its accuracy on the test split is",
        ),
        (
            lambda file, project: rewrite(file, lambda c: c["result"].update(cell="small/web/other")),
            RecipeError,
            "no cell 'small/web/other'",
        ),
    ],
)
def test_a_failed_recomputation_is_an_error_and_marks_nothing(contributed, trained, prepare, kind, problem):
    prepare(contributed, trained)
    before = contributed.read_bytes()
    with refused(kind) as error:
        raise run("verify-submission", str(contributed), "--mark").exception
    assert problem in error.value.problem
    assert contributed.read_bytes() == before


def test_missing_data_and_encodings_are_prepared(contributed, monkeypatch):
    packed = Path("data/packed/web")
    packed.rename("packed")

    def prepared(name, *_):
        Path("packed").rename(packed)
        return PackedDataset.open(packed)

    monkeypatch.setattr("gt_bench.provenance.recompute.prepared_dataset", prepared)
    encoded = []
    monkeypatch.setattr("gt_bench.provenance.recompute.encode_for", lambda recipe, data, folder: encoded.append(data))
    assert run("verify-submission", str(contributed)).exit_code == 0
    assert [data.header.name for data in encoded] == ["web"]


@pytest.mark.slow
def test_values_of_a_search_come_from_the_records(trained):
    from gt_bench.pipeline.train import train_cell
    from gt_bench.pipeline.tune import tune_cell

    trained.recipe(search={"trials": 2, "sampler_seed": 0, "space": {"model.dropout": {"choices": [0.0, 0.5]}}})
    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    train_cell(grid.find(CELL), grid)
    path = export()
    for folder in ("store", "tuned", "studies", "results"):
        shutil.rmtree(folder, ignore_errors=True)
    assert run("submit", str(path)).exit_code == 0
    shown = run("verify-submission", str(path))
    assert shown.exit_code == 0
    assert "equal bit for bit" in shown.output
