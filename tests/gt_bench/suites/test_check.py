import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gt_bench.claims.checks import registry
from gt_bench.claims.evaluate import Evaluation, claims_of, evaluate_claim, load_claims
from gt_bench.cli.app import app
from gt_bench.config.grid import load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.config.suite import load_suite
from gt_bench.suites.check import suite_problems
from gt_bench.suites.new import new_suite
from gt_bench.utils import paths
from gt_bench.utils.paths import SuiteError, place, suite_folders
from tests.refusals import refused

NUMBER = {
    "table": "Table 1", "method": "MLP", "dataset": "chains", "metric": "accuracy", "direction": "max",
    "unit": "percent", "mean": 50.0,
    "printed": "50.0",
}  # fmt: skip
RECIPE = {"model": {"name": "mlp"}, "optimizer": {"lr": 0.1}, "epochs": 1, "seeds": [0]}


@pytest.fixture
def paper(tmp_path, monkeypatch) -> Path:
    """A paper with one number, in the current folder."""
    monkeypatch.chdir(tmp_path)
    new_suite("toy", authors="Doe")
    folder = Path("suites/toy")
    (folder / "results.yaml").write_text(yaml.safe_dump({"results": [NUMBER]}))
    return folder


def problems() -> str:
    return "\n".join(suite_problems("toy", load_grid()))


def recipe(folder: Path, dataset: str = "chains", **changes) -> None:
    path = folder / "recipes" / dataset / "mlp.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(RECIPE | changes))


def test_a_paper_without_results_is_named(paper):
    (paper / "results.yaml").unlink()
    (paper / "claims.yaml").unlink()
    assert problems() == (
        "suites/toy: results.yaml is missing, although suite.yaml names authors; add the published numbers "
        "(suites/README.md), "
        "or remove `authors` if it is not a paper"
    )


def test_a_recipe_of_a_dataset_that_nobody_declares_is_named(paper):
    recipe(paper, "chians")
    assert "suites/toy/recipes/chians/mlp.yaml: " in problems()
    assert "'chians'" in problems()
    assert "did you mean 'chains'" in problems()


def test_a_recipe_that_names_no_published_number_is_named(paper):
    recipe(paper, published={"paper": "toy", "table": "Table 2", "method": "MLP"})
    assert "suites/toy/recipes/chains/mlp.yaml: published.table: " in problems()


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (
            "results.yaml",
            {"results": [NUMBER, NUMBER]},
            "suites/toy/results.yaml: Table 1, MLP, chains, accuracy, test: 2 entries",
        ),
        ("results.yaml", {"results": [{"table": "Table 1"}]}, "entry 1: method, dataset"),
        (
            "results.yaml",
            {"results": [NUMBER | {"paper": "x"}]},
            "entry 1: unexpected key `paper`",
        ),
        ("results.yaml", {"numbers": []}, "results.yaml: invalid"),
        ("flags.yaml", [{"method": "GCN", "flag": "odd"}], "suites/toy/flags.yaml: no published number has"),
        (
            "claims.yaml",
            {"claims": [{"id": "x", "place": "here", "sentence": "so", "test": {"kind": "bets"}}]},
            "unknown kind of test 'bets' (did you mean 'best'?)",
        ),
    ],
)
def test_faults_of_files_are_named(paper, file, content, says):
    (paper / file).write_text(yaml.safe_dump(content))
    assert says in problems()


def test_an_unknown_key_of_a_suite_is_named(paper):
    (paper / "suite.yaml").write_text("title: x\nauthor: Doe\n")
    with refused(RecipeError, file="suites/toy/suite.yaml", place="author"):
        problems()


def test_a_suite_that_does_not_exist_names_the_nearest():
    with refused(RecipeError, value="polynormr"):
        load_suite("polynormr")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with the entry point `toy`."""
    folder = tmp_path / "site/toy_package/toy"
    (folder / "recipes/chains").mkdir(parents=True)
    for place_ in (folder, folder.parent):
        (place_ / "__init__.py").touch()
    (folder / "suite.yaml").write_text("title: Packaged\n")
    (folder / "recipes/chains/mlp.yaml").write_text(yaml.safe_dump(RECIPE))
    about = tmp_path / "site/toy_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[gt_bench.suites]\ntoy = toy_package.toy\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_package"]:
        del sys.modules[name]
    paths.packaged_suites.cache_clear()
    yield folder
    paths.packaged_suites.cache_clear()


def test_an_installed_package_brings_a_suite(package):
    assert load_suite("toy").title == "Packaged"
    cell = load_grid().find("toy/chains/mlp")
    assert cell.recipe_path == package / "recipes/chains/mlp.yaml"
    assert suite_problems("toy", load_grid()) == []
    assert place("suites/toy/suite.yaml") == package / "suite.yaml"


def test_a_package_and_a_folder_with_one_name(package):
    Path("suites/toy").mkdir(parents=True)
    Path("suites/toy/suite.yaml").write_text("title: x\n")
    with refused(SuiteError, value="toy", remedy="rename one of them"):
        suite_folders()


def test_a_package_without_the_files_that_it_promises(package):
    (package / "suite.yaml").unlink()
    with refused(SuiteError, place="suite 'toy' of the package toy-package", value="toy_package.toy"):
        suite_folders()


CHECKS = """
from gt_bench.claims.checks.registry import CheckResult, register_check


@register_check
def {name}(paper: str, limit: int) -> CheckResult:
    return CheckResult(limit > 1, "it was counted", confirmed=True)
"""
CLAIM = {"id": "x", "place": "here", "sentence": "so", "test": {"kind": "counted_here", "arguments": {"limit": 2}}}


@pytest.fixture
def trusted(monkeypatch):
    monkeypatch.setattr(registry, "_trusted", True)


def test_checks_of_a_folder_outside_the_repository_run_only_with_trust(paper, monkeypatch):
    monkeypatch.setattr(registry, "_trusted", False)
    (paper / "checks.py").write_text(CHECKS.format(name="counted_here") + "open('ran', 'w')\n")
    (paper / "claims.yaml").write_text(yaml.safe_dump({"claims": [CLAIM]}))
    for option, verdict in ([], "not tested"), (["--trust"], "holds"):
        assert CliRunner().invoke(app, ["suite", "check", "toy", *option]).exit_code == 0
        assert [evaluate_claim(claim).verdict for claim in load_claims() if claim.paper == "toy"] == [verdict]
        assert Path("ran").exists() == bool(option)


@pytest.mark.usefixtures("trusted")
def test_a_suite_brings_tests_of_its_own(paper):
    (paper / "checks.py").write_text(CHECKS.format(name="counted_here"))
    (paper / "claims.yaml").write_text(yaml.safe_dump({"claims": [CLAIM]}))
    (claim,) = claims_of("toy", paper)
    assert evaluate_claim(claim) == Evaluation("holds", "it was counted")
    assert problems() == ""
    (paper / "claims.yaml").write_text(yaml.safe_dump({"claims": [CLAIM | {"test": {"kind": "counted_here"}}]}))
    assert "x.limit: invalid arguments of the test counted_here" in problems()


@pytest.mark.usefixtures("trusted")
def test_a_test_with_the_name_of_another_and_a_file_that_cannot_be_imported(paper):
    (paper / "claims.yaml").write_text(yaml.safe_dump({"claims": [CLAIM]}))
    (paper / "checks.py").write_text(CHECKS.format(name="best"))
    assert "suites/toy/checks.py" in problems()
    assert "two checks are named 'best'" in problems()
    (paper / "checks.py").write_text("import nothing_of_that_name\n")
    assert "suites/toy/checks.py" in problems()
