"""`gt-bench submit`: what is wrong with a contributed file is named, whoever edited it and however carefully."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from gt_bench.api.all_results import load_results
from gt_bench.config.cell_recipe import recipes_of
from gt_bench.config.grid import load_grid
from gt_bench.leaderboard.words import notes_of
from gt_bench.pipeline.gather import gather
from gt_bench.provenance.submission import check, submit
from gt_bench.provenance.transfer import import_records
from gt_bench.records.run import Digests
from gt_bench.reports.html.cell_details import of_cells
from gt_bench.reports.html.content import board
from gt_bench.store.predictions import shipped_file
from gt_bench.store.run_store import run_digest
from gt_bench.store.shipped_files import read
from gt_bench.utils.paths import record_file
from tests.gt_bench.shipping import CELL, export, in_first, resealed, rewrite, run, train


@pytest.fixture
def contributed(trained, tmp_path) -> Path:
    """The exported cell, under a name of its own outside suites/."""
    export()
    file = tmp_path / "contribution.json.gz"
    file.write_bytes(record_file(CELL).read_bytes())
    shipped_file(file).write_bytes(shipped_file(record_file(CELL)).read_bytes())
    return file


def sealed_again(change):
    """A change of the deterministic part of the first record, whose checksum is then computed again."""

    def applied(record):
        change(record["deterministic"])
        record.update(resealed(record))

    return in_first(applied)


def rekeyed(change):
    """A change of every run, whose digests and checksum are then computed again."""

    def applied(content):
        for record in content["records"]:
            deterministic = record["deterministic"]
            change(deterministic)
            keys = [deterministic[key] for key in ("recipe", "seed", "split", "digests", "versions")]
            keys[3] = Digests.from_disk(keys[3])
            record.update(resealed(record) | {"digest": run_digest(*keys)})
        content["result"]["runs"] = [record["digest"] for record in content["records"]]

    return applied


def with_test(value):
    return sealed_again(lambda run: run.update(test=value, test_metrics=run["test_metrics"] | {"accuracy": value}))


def chosen_on_test(run):
    """The epoch that is best on test is tested, not the one that validation selects."""
    run["epochs"]["val"] = [0.9, 0.2, 0.3, 0.4, 0.5, 0.6]
    run.update(best_epoch=6, val=0.6)


def without_seed(content):
    content["records"].pop()
    content["result"]["runs"].pop()
    content["result"]["seeds"].pop()


def twice(content):
    for part in (content["records"], content["result"]["runs"], content["result"]["seeds"]):
        part[1] = part[0]


def copied(content):
    first, second = (record["deterministic"] for record in content["records"])
    second["epochs"]["train_loss"] = first["epochs"]["train_loss"]
    content["records"][1].update(resealed(content["records"][1]))


def on_another_split(run):
    run["split"] = 1 - run["split"]


def changed(key, **values):
    """A change of a part of every file: its result, or the measured part of its first record."""
    return lambda content: (content[key] if key == "result" else content["records"][0][key]).update(values)


FORM, CHOSEN, SEEDS, PLAUSIBLE = "schema, digests and checksums", "selection on validation", "seeds", "plausibility"
RECIPE, VERSIONS = "cell and recipe", "versions and golden values"
OTHER_CODE = in_first(
    lambda r: (r["measured"]["environment"].update(commit=f"{'0123abcd' * 5}-dirty"), r["measured"].update(code="0"))
)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (in_first(lambda r: r["deterministic"].update(test=0.9, test_metrics={"accuracy": 0.9})), FORM),
        (in_first(lambda r: r["deterministic"]["epochs"]["train_loss"].__setitem__(0, 9.0)), FORM),
        (in_first(lambda r: r.update(checksum="0" * 64)), FORM),
        (in_first(lambda r: r.update(digest="0" * 64)), FORM),
        (with_test(1.5), FORM),
        (twice, FORM),
        (changed("measured", started="now"), "file"),
        (sealed_again(chosen_on_test), CHOSEN),
        # the checksum was computed again: only its consequences tell
        (with_test(0.9), "predictions"),
        (sealed_again(lambda run: run["epochs"]["train_loss"].__setitem__(0, float("nan"))), PLAUSIBLE),
        (copied, PLAUSIBLE),
        (sealed_again(lambda run: run.update(epochs={k: [*v, v[0]] for k, v in run["epochs"].items()})), PLAUSIBLE),
        (sealed_again(lambda run: run.update(epochs={k: v[:5] for k, v in run["epochs"].items()})), PLAUSIBLE),
        (sealed_again(lambda run: run.update(parameters=7)), PLAUSIBLE),
        (changed("measured", seconds=1e-9), PLAUSIBLE),
        (changed("measured", seconds=-1.0), PLAUSIBLE),
        (changed("measured", finished="2999-01-01T00:00:00+00:00"), PLAUSIBLE),
        (changed("result", status="oom"), PLAUSIBLE),
        (without_seed, SEEDS),
        (rekeyed(on_another_split), SEEDS),
        (changed("result", reduced=[{"unit": "seeds", "have": 1, "full": 2}]), SEEDS),
        (changed("result", seeds=[0, 9]), SEEDS),
        (changed("result", cell="small/web/other"), RECIPE),
        (changed("result", model="other"), RECIPE),
        (lambda c: c["result"]["recipe"].update(epochs=60), RECIPE),
        (lambda c: c["result"]["recipe"].update(epochs="many"), RECIPE),
        (changed("result", published={"paper": "hot", "table": "1", "method": "HOT"}), RECIPE),
        (rekeyed(lambda run: run["versions"].update(trainer=99)), VERSIONS),
        (rekeyed(lambda run: run["digests"].update(modified="0" * 64)), VERSIONS),
        (rekeyed(lambda run: run["digests"].update(data="0" * 64)), "data and encodings"),
        (OTHER_CODE, "committed code"),
        (in_first(lambda r: r.update(verified="recomputed")), "marks"),
    ],
)
def test_faults_of_a_submission_are_named_with_exit_status_1(contributed, change, what):
    assert {one.outcome for one in check(contributed, load_grid()).checks} == {"ok"}
    rewrite(contributed, change)
    before = contributed.read_bytes()
    report = check(contributed, load_grid())
    assert what in [one.what for one in report.checks if one.outcome == "problem"], report.markdown()
    assert not report.acceptable
    assert run("submit", str(contributed)).exit_code == 1
    # a problem is not repaired by a mark
    assert run("submit", str(contributed), "--by", "Jane").exit_code == (0 if what == "marks" else 1)
    assert (contributed.read_bytes() == before) == (what != "marks")


@pytest.mark.parametrize(
    "content",
    [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"no gzip",
     lambda data: gzip.compress(b'{"schema": 3}')],
)  # fmt: skip
def test_a_file_that_cannot_be_read_has_a_report_too(contributed, content):
    contributed.write_bytes(content(contributed.read_bytes()))
    shown = run("submit", str(contributed), "--json")
    assert shown.exit_code == 1
    (report,) = json.loads(shown.output)
    assert (report["acceptable"], [one["check"] for one in report["checks"]]) == (False, ["file"])
    assert str(contributed) in report["checks"][0]["lines"][0]


def test_a_run_that_is_shipped_with_other_numbers(contributed):
    def found():
        return next(one for one in check(contributed, load_grid()).checks if one.what == "shipped records")

    assert (found().outcome, found().lines) == ("ok", ("replaces 2 shipped runs, 2 of them the same runs",))
    rewrite(contributed, with_test(0.9))
    assert found().outcome == "problem"
    said = "seed 0 differs from the shipped record of the same run in test, test_metrics"
    assert found().lines[0] == f"{said} (same kind of processor)"
    rewrite(contributed, in_first(lambda r: r["measured"]["environment"].update(cpu="another")))
    assert (found().outcome, found().lines[1]) == ("ok", f"{said} (differs: cpu)")
    record_file(CELL).unlink()
    assert found().lines == ("no other records of this cell are shipped",)


def test_missing_predictions_and_data_are_reported_and_the_rest_is_checked(contributed, trained):
    shipped_file(contributed).unlink()
    shutil.move("data", "elsewhere")
    report = check(contributed, load_grid())
    open_ = {one.what: one.lines for one in report.checks if one.outcome == "not checked"}
    assert report.acceptable
    assert open_.keys() == {"plausibility", "predictions"}  # the file has the origin of its data
    assert open_["plausibility"][0].startswith("number of parameters: dataset 'web'")
    assert "- [ ] predictions: not checked" in report.markdown()


def test_predictions_of_other_runs_are_a_problem(contributed):
    outputs = shipped_file(contributed)
    outputs.write_bytes(b"no archive")
    assert "not an archive of predictions" in run("submit", str(contributed)).output
    assert run("submit", str(contributed)).exit_code == 1


def test_marks_go_with_the_records_to_store_export_leaderboard_and_page(contributed, trained):
    assert load_results()["contributed"][0] is None
    shown = run("submit", str(contributed), "--by", "Jane Doe, Some University")
    assert shown.exit_code == 0
    assert "| by | contributed by Jane Doe, Some University; verified: schema only |" in shown.output
    assert [record.by for record in read(contributed).records] == ["Jane Doe, Some University"] * 2
    record_file(CELL).write_bytes(contributed.read_bytes())
    for file in Path("store").rglob("record.json"):
        file.unlink()
    Path("results", f"{CELL}.json").unlink()
    assert import_records([read(record_file(CELL))]) == (2, 0)
    train()
    export()
    assert [record.verified for record in read(record_file(CELL)).records] == ["schema only"] * 2
    grid = load_grid()
    found = gather(grid)
    rows = [*found.rows, *found.others]
    expected = "contributed by Jane Doe, Some University; verified: schema only"
    assert {row.contributed for row in rows} == {expected}
    assert all(expected in notes_of(row) for row in rows)
    assert [line["source"] for line in board(rows, [])] == ["own, contributed", "shipped, contributed"]
    assert expected in of_cells(grid, found, recipes_of(grid.cells.values()))[f"shipped:{CELL}"]["remarks"]


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", "bell\a"])
def test_a_name_that_cannot_be_written(contributed, name):
    before = contributed.read_bytes()
    shown = run("submit", str(contributed), "--by", name)
    assert shown.exit_code != 0
    assert "--by" in str(shown.exception)
    assert contributed.read_bytes() == before


def test_a_name_cannot_bring_html_or_links_into_the_report(contributed):
    (report,) = submit([contributed], load_grid(), by="<img src=x> [a](http://b)")
    assert "<img" not in report.markdown()
    assert "](http" not in report.markdown()


@pytest.mark.slow
def test_a_search_whose_values_were_not_selected_on_validation(trained):
    from gt_bench.pipeline.train import train_cell
    from gt_bench.pipeline.tune import tune_cell
    from gt_bench.provenance.transfer import export_cell

    space = {"model.dropout": {"choices": [0.0, 0.5]}}
    trained.recipe(search={"trials": 2, "sampler_seed": 0, "space": space})
    grid = load_grid()
    cell = grid.find(CELL)
    tune_cell(cell, grid)
    train_cell(cell, grid)
    path = export_cell(cell)

    def better_trial(content):
        chosen = content["records"][0]["deterministic"]["recipe"]
        other = next(t for t in content["trials"] if t["deterministic"]["recipe"] != chosen)
        run = other["deterministic"]
        run["epochs"]["val"] = [1.0, *run["epochs"]["val"][1:]]
        run.update(best_epoch=1, val=1.0)
        other.update(resealed(other))

    rewrite(path, better_trial)
    (found,) = [one for one in check(path, load_grid()).checks if one.what == "selection on validation"]
    assert found.outcome == "problem"
    assert "but another trial has 1.0: values were not selected on validation" in found.lines[0]
