import pytest
import yaml

from gt_bench.claims.evaluate import claims_of
from gt_bench.config.grid import load_grid
from gt_bench.config.suite import load_suite
from gt_bench.papers.published import published_of
from gt_bench.suites.check import suite_problems
from gt_bench.suites.new import new_suite
from gt_bench.utils.paths import SuiteError
from tests.refusals import refused


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("title", ["Plain", 'A "quoted": title', "back\\slash # and a comment"])
def test_the_skeleton_is_valid_as_it_is(tmp_path, title):
    files = new_suite("my-paper", title, "Doe & Roe: two authors")
    suite = load_suite("my-paper")
    assert (suite.title, suite.authors, suite.is_paper) == (title, "Doe & Roe: two authors", True)
    assert published_of("my-paper") == []
    assert claims_of("my-paper", tmp_path / "suites/my-paper") == []
    assert suite_problems("my-paper", load_grid()) == []
    assert all(path.is_file() for path in files)


def test_the_entry_in_the_comment_is_a_published_number(tmp_path):
    new_suite("my-paper", authors="Doe")
    path = tmp_path / "suites/my-paper/results.yaml"
    _, _, example = path.read_text().partition("# - ")
    lines = f"- {example}".partition("schema_version")[0].splitlines()
    entries = yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines))
    path.write_text(yaml.safe_dump({"schema_version": 1, "results": entries}))
    (number,) = published_of("my-paper")
    assert (number.mean, number.std, number.own, number.split) == (0.991, 0.004, True, "test")


def test_a_suite_that_is_no_paper_has_no_numbers(tmp_path):
    new_suite("mine")
    assert not (tmp_path / "suites/mine/results.yaml").exists()
    assert suite_problems("mine", load_grid()) == []


@pytest.mark.parametrize("name", ["hot", "My Paper", "../up"])
def test_a_name_that_cannot_be_is_an_error(name):
    with refused(SuiteError, value=name):
        new_suite(name)
