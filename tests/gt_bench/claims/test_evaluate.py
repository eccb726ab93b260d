"""Verdicts on claims from published numbers, runs and data; each mistake in a claims.yaml is one line."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import special
from typer.testing import CliRunner

from gt_bench.claims.evaluate import CLAIMS, Claim, claims_of, evaluate_claim, levels, load_claims
from gt_bench.cli.app import app
from gt_bench.config.schema import RecipeError
from gt_bench.papers.published import METRIC_NAMES, read_entries
from tests.conftest import ROOT
from tests.gt_bench.claims.cases import ALL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "verdict", "why"),
    [
        ("et-outperforms-all-nodes", "fails", "cornell accuracy: 65.7 ± 4.9 against 67.9 ± 1.7 of (2,2)-SpeqNet"),
        ("et-outperforms-all-molecules", "agrees in the paper", "best in 3 of 3 columns"),
        ("hot-softmax-over-all-set-to-graph", "fails", "jets-c rand-index: 0.732 against 0.733 of S2G+"),
        ("hot-kernel-over-all-set-to-graph", "agrees in the paper", "best in 15 of 15 columns"),
        ("polynormer-tpu-random-sage", "inconsistent in the paper", "11.3, published 10.3"),
        ("polynormer-tpu-tile-local", "agrees in the paper", "19.7, published 19.6"),
        ("polynormer-tpu-all-local", "fails", "73.7 against 77.3 of GraphSAGE"),
        ("polynormer-large-gain", "agrees in the paper", "on pokec: 4.06"),
        ("polynormer-fastest", "agrees in the paper", "among the first 3 in 3 of 3 columns"),
        ("polynormer-gts-below-gnns", "agrees in the paper", "5 of 5 columns"),
        ("tokengt-all-but-computers", "agrees in the paper", "best in 5 of 6 columns (not: computer accuracy"),
        ("ppgt-tokengt-parameters", "agrees in the paper", "36.21 %"),
        ("ppgt-peptides-func-t-test", "agrees in the paper", "one-tailed p 0.33"),
        ("ppgt-without-spe-total", "inconsistent in the paper", "= 218, published 234"),
        ("ppgt-spe-boosts-cfi", "inconsistent in the paper", "3 in Table 11 (PPGT (S=0)), 8 in the text"),
        (
            "polynormer-computer-gain",
            "inconsistent in the paper",
            "93.18 ± 0.18 (Polynormer) against 92.03 ± 0.13 (OrderedGNN) on computer: 1.15, published 1.65",
        ),
        (
            "ppgt-expressive-but-worse-on-zinc",
            "undecided",
            "equal after rounding: zinc mae: 0.059 of GRIT, 0.059 of N2GNN",
        ),
        (
            "polynormer-r-over-tuned-gnns",
            "fails",
            "best on 1 of 9 datasets (not: computer 93.68 ± 0.21 against 94.09 ± 0.37 of GAT",
        ),
        ("polynormer-over-tuned-gnns", "fails", "best on 1 of 9 datasets"),
        ("polynormer-v2-not-better", "agrees in the paper", "Polynormer-v2 ahead of Polynormer-v1 in 2 of 6 columns"),
        ("polynormer-globally-important-nodes", "not tested", "needs a definition of importance"),
        ("et-systematic-generalisation", "not tested", "needs training on MOTHER and GRANDMOTHER alone"),
        ("hot-chains-failure-of-the-mlp", "agrees in the paper", "published with 53.5"),
        ("ppgt-spe-without-impact", "agrees in the paper", "brec-regular 50 and 50"),
        ("polynormer-linear-memory", "not tested", "needs a run of polynormer/er-scaling-1000/polynormer"),
        ("et-brec", "not tested", "needs runs on BREC"),
        ("polynormer-polynomials", "holds", "n = 4, L = 3: 120 of 120"),
        ("polynormer-equation-9", "fails", "unequal to the model's output for L = 2, L = 3"),
        ("polynormer-v2-beyond-1-wl", "holds", "the second eigenvalue is simple"),
        ("polynormer-v2-csl", "undecided", "the second eigenvalue is double"),
        ("polynormer-v2-unique", "fails", "5 and 6 different outputs of 10 and 10 nodes"),
        (
            "polynormer-at-least-1-wl",
            "undecided",
            "109 classes, equation 18 with A + I 109, gat 1, gcn 106, random-walk 106",
        ),
        ("ppgt-nearest-key", "holds", "in 100.0 % of draws"),
        ("ppgt-nearest-key-as-released", "fails", "in 43.6 to 66.8 % of draws"),
        ("ppgt-long-keys", "holds", "in 0.1 to 2.8 % of draws, by scaled dot products in 5.2 to 20.5 %"),
        ("ppgt-rmsn-loses-magnitude", "undecided", "width 8, with bias 0.038, width 8, without bias 1"),
        ("ppgt-ada-rmsn-keeps-magnitude", "holds", "width 64, without bias 0.00069"),
        ("ppgt-as-powerful-as-gd-wl", "holds", "PPGT, S = 15 60/50/100/26, GD-WL with RRWP 60/50/100/26"),
        ("ppgt-spe-adds-no-structure", "holds", "60/50/100/26"),
        ("ppgt-graphormer-within-gd-wl", "holds", "Graphormer 16/13/41/12, GD-WL with shortest paths 16/14/41/12"),
        ("et-as-expressive-as-3-wl", "undecided", "3-WL 60/50/100/60"),
        ("tokengt-cost", "holds", "TokenGT + Performer 1.00 (claimed 1"),
        ("hot-linear-cost", "fails", "not as claimed: MLP_π (S) 1.00 (claimed 2"),
        (
            "hot-linear-in-hyperedges",
            "holds",
            "HOT 1 to 3 (S, φ), by hyperedges 0.92 (claimed 1; 1,024 to 2,048 hyperedges)",
        ),
        ("hot-quadratic-in-hyperedges", "holds", "HOT 1 to 3 (S) 1.91 (claimed 2"),
        ("tokengt-cost-of-order-3", "holds", "TokenGT, by hyperedges 1.89 (claimed 2"),
        ("ppgt-complexity", "holds", "PPGT 2.00 (claimed 2"),
        ("tokengt-equivariant-layer", "holds", "one layer, n = 4 1e-14 (with scores 5 apart 1e-02)"),
        ("tokengt-as-expressive-as-2-ign", "holds", "2-IGN of 3 layers, n = 5 6e-15"),
        (
            "hot-simulates-message-passing",
            "fails",
            "softmax kernel, equal features: nodes of 1, 2, 3, 4 and 5 neighbours differ by",
        ),
        ("hot-simulates-message-passing", "fails", "With coefficients of one: relative error"),
        (
            "tokengt-beyond-message-passing",
            "holds",
            "1-WL: csl 0, exp 0, cexp 10, sr25 0; ORF by inner products: csl 44, exp 20, cexp 20, sr25 105;",
        ),
        ("et-grandmother", "holds", "2 steps of MOTHER; Edge Transformer, 1 layers: F1 1.000"),
        (
            "et-nodes-do-not-learn-relations",
            "holds",
            "on nodes: F1 0.263, on families twice as large 0.130, on two equal ones in one graph 0.355",
        ),
        (
            "ppgt-stress-test",
            "not tested",
            "needs 6 runs of an hour of one core: `gt-bench claims --recompute stress_test --case",
        ),
        (
            "polynormer-relu-kernel-nan",
            "undecided",
            "at most 1.1e+07 (with the sigmoid 2.4e+07), 0 / 0 in 0 of 400,000",
        ),
    ],
)
def test_what_the_papers_own_numbers_say(claim, verdict, why):
    word, said = evaluate_claim(ALL[claim])
    assert word == verdict
    assert why in said


def test_eleven_of_thirteen_is_the_sum_of_three_claims():
    counts = [
        evaluate_claim(ALL[f"polynormer-{name}"])[1].split(" columns")[0]
        for name in ("homophilic-wins-of-eleven", "r-heterophilic", "large")
    ]
    assert counts == ["best in 3 of 5", "best in 5 of 5", "best in 3 of 3"]


def test_two_claims_on_one_sentence_and_case_are_not_separate():
    seen = [(claim.paper, claim.sentence, claim.case) for claim in ALL.values()]
    assert len(seen) == len(set(seen))


def test_a_verdict_follows_the_published_numbers(monkeypatch):
    changed = [dict(entry) for entry in read_entries("edge-transformer")]
    for entry in changed:
        if (entry["paper"], entry["table"], entry["method"], entry["dataset"]) == (
            "edge-transformer",
            "Table 3",
            "ET",
            "cornell",
        ):
            entry["mean"] = 68.0
    monkeypatch.setattr("gt_bench.papers.published.read_entries", lambda paper: changed)
    assert evaluate_claim(ALL["et-outperforms-all-nodes"])[0] == "agrees in the paper"


def test_without_the_data_a_claim_is_undecided_and_states_what_it_needs(tmp_path):
    for name in ("ppgt-3-wl-on-brec", "polynormer-homophily-tolokers"):
        word, why = evaluate_claim(ALL[name], data=tmp_path)
        assert word == "undecided"
        assert "`dvc repro download@" in why


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"test": {"kind": "bets", "arguments": {}}}, "unknown kind of test 'bets' (did you mean 'best'?)"),
        ({"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "EET"}}}, "EET"),
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "ET", "datasets": ["cornel"]}}},
            "no dataset 'cornel'",
        ),
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "method": "ET", "against": ["GCNN"]}}},
            "no method 'GCNN'",
        ),
        (
            {"test": {"kind": "best", "arguments": {"table": "Table 3", "methods": "ET"}}},
            "invalid arguments of the test best",
        ),
        (
            {
                "test": {
                    "kind": "equals",
                    "arguments": {"printed": 1, "of": {"table": "Table 9", "method": "ET", "dataset": "x"}},
                }
            },
            "no table 'Table 9'",
        ),
        ({"test": None}, "expected a key `test`, or `needs`"),
        ({"verdict": "holds"}, "unknown key"),
    ],
)
def test_a_claim_that_cannot_be_is_one_clear_line(tmp_path, change, said):
    entry = {"id": "x", "place": "here", "sentence": "so it is"} | change
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [entry]}))
    with pytest.raises(RecipeError) as error:
        evaluate_claim(claims_of("edge-transformer", tmp_path)[0], path=str(path))
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


TABLE_3 = {"table": "Table 3", "method": "ET", "dataset": "cornell"}


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("best", {"table": "Table 3", "method": "ET", "split": "vali"}, "no split 'vali'"),
        ("best", {"table": "Table 3", "method": "ET", "rank": 0}, "rank: Input should be greater than or equal to 1"),
        ("best", {"table": "Table 3", "method": "ET", "against": ["ET"]}, "has no other number on"),
        ("nobody_in_front", {"table": "Table 3", "rank": 0}, "rank: Input should be greater than or equal to 1"),
        ("growth", {"exponents": {}}, "growth names no model"),
        (
            "no_gap",
            {"table": "Table 3", "methods": [], "seen": "train", "unseen": "test"},
            "0 methods, 'train' and 'test' leave nothing to compare",
        ),
        (
            "best",
            {"table": "Table 3", "method": "ET", "count": 4},
            "Table 3 of edge-transformer has 3 columns for ET, not 4",
        ),
        ("best", {"table": "Table 3", "method": ["ET"]}, "method: Input should be a valid string"),
        (
            "order",
            {"table": "Table 3", "better": ["ET"], "worse": ["GCN"], "datasets": ["cornell", "corn"]},
            "no dataset 'corn'",
        ),
        ("order", {"table": "Table 3", "better": ["ET"], "worse": ["GCN"], "metric": "f2"}, "no metric 'f2'"),
        (
            "order",
            {"table": "Table 3", "better": [], "worse": ["GCN"]},
            "has no column with numbers of both groups",
        ),
        ("best_groups", {"table": "Table 33", "below": ["ET"], "above": ["GCN"]}, "no table 'Table 33'"),
        ("best_groups", {"table": "Table 3", "below": [], "above": ["GCN"]}, "has no number of  on cornell"),
        ("nobody_in_front", {"table": "Table 33", "rank": 3}, "no table 'Table 33'"),
        ("gain", {"printed": "much", "of": TABLE_3}, "printed: Input should be a valid number"),
        (
            "share",
            {"printed": 1, "of": TABLE_3, "over": TABLE_3, "what": "param"},
            "what: Input should be 'mean' or 'params'",
        ),
        ("share", {"printed": 1, "of": TABLE_3, "over": TABLE_3, "what": "params"}, "no params published"),
        ("adds_up", {"total": TABLE_3, "parts": ["corn"]}, "no dataset 'corn'"),
        ("told_apart", {"pair": "CSL"}, "the finding second_eigenvector has no case 'CSL, v1'"),
        ("at_least_one_wl", {"forms": ["gta"]}, "the finding one_wl has no case 'gta' (did you mean 'gat'?)"),
        ("magnitude_kept", {"norm": "layer", "kept": True}, "the finding auto_encoders has no case 'layer, '"),
        ("same_pairs", {"first": "GNI", "second": "1-WL"}, "the finding separation has no case 'GNI, '"),
        ("no_more_than", {"network": "GNI", "refinement": "1-WL"}, "the finding separation has no case 'GNI, '"),
        (
            "equivariant_layers",
            {"layers": ["one layer", "two layers"]},
            "the finding equivariant_layers has no case 'two layers, n = '",
        ),
        (
            "message_passing",
            {"reading": "equation 22", "otherwise": "coefficients of one"},
            "the finding message_passing has no case 'equation 22'",
        ),
        ("growth", {"exponents": {"HOT": 2}}, "the finding growth has no case 'HOT'"),
        ("growth", {"exponents": {"HOT (D)": 2}, "order": 3}, "the finding growth_of_order_3 has no case 'HOT (D)'"),
        ("no_gap", {"table": "Table 3", "methods": ["EET"], "seen": "train", "unseen": "test"}, "no method 'EET'"),
        (
            "no_gap",
            {"table": "Table 3", "methods": ["ET"], "seen": "test", "unseen": "test"},
            "1 methods, 'test' and 'test' leave nothing to compare",
        ),
        ("no_gap", {"table": "Table 3", "methods": ["ET"], "seen": "train", "unseen": "test"}, "no split 'train'"),
        ("trains_or_crashes", {"crashes": {"RMSN, 3": True}}, "the finding stress_test has no case 'RMSN, 3'"),
        ("maps_are_bases", {"cases": ["sparse"]}, "the finding attention_maps has no case 'sparse'"),
        (
            "colour_refinement",
            {"method": "1-wl", "counts": {"brec-cif": 0}},
            "BREC has no category 'brec-cif' (did you mean 'brec-cfi'?)",
        ),
        ("colour_refinement", {"method": "2-wl", "counts": {"brec-cfi": 0}}, "no refinement '2-wl'"),
        ("homophily", {"printed": {"fotos": 0.1}}, "no dataset 'fotos' (did you mean 'photo'?)"),
    ],
)
def test_a_name_that_is_not_there_is_no_verdict(tmp_path, kind, arguments, said):
    claim = Claim(
        id="x", paper="edge-transformer", place="here", sentence="so it is", test={"kind": kind, "arguments": arguments}
    )
    with pytest.raises(RecipeError) as error:
        evaluate_claim(claim, data=tmp_path)
    assert said in str(error.value)
    assert "claims.yaml: x: " in str(error.value)
    assert "\n" not in str(error.value)


def test_two_claims_of_one_name(tmp_path, monkeypatch):
    first = yaml.safe_load((ROOT / "suites/tokengt" / CLAIMS).read_text())["claims"][0]
    monkeypatch.chdir(tmp_path)
    mine = Path("suites/mine")
    mine.mkdir(parents=True)
    (mine / "suite.yaml").write_text("title: Mine\n")
    (mine / CLAIMS).write_text(yaml.safe_dump({"claims": [first]}))
    with pytest.raises(
        RecipeError, match=r"mine/claims.yaml and tokengt/claims.yaml: two claims are named 'tokengt-orf-"
    ):
        load_claims()


def test_metric_names_of_claims_are_those_of_the_file():
    assert (
        not {name for claim in ALL.values() if claim.test for name in claim.test.arguments.get("metrics", ())}
        & METRIC_NAMES.keys()
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["polynormr"],
            "no claims of a paper 'polynormr' (did you mean 'polynormer'?); papers with claims: edge-transformer, hot,",
        ),
        (["--case", "x"], "--case x: needs the finding: --recompute NAME"),
        (["--json", "--write", "x.md"], "--write: no effect with --json; leave one out"),
        (["--recompute", "x", "--json"], "--json: no effect with --recompute; leave one out"),
    ],
)
def test_wrong_arguments_of_claims(monkeypatch, arguments, says):
    monkeypatch.chdir(ROOT)
    assert says in str(CliRunner().invoke(app, ["claims", *arguments]).exception)


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
    assert claim.made_here in evaluate_claim(claim)[1]
    assert claim.made_here not in evaluate_claim(claim.model_copy(update={"made_here": None}))[1]
