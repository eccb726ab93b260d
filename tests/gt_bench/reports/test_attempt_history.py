"""What changed between two attempts, where their records come from anywhere."""

import pytest

from gt_bench.reports.attempt_history import Attempt, changes, history_lines
from gt_bench.tracking.payload import recipe_at
from gt_bench.utils.paths import recipe_file
from gt_bench.utils.redact import commit_id
from tests.gt_bench.cells import ET, make_record, make_result


def attempt(number: int, commit: object, code: str) -> Attempt:
    record = make_record(ET, 0)
    record["deterministic"]["recipe"]["model"]["name"] = "mlp"
    record["measured"] |= {"code": code * 64, "environment": {"commit": commit}}
    return Attempt(number, make_result(ET, [record]), [record], number == 2)


@pytest.mark.parametrize(
    "commit",
    ["--output={path}", "--output={path}-dirty", "HEAD", "-O{path}", "0123abc --output={path}", "0123abc\n", 7, []],
)
def test_a_foreign_commit_is_no_option_of_git(tmp_path, commit):
    path = tmp_path / "precious"
    path.write_text("all of it")
    commit = commit.format(path=path) if isinstance(commit, str) else commit
    found = [attempt(1, commit, "a"), attempt(2, "0123abc", "b")]
    lines = "\n".join([*changes(*found), *history_lines(found)])
    assert path.read_text() == "all of it"
    assert "names no commit" in lines
    assert str(path) not in lines


def test_a_commit_of_a_record_is_hexadecimal():
    assert commit_id("0123abc") == commit_id("0123abc-dirty") == "0123abc"
    assert [commit_id(text) for text in ("", None, "$(touch x)", "0123ab", "g" * 40, "a" * 65)] == [None] * 6
    assert recipe_at(ET, "$(touch x)") == f"Recipe: `{recipe_file(ET)}`"
