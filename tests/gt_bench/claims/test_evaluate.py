"""Verdicts on claims from published numbers, runs and data; each mistake in a claims.yaml is one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import special
from typer.testing import CliRunner

from gt_bench.claims.evaluate import CLAIMS, claims_of, evaluate_claim, levels, load_claims
from gt_bench.cli.app import app
from gt_bench.config.schema import RecipeError
from gt_bench.papers.published import METRIC_NAMES, Numbers, published_of
from gt_bench.utils.errors import UserError
from tests.conftest import ROOT
from tests.gt_bench.claims.cases import ALL, claim_of
from tests.refusals import refused


def test_two_claims_on_one_sentence_and_case_are_not_separate():
    seen = [(claim.paper, claim.sentence, claim.case) for claim in ALL.values()]
    assert len(seen) == len(set(seen))


def test_a_verdict_follows_the_published_numbers(monkeypatch):
    place = ("edge-transformer", "Table 3", "ET", "cornell")
    changed = [
        replace(number, mean=0.68) if number.place[:4] == place else number
        for number in published_of("edge-transformer")
    ]
    monkeypatch.setattr("gt_bench.papers.published.numbers_of", lambda paper: Numbers.of(changed))
    assert evaluate_claim(ALL["et-outperforms-all-nodes"]).verdict == "agrees in the paper"


def test_without_the_data_a_claim_is_undecided_and_states_what_it_needs(tmp_path):
    for name in ("ppgt-3-wl-on-brec", "polynormer-homophily-tolokers"):
        found = evaluate_claim(ALL[name], data=tmp_path)
        assert found.verdict == "undecided"
        assert "`dvc repro download@" in found.why


@pytest.mark.parametrize(
    ("change", "place", "problem"),
    [
        ({"test": {"kind": "bets", "arguments": {}}}, "x", "unknown kind of test 'bets'"),
        ({"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "EET"}}}, "x.method", "no 'EET'"),
        ({"test": {"kind": "best", "arguments": {"table": "Table 3"}}}, "x.method", "Missing required"),
        ({"test": None}, "x", "expected a key `test`"),
        ({"verdict": "holds"}, "claim 1.verdict", "unknown key"),
    ],
)
def test_a_claim_that_cannot_be_is_one_clear_line(tmp_path, change, place, problem):
    entry = {"id": "x", "place": "here", "sentence": "so it is"} | change
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [entry]}))
    with refused(UserError, file=str(path), place=place) as error:
        evaluate_claim(claims_of("edge-transformer", tmp_path)[0], path=str(path))
    assert problem in error.value.problem
    assert "\n" not in str(error.value)


BEST = {"table": "Table 3", "method": "ET"}


@pytest.mark.parametrize(
    ("kind", "arguments", "problem"),
    [
        ("best", BEST | {"split": "vali"}, "no 'vali'"),
        ("best", BEST | {"rank": 0}, "greater than or equal to 1"),
        ("best", BEST | {"against": ["ET"]}, "no other number on cornell"),
        ("best", BEST | {"count": 4}, "3 columns for ET, not 4"),
        ("best", BEST | {"method": ["ET"]}, "should be a valid string"),
        ("best_groups", {"table": "Table 3", "below": [], "above": ["GCN"]}, "no number of  on cornell"),
        ("order", {"table": "Table 3", "better": [], "worse": ["GCN"]}, "no column with numbers of both groups"),
        ("growth", {"exponents": {}}, "names no model"),
        ("growth", {"exponents": {"HOT (D)": 2}, "order": 3}, "no case 'HOT (D)'"),
        ("no_gap", {"table": "Table 3", "methods": [], "seen": "train", "unseen": "test"}, "0 methods"),
        ("no_gap", {"table": "Table 3", "methods": ["ET"], "seen": "test", "unseen": "test"}, "leave nothing"),
        ("gain", {"printed": "much", "of": BEST | {"dataset": "cornell"}}, "should be a valid number"),
    ],
)
def test_arguments_that_cannot_be_are_no_verdict(tmp_path, kind, arguments, problem):
    with refused(UserError, file="claims.yaml") as error:
        evaluate_claim(claim_of("edge-transformer", kind, arguments), data=tmp_path)
    assert error.value.place.split(".")[0] == "x"
    assert problem in error.value.problem
    assert "\n" not in str(error.value)


def misspelt(value):
    """Copies of an argument with one of its names misspelt."""
    if isinstance(value, str):
        yield f"{value}?"
    elif isinstance(value, list):
        yield from ([*value[:i], wrong, *value[i + 1 :]] for i, one in enumerate(value) for wrong in misspelt(one))
    elif isinstance(value, dict):
        yield from (value | {name: wrong} for name, one in value.items() for wrong in misspelt(one))
        yield from ({key: v for key, v in value.items() if key != name} | {f"{name}?": value[name]} for name in value)


FIRST = {claim.test.kind: claim for claim in reversed(ALL.values()) if claim.test}


@pytest.mark.parametrize("kind", sorted(FIRST.keys() - {"memory_grows_linearly"}))  # which names our rows
def test_a_name_that_is_not_there_is_no_verdict(tmp_path, kind):
    claim = FIRST[kind]
    for arguments in misspelt(claim.test.arguments):
        test = claim.test.model_copy(update={"arguments": arguments})
        with pytest.raises(UserError) as error:
            evaluate_claim(claim.model_copy(update={"test": test}), data=tmp_path)
        assert error.value.place.split(".")[0] == claim.id, arguments


def test_two_claims_of_one_name(tmp_path, monkeypatch):
    first = yaml.safe_load((ROOT / "suites/tokengt" / CLAIMS).read_text())["claims"][0]
    monkeypatch.chdir(tmp_path)
    mine = Path("suites/mine")
    mine.mkdir(parents=True)
    (mine / "suite.yaml").write_text("title: Mine\n")
    (mine / CLAIMS).write_text(yaml.safe_dump({"claims": [first]}))
    with refused(RecipeError, file="mine/claims.yaml and tokengt/claims.yaml", value=first["id"]):
        load_claims()


def test_metric_names_of_claims_are_those_of_the_file():
    assert (
        not {name for claim in ALL.values() if claim.test for name in claim.test.arguments.get("metrics", ())}
        & METRIC_NAMES.keys()
    )


@pytest.mark.parametrize(
    "arguments", [["polynormr"], ["--case", "x"], ["--json", "--write", "x.md"], ["--recompute", "x", "--json"]]
)
def test_wrong_arguments_of_claims(monkeypatch, arguments):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError):
        raise CliRunner().invoke(app, ["claims", *arguments]).exception


@pytest.mark.parametrize(("count", "least"), [(1, 1), (6, 6), (5, 3), (8, 1)])
def test_a_statement_over_equal_methods_is_decided_in_five_cases_of_a_hundred_at_most(count, least):
    """Comparisons of methods that are equally good, drawn; `least` of them must be won."""
    rng, draws = np.random.default_rng(0), 20_000
    z = rng.standard_normal((draws, count))
    p = 2 * special.ndtr(-np.abs(z))
    won, lost = levels(count, least)
    holds = ((z > 0) & (p < 0.05 * won)).sum(1) >= least
    fails = ((z < 0) & (p < 0.05 * lost)).sum(1) > count - least
    assert holds.mean() <= 0.03
    assert fails.mean() <= 0.03
    # of k rivals one must be ahead
    assert levels(count, least, rivals=4)[1] == lost / 4
    assert levels(count, least, rivals=4, rank=4) == (won / 4, lost)


def test_data_that_were_made_here_are_named_in_the_verdict():
    claim = ALL["hot-chains-failure-of-the-mlp"]
    assert claim.made_here in evaluate_claim(claim).why
    assert claim.made_here not in evaluate_claim(claim.model_copy(update={"made_here": None})).why
