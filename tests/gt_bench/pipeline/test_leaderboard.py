"""The leaderboard stage: every status, every kind of damaged input, and MLflow rebuilt from records."""

import json
import math
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gt_bench.pipeline.leaderboard import app
from gt_bench.store.run_store import Store, run_digest, sealed
from gt_bench.store.shipped_files import read_result
from gt_bench.tracking.mirror import Mirror
from tests.conftest import ROOT
from tests.gt_bench.cells import changed, make_record, make_result, without_data, write, write_grid
from tests.gt_bench.shipping import resealed

pytestmark = pytest.mark.slow

SUITE = "edge-transformer"
CELLS = [f"{SUITE}/{d}/{m}" for d in ("cornell", "texas", "wisconsin") for m in ("gcn", "edge-transformer")]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Six cells: two complete, one with a missing run, one without data, one reduced, one that never ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write_grid(tmp_path, CELLS, run={"tracking": True}, suites=[SUITE, "embedded"])
    runs = {
        CELLS[0]: [make_record(CELLS[0], s, test=0.56 + 0.01 * s) for s in range(3)],
        CELLS[1]: [make_record(CELLS[1], s, test=0.90 + 0.01 * s) for s in range(3)],
        CELLS[2]: [make_record(CELLS[2], 0), make_record(CELLS[2], 1, "oom", epochs=0)],
        CELLS[4]: [make_record(CELLS[4], s, test=0.69 + 0.01 * s) for s in range(3)],
    }
    results = [
        make_result(CELLS[0], runs[CELLS[0]], "GCN"),
        make_result(CELLS[1], runs[CELLS[1]]),
        make_result(CELLS[2], runs[CELLS[2]], "GCN"),
        without_data(CELLS[3]),
        make_result(CELLS[4], runs[CELLS[4]], "GCN", reduced=("3 of 10 seeds",)),
    ]
    write(tmp_path, results, [r for records in runs.values() for r in records])
    return tmp_path


@pytest.fixture
def no_page(monkeypatch):
    """Leave out the HTML page of all suites, which takes longer than everything else of the stage."""
    monkeypatch.setattr("gt_bench.pipeline.leaderboard.write_the_page", lambda *_: None)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def rows() -> dict[str, dict]:
    return {r["cell"]: r for r in json.loads(Path("reports", f"{SUITE}.json").read_text())["rows"]}


def record_file(cell: str, number: int = 0) -> Path:
    digest = json.loads(Path("results", f"{cell}.json").read_text())["runs"][number]
    return Path("store", digest[:2], digest, "record.json")


def edit(path: Path, change, seal: bool = False) -> None:
    record = json.loads(path.read_text())
    change(record["deterministic"])
    path.write_text(json.dumps(resealed(record) if seal else record))


def test_every_cell_is_a_row_and_states_how_it_is(project):
    result = run(SUITE, "--no-mlflow")
    assert result.exit_code == 0, result.output
    found = rows()
    assert list(found) == CELLS
    assert [found[c]["status"] for c in CELLS] == ["ok", "ok", "ok 1/2 (1 oom)", "not run: data", "ok", "not run"]
    verdicts = [found[c]["verdict"] for c in CELLS]
    assert verdicts == ["reproduced", "better", "failed runs", "no result", "consistent", "no result"]
    assert found[CELLS[0]]["difference"] == pytest.approx(0.57 - 0.562)
    shown = Path("reports", f"{SUITE}.md").read_text()
    for text in ("57.00 ± 0.82", "56.20 ± 2.60", "not run: data", "no source of texas answered", "3 of 10 seeds"):
        assert text in result.output
        assert text in shown
    # cost columns are left out if the terminal is too narrow
    assert "| 1,234 |" in shown
    assert len(Path("reports", f"{SUITE}.csv").read_text().splitlines()) == 7


def test_equal_records_give_equal_files(project):
    run(SUITE, "--no-mlflow")
    before = {p: p.read_bytes() for p in Path("reports").rglob("*") if p.is_file()}
    shutil.rmtree("reports")
    run(SUITE, "--no-mlflow", "--no-print")
    assert {p: p.read_bytes() for p in Path("reports").rglob("*") if p.is_file()} == before
    names = {p.name for p in before if p.parent == Path("reports")}
    assert names == {f"{SUITE}.json", f"{SUITE}.csv", f"{SUITE}.md", "index.html"}
    assert {p.parts[1] for p in before if p.parent != Path("reports")} == {"metrics", "published"}


def test_a_page_that_cannot_be_written_costs_a_warning(project):
    Path("reports/index.html").mkdir(parents=True)
    shown = run(SUITE, "--no-mlflow")
    assert shown.exit_code == 0
    assert "warning: reports/index.html was not written" in shown.output
    assert Path("reports", f"{SUITE}.md").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda p: p.write_text(p.read_text()[:100]),
        lambda p: p.unlink(),
        lambda p: p.write_text(json.dumps({"digest": p.parent.name, "deterministic": {}})),
        lambda p: p.write_text(json.dumps({"digest": p.parent.name})),
        lambda p: p.write_text(p.read_text().replace(p.parent.name, "0" * 64)),
        lambda p: p.write_text("[]"),
        lambda p: p.write_text(p.read_text().replace('"measured"', '"else"')),
        # an edited number: either the record contradicts itself, or only its checksum is wrong
        lambda p: edit(p, lambda run: run.update(test=0.9025)),
        lambda p: edit(p, lambda run: run["epochs"]["train_loss"].__setitem__(3, 0.5)),
        lambda p: edit(p, lambda run: run.update(test=0.9025), seal=True),
        lambda p: edit(p, lambda run: run["recipe"].update(epochs=9), seal=True),
        lambda p: edit(p, lambda run: run.update(test=9.0, test_metrics={"accuracy": 9.0}), seal=True),
    ],
)
def test_a_broken_record_is_named_in_its_row_and_the_rest_continues(project, no_page, damage):
    path = record_file(CELLS[0], 1)
    damage(path)
    result = run(SUITE, "--no-mlflow")
    assert result.exit_code == 1, result.output
    found = rows()
    row = found[CELLS[0]]
    assert (row["status"], row["verdict"], row["runs"]) == ("ok 2/3 (1 unreadable)", "reproduced", 2)
    assert str(path) in row["reason"]
    assert found[CELLS[1]]["verdict"] == "better"


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "{}", '{"cell": "a/b/c"}', None, {"runs": 5}, {"runs": [5]}, {"published": [1]},
        {"search": {"trials": 3}}, {"seeds": None},
    ],
)  # fmt: skip
def test_a_broken_result_is_named_in_its_row_and_the_rest_continues(project, no_page, content):
    path = Path("results", f"{CELLS[1]}.json")
    if content is None:
        path.write_text(Path("results", f"{CELLS[0]}.json").read_text())
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(json.loads(path.read_text()) | content))
    assert run(SUITE, "--no-mlflow").exit_code == 1
    row = rows()[CELLS[1]]
    assert row["status"] == "unreadable"
    assert str(path) in row["reason"]
    assert rows()[CELLS[0]]["verdict"] == "reproduced"


def test_a_metric_that_is_no_number_is_the_status_of_its_row_alone(project, no_page):
    undefined = {"test": math.nan, "test_metrics": {"accuracy": math.nan}}
    edit(record_file(CELLS[0], 1), lambda run: run.update(undefined), seal=True)
    result = run(SUITE, "--no-mlflow")
    assert result.exit_code == 0, result.output
    row = rows()[CELLS[0]]
    assert (row["status"], row["verdict"], row["mean"], row["std"]) == ("no number", "no result", None, None)
    assert row["reason"] == "accuracy is not a number on this split: nan of seed 1"
    assert row["reason"] in Path("reports", f"{SUITE}.md").read_text()
    assert rows()[CELLS[1]]["verdict"] == "better"


@pytest.mark.parametrize("name", ["results.yaml", "flags.yaml"])
@pytest.mark.parametrize("content", ["results: [", "", "results: 5", "- 5", "results:\n- {paper: hot}", None])
def test_broken_published_numbers_cost_no_row(project, monkeypatch, name, content):
    shutil.copytree(ROOT / "suites" / SUITE, Path("suites", SUITE), dirs_exist_ok=True)
    if content:  # the page is written with an empty file and without one
        monkeypatch.setattr("gt_bench.pipeline.leaderboard.write_the_page", lambda *_: None)
    path = Path("suites", SUITE, name)
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_text(content)
    assert run(SUITE, "--no-mlflow").exit_code == 0
    found = rows()
    assert found[CELLS[0]]["mean"] == pytest.approx(0.57)
    if (name, content) == ("flags.yaml", ""):  # nothing is flagged
        assert found[CELLS[1]]["verdict"] == "better"
        return
    assert {found[c]["verdict"] for c in CELLS[:2]} == {"published number not found"}
    assert f"{path}: invalid (" in found[CELLS[0]]["notes"][0]
    assert f"restore it: git checkout {path}" in found[CELLS[0]]["notes"][0]


def test_runs_of_modified_code_report_it_in_every_report(project, no_page):
    result = read_result(Path("results", f"{CELLS[0]}.json"), CELLS[0])
    records = []
    for digest in result.runs:
        record = Store().get(digest)
        ran = changed(record, run={"digests": record.run.digests.to_disk() | {"modified": "d" * 64}}).run
        other = run_digest(ran.recipe, ran.seed, ran.split, ran.digests, ran.versions)
        assert other != digest, "under a key of its own"
        records.append(sealed(record.model_copy(update={"run": ran, "digest": other})))
    write(project, [changed(result, runs=[record.digest for record in records])], records)
    run(SUITE, "--no-mlflow")
    assert (rows()[CELLS[0]]["status"], rows()[CELLS[0]]["verdict"]) == ("ok, modified", "modified code")
    versions = "(model version 1, task version 1, trainer version 1, modified)"
    for kind in ("csv", "md"):
        assert f"changed without raising a version {versions}" in Path("reports", f"{SUITE}.{kind}").read_text()


def test_a_suite_without_cells_is_an_empty_table(project):
    assert run("embedded", "--no-mlflow").exit_code == 0
    assert json.loads(Path("reports", "embedded.json").read_text())["rows"] == []


def test_reports_are_written_while_mlflow_is_down(project, no_page, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    result = run(SUITE)
    assert result.exit_code == 0
    assert result.stderr.count("warning: MLflow at http://127.0.0.1:9 was not updated") == 1
    assert f"python -m stages.leaderboard {SUITE}" in result.stderr
    assert len(rows()) == 6


def test_the_tracking_store_is_made_where_there_is_none_and_holds_every_result(project, no_page):
    done = run(SUITE)
    assert done.exit_code == 0
    assert "python -m gt_bench.tracking.ui" in done.stdout
    assert done.stderr == ""
    runs = Mirror(f"sqlite:///{project}/mlruns/mlflow.db", SUITE).runs.values()
    statuses = [r.data.tags["gt.status"] for r in runs if r.data.tags["gt.kind"] == "cell"]
    assert sorted(statuses) == ["not run: data", "ok", "ok", "ok", "ok 1/2 (1 oom)"]
    assert sum(r.data.tags["gt.kind"] == "run" for r in runs) == 11
    assert all(Path(r.info.artifact_uri).is_relative_to(project / "mlruns" / "artifacts") for r in runs)
