"""Changes between two attempts whose records are untrusted."""

import subprocess

import pytest

from gt_bench.reports.attempt_history import Attempt, changes, history_lines
from gt_bench.tracking.descriptions import path_of, recipe_at, repository
from gt_bench.utils.paths import recipe_file
from gt_bench.utils.redact import commit_id
from tests.conftest import ROOT
from tests.gt_bench.cells import ET, make_record, make_result


def attempt(number: int, commit: object, code: str) -> Attempt:
    record = make_record(ET, 0)
    record.run.recipe["model"]["name"] = "mlp"
    environment = record.measured.environment.model_copy(update={"commit": commit})
    measured = record.measured.model_copy(update={"code": code * 64, "environment": environment})
    record = record.model_copy(update={"measured": measured})
    return Attempt(number, make_result(ET, [record]), [record], number == 2)


@pytest.mark.parametrize(
    "commit", ["--output={path}", "--output={path}-dirty", "HEAD", "-O{path}", "0123abc --output={path}", "0123abc\n"]
)
def test_a_foreign_commit_is_no_option_of_git(tmp_path, commit):
    path = tmp_path / "precious"
    path.write_text("all of it")
    commit = commit.format(path=path) if isinstance(commit, str) else commit
    found = [attempt(1, commit, "a"), attempt(2, "0123abc", "b")]
    lines = "\n".join([*changes(*found), *history_lines(found)])
    assert path.read_text() == "all of it"
    assert "git cannot show what changed" in lines
    assert str(path) not in lines


def test_a_commit_of_a_record_is_hexadecimal():
    assert commit_id("0123abc") == commit_id("0123abc-dirty") == "0123abc"
    assert [commit_id(text) for text in ("", None, "$(touch x)", "0123ab", "g" * 40, "a" * 65)] == [None] * 6
    assert recipe_at(ET, "$(touch x)") == f"Recipe: `{recipe_file(ET)}`"


def test_a_recipe_that_no_commit_has_is_named_by_its_path():
    """A suite of the user is in no commit of this repository, so `git show` would fail."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    ).stdout.strip()
    assert recipe_at("mine/shop/gcn", commit) == "Recipe: `suites/mine/recipes/shop/gcn.yaml`"
    path = path_of(ET)
    assert (f"{commit[:12]}:{path}" in recipe_at(ET, commit)) or f"/blob/{commit}/{path}" in recipe_at(ET, commit)
    if not repository():
        assert recipe_at(ET, "0123abc") == f"Recipe: `{path}`"
