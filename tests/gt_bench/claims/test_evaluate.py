"""Verdicts on claims from published numbers, runs and data; each mistake in a claims.yaml is one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import special

from gt_bench.claims.evaluate import CLAIMS, Claim, claims_of, evaluate_claim, levels, load_claims
from gt_bench.config.schema import RecipeError
from gt_bench.papers.published import METRIC_NAMES, Numbers, published_of
from gt_bench.utils.errors import UserError
from tests.conftest import ROOT
from tests.gt_bench.claims.cases import ALL
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
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "ET", "datasets": ["cornel"]}}},
            "x.dataset",
            "no 'cornel'",
        ),
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "ET", "against": ["GCNN"]}}},
            "x.method",
            "no 'GCNN'",
        ),
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "methods": "ET"}}},
            "x.method",
            "Missing required",
        ),
        (
            {
                "test": {
                    "kind": "equals",
                    "arguments": {"printed": 1, "of": {"table": "Table 9", "method": "ET", "dataset": "x"}},
                }
            },
            "x.table",
            "no 'Table 9'",
        ),
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


TABLE_3 = {"table": "Table 3", "method": "ET", "dataset": "cornell"}


@pytest.mark.parametrize(
    ("kind", "arguments", "problem"),
    [
        ("best", {"table": "Table 3", "method": "ET", "split": "vali"}, "no 'vali'"),
        ("best", {"table": "Table 3", "method": "ET", "rank": 0}, "greater than or equal to 1"),
        ("best", {"table": "Table 3", "method": "ET", "against": ["ET"]}, "no other number on cornell"),
        ("nobody_in_front", {"table": "Table 3", "rank": 0}, "greater than or equal to 1"),
        ("growth", {"exponents": {}}, "names no model"),
        ("no_gap", {"table": "Table 3", "methods": [], "seen": "train", "unseen": "test"}, "0 methods"),
        ("best", {"table": "Table 3", "method": "ET", "count": 4}, "3 columns for ET, not 4"),
        ("best", {"table": "Table 3", "method": ["ET"]}, "should be a valid string"),
        (
            "order",
            {"table": "Table 3", "better": ["ET"], "worse": ["GCN"], "datasets": ["cornell", "corn"]},
            "no 'corn'",
        ),
        ("order", {"table": "Table 3", "better": ["ET"], "worse": ["GCN"], "metric": "f2"}, "no 'f2'"),
        ("order", {"table": "Table 3", "better": [], "worse": ["GCN"]}, "no column with numbers of both groups"),
        ("best_groups", {"table": "Table 33", "below": ["ET"], "above": ["GCN"]}, "no 'Table 33'"),
        ("best_groups", {"table": "Table 3", "below": [], "above": ["GCN"]}, "no number of  on cornell"),
        ("nobody_in_front", {"table": "Table 33", "rank": 3}, "no 'Table 33'"),
        ("gain", {"printed": "much", "of": TABLE_3}, "should be a valid number"),
        ("share", {"printed": 1, "of": TABLE_3, "over": TABLE_3, "what": "param"}, "should be 'mean' or 'params'"),
        ("share", {"printed": 1, "of": TABLE_3, "over": TABLE_3, "what": "params"}, "no params published"),
        ("adds_up", {"total": TABLE_3, "parts": ["corn"]}, "no 'corn'"),
        ("told_apart", {"pair": "CSL"}, "no case 'CSL, v1'"),
        ("at_least_one_wl", {"forms": ["gta"]}, "no case 'gta'"),
        ("magnitude_kept", {"norm": "layer", "kept": True}, "no case 'layer, '"),
        ("same_pairs", {"first": "GNI", "second": "1-WL"}, "no case 'GNI, '"),
        ("no_more_than", {"network": "GNI", "refinement": "1-WL"}, "no case 'GNI, '"),
        ("equivariant_layers", {"layers": ["one layer", "two layers"]}, "no case 'two layers, n = '"),
        ("message_passing", {"reading": "equation 22", "otherwise": "coefficients of one"}, "no case 'equation 22'"),
        ("growth", {"exponents": {"HOT": 2}}, "no case 'HOT'"),
        ("growth", {"exponents": {"HOT (D)": 2}, "order": 3}, "no case 'HOT (D)'"),
        ("no_gap", {"table": "Table 3", "methods": ["EET"], "seen": "train", "unseen": "test"}, "no 'EET'"),
        (
            "no_gap",
            {"table": "Table 3", "methods": ["ET"], "seen": "test", "unseen": "test"},
            "'test' and 'test' leave nothing",
        ),
        ("no_gap", {"table": "Table 3", "methods": ["ET"], "seen": "train", "unseen": "test"}, "no 'train'"),
        ("trains_or_crashes", {"crashes": {"RMSN, 3": True}}, "no case 'RMSN, 3'"),
        ("maps_are_bases", {"cases": ["sparse"]}, "no case 'sparse'"),
        ("colour_refinement", {"method": "1-wl", "counts": {"brec-cif": 0}}, "no category 'brec-cif'"),
        ("colour_refinement", {"method": "2-wl", "counts": {"brec-cfi": 0}}, "no refinement '2-wl'"),
        ("homophily", {"printed": {"fotos": 0.1}}, "no dataset 'fotos'"),
    ],
)
def test_a_name_that_is_not_there_is_no_verdict(tmp_path, kind, arguments, problem):
    claim = Claim(
        id="x", paper="edge-transformer", place="here", sentence="so it is", test={"kind": kind, "arguments": arguments}
    )
    with refused(UserError, file="claims.yaml") as error:
        evaluate_claim(claim, data=tmp_path)
    assert error.value.place.split(".")[0] == "x"
    assert problem in error.value.problem
    assert "\n" not in str(error.value)


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
    "arguments",
    [
        ["polynormr"],
        ["--case", "x"],
        ["--json", "--write", "x.md"],
        ["--recompute", "x", "--json"],
    ],
)
def test_wrong_arguments_of_claims(monkeypatch, arguments):
    monkeypatch.chdir(ROOT)


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
