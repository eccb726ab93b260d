"""Results of cells from all sources: local results, shipped records, published numbers."""

import re
import shutil
from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.gather import gather
from tests.gt_bench.shipping import export, run


@pytest.mark.slow
def test_a_dataset_is_shown_from_all_suites_own_and_shipped(trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    export()
    shown = run("board", "web")
    assert shown.exit_code == 0, shown.output
    assert re.findall(r"small/web/mlp +(own|shipped)", shown.output) == ["own", "shipped"]
    assert re.findall(r"small/web/mlp +(own|shipped)", run("board", "small/web/mlp").output) == ["own", "shipped"]
    shutil.rmtree("results")
    assert re.findall(r"small/web/mlp +(own|shipped)", run("board", "web").output) == ["shipped"]
    # published numbers on a dataset that is not in the grid
    assert re.search(r"edge-transformer: GCN .* 56\.2 ± 2\.6", run("board", "cornell").output)
    assert "(did you mean 'web'?)" in str(run("board", "wob").exception)


@pytest.mark.slow
def test_a_table_is_shown_with_published_numbers_whatever_was_run(trained, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    shown = run("board", "edge-transformer", "--table", "3")
    assert shown.exit_code == 0, shown.output
    assert "69.2 ± 5.7" in shown.output
    assert "0 of 18 numbers" in shown.output
    assert run("board").output.count("\nhot ") == 3
    for form, has in (("md", "| GCN | 56.2"), ("tex", r"\toprule"), ("csv", "edge-transformer,Table 3,GCN,cornell")):
        assert has in run("board", "edge-transformer", "--table", "3", "--format", form).output
    assert "no paper 'hots' (did you mean 'hot'?)" in str(run("board", "hots", "--table", "1").exception)


def test_a_shipped_file_that_is_unsound_is_a_problem_and_no_stop(trained):
    export()
    Path("suites/small/records/web/mlp.json.gz").write_bytes(b"nothing")
    found = gather(load_grid())
    assert [row.source for row in found.rows] == ["own"]
    assert "not an export of records" in found.problems[0]


@pytest.mark.parametrize("command", ["board", "compare mlp small/mlp"])
def test_a_damaged_file_is_named_where_its_numbers_are_missed(trained, command):
    path = export()
    path.write_bytes(path.read_bytes()[:100])
    shown = run(*command.split())
    assert f"{path}: not an export of records" in shown.stderr
