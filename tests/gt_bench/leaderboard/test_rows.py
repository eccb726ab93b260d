"""The rows of a cell: statistics of its records, one row for each published number."""

import numpy as np
import pytest

from gt_bench.leaderboard.columns import cells, remarks_of
from gt_bench.leaderboard.rows import rows_of, summarise
from gt_bench.leaderboard.verdicts import with_verdict
from gt_bench.papers.pair_counts import PAIRS
from gt_bench.papers.published import lookup
from gt_bench.schemas import COLUMNS
from gt_bench.tasks.brec import FAMILIES, REGULAR, scores
from tests.gt_bench.cells import ET, make_record, make_result, records


def test_a_row_in_figures():
    runs = records()
    row = summarise(make_result(ET, runs), runs)
    assert set(row) == {*COLUMNS, "state"}
    assert row["mean"] == pytest.approx(0.65)
    assert row["std"] == pytest.approx(np.std([0.6, 0.65, 0.7]))
    assert (row["std_ddof"], row["runs"], row["seeds"], row["status"]) == (0, 3, 3, "ok")
    assert (row["published_mean"], row["published_std"], row["published_source"]) == (
        0.657,
        0.049,
        "edge-transformer, Table 3, ET",
    )
    assert row["difference"] == pytest.approx(-0.007)
    assert (row["parameters"], row["seconds_per_epoch"], row["peak_memory_mib"], row["device"]) == (
        1234,
        1.25,
        402.0,
        "cpu",
    )
    shown = cells(with_verdict(row, make_result(ET, runs)))
    assert shown[2:7] == ["accuracy ↑ %", "65.00 ± 4.08", "3/3", "65.70 ± 4.90 !", "-0.70 [-11.30, 9.90]"]
    assert any("two incompatible protocols" in flag or "split" in flag for flag in row["flags"])


@pytest.mark.parametrize(("metric", "shown"), [("mae", "mae ↓ / σ"), ("mse", "mse ↓ / σ²"), ("r2", "r2 ↓")])
def test_errors_of_standardised_targets_have_another_unit(metric, shown):
    """Without it, they look like errors in the unit of the data."""
    cell = "mine/web/mlp"
    runs = [make_record(cell, seed) for seed in (0, 1)]
    result = make_result(cell, runs) | {"metric": metric, "direction": "min", "published": None}
    for recipe, head in (({"targets": "train"}, shown), ({}, f"{metric} ↓")):
        row = summarise(result | {"recipe": {**result["recipe"], **recipe}}, runs)
        assert cells(with_verdict(row, result))[2] == head


@pytest.mark.parametrize("imported", [None, {"commit": "0123abc", "stale": ["modified code"]}])
def test_modified_code_gets_no_verdict(imported):
    runs = records()
    for run in runs:
        run["deterministic"]["digests"]["modified"] = "m" * 64
    (row,) = rows_of(make_result(ET, runs) | {"imported": imported}, runs)
    assert (row["verdict"], row["interval_low"], row["mean"]) == ("none: modified code", None, pytest.approx(0.65))


def test_an_epoch_that_was_chosen_on_test_is_flagged():
    runs = records()
    result = make_result(ET, runs)
    row = with_verdict(summarise(result | {"recipe": {**result["recipe"], "select": "test"}}, runs), result)
    assert row["chosen_on_test"]
    assert not summarise(result, runs)["chosen_on_test"]
    assert cells(row)[3] == "65.00 ± 4.08 !"
    assert any("the epoch was chosen on the test split" in remark for remark in remarks_of(row))


def test_what_two_kinds_of_device_took_is_a_cost_of_neither():
    runs = records()
    runs[1]["measured"]["device"] = "a GPU"
    row = summarise(make_result(ET, runs), runs)
    assert (row["device"], row["seconds_per_epoch"], row["peak_memory_mib"]) == ("a GPU, cpu", None, None)
    assert row["mean"] == pytest.approx(0.65)


def brec_runs(pairs, distinguished, status="ok", seeds=3):
    runs = [make_record("ppgt/brec/ppgt", seed, status=status) for seed in range(seeds)]
    for run in runs:
        curves = {
            "pair": list(pairs),
            "distinguished": [int(p in distinguished) for p in pairs],
            "unchecked": [0] * len(pairs),
            "reliable": [1] * len(pairs),
        }
        run["deterministic"]["epochs"] |= curves
        if status == "ok":
            run["deterministic"] |= {"test": float(len(distinguished)), "test_metrics": scores(curves)}
    return runs


@pytest.mark.parametrize("status", ["ok", "timed-out"])
def test_a_category_of_brec_is_a_whole_experiment(status):
    runs = brec_runs([*range(60), *range(60, 99)], set(range(60)), status)
    result = make_result("ppgt/brec/ppgt", runs, reduced=("99 of 400 pairs",)) | {"metric": "pairs-distinguished"}
    also = [
        {"table": "Table 1", "dataset": f"brec-{part}", "metric": "pairs-distinguished"}
        for part in ("basic", "regular")
    ]
    result["published"] = {
        "paper": "ppgt",
        "table": "Table 1",
        "method": "PPGT",
        "dataset": "brec-total",
        "metric": "pairs-distinguished",
        "also": also,
    }
    rows = {row["published_place"][3]: row for row in rows_of(result, runs) if row["published_place"]}
    assert rows["brec-total"]["verdict"] in ("none: reduced", "none: no result")
    basic = rows["brec-basic"]
    assert (basic["verdict"], basic["mean"], basic["published_mean"], basic["reduced"], basic["status"]) == (
        "consistent",
        60,
        60,
        [],
        "ok",
    )
    if status == "ok":
        assert rows["brec-regular"]["verdict"] == "none: reduced"  # 39 of its 140 pairs
    else:
        assert "brec-regular" not in rows or rows["brec-regular"]["verdict"] == "none: no result"
    # with fewer epochs for each pair it is another experiment
    cut = result | {"reduced": ["99 of 400 pairs", "5 of 10 epochs"]}
    again = {row["published_place"][3]: row for row in rows_of(cut, runs) if row["published_place"]}
    assert again["brec-basic"]["verdict"] == "none: reduced"


@pytest.mark.parametrize("status", ["ok", "timed-out"])
def test_a_cell_whose_own_number_is_a_category_is_judged_by_that_category_alone(status):
    cfi = sorted(PAIRS["brec-cfi"])
    runs = brec_runs([*cfi, *range(40)], {*cfi[:24], *range(40)}, status)
    result = make_result("ppgt/brec/ppgt-s15", runs, reduced=("140 of 400 pairs",)) | {"metric": "pairs-distinguished"}
    result["published"] = {
        "paper": "ppgt",
        "table": "Table 11",
        "method": "PPGT (S=15)",
        "dataset": "brec-cfi",
        "metric": "pairs-distinguished",
    }
    row = rows_of(result, runs)[0]
    assert (row["mean"], row["published_mean"], row["verdict"], row["status"]) == (24, 24, "consistent", "ok")


def test_an_eigenvector_that_the_graph_does_not_determine_is_flagged_on_the_row():
    runs = [make_record(ET, seed) for seed in range(2)]
    key = "second-eigenvector"
    for run in runs:
        run["measured"]["encodings"] = {key: {"computed_by": {}, "flags": {"repeated_eigenvalue": 3}}}
    row = rows_of(make_result(ET, runs), runs)[0]
    (note,) = [note for note in row["notes"] if key in note]
    assert note.startswith("! the encoding second-eigenvector has a repeated eigenvalue in 3 of the graphs")
    assert any(note in remark for remark in remarks_of(row))
    for run in runs:
        run["measured"]["encodings"][key]["flags"] = {"repeated_eigenvalue": 0}
    assert not [note for note in rows_of(make_result(ET, runs), runs)[0]["notes"] if key in note]


def test_the_pairs_of_a_category_are_those_that_a_run_counts():
    starts = [*FAMILIES.values(), 400]
    families = {name: set(range(a, b)) for name, a, b in zip(FAMILIES, starts[:-1], starts[1:], strict=True)}
    for name in ("basic", "extension", "cfi"):
        assert PAIRS[f"brec-{name}"] == families[name]
    assert PAIRS["brec-regular"] == set().union(*(families[name] for name in REGULAR))
    assert PAIRS["brec-total"] == set(range(400))


def test_a_wrong_reference_is_a_remark_not_an_end():
    runs = records()
    result = make_result(ET, runs, method="ETT")
    row = with_verdict(summarise(result, runs), result)
    assert row["verdict"] == "none: published number not found"
    assert "no method 'ETT'" in row["notes"][0]


def test_a_row_for_every_number_that_is_printed_of_the_same_runs():
    cell = "hot/chains/hot"
    runs = [make_record(cell, seed) for seed in range(3)]
    for run in runs:
        run["deterministic"]["test_metrics"] |= {"f1-micro": 0.5, "f1-macro": 0.25}
    result = make_result(cell, runs) | {
        "published": {"paper": "hot", "table": "Table 1", "method": "Ours (S)", "metric": None}
    }
    result["published"] |= {"also": [{"table": "Table 1", "metric": "f1-macro"}], "metric": "f1-micro"}
    main, macro = rows_of(result, runs)
    assert (main["metric"], main["published_mean"]) == (
        "accuracy",
        lookup("hot", "Table 1", "Ours (S)", "chains", "f1-micro").mean,
    )
    assert (macro["metric"], macro["mean"], macro["values"]) == ("macro-f1", 0.25, [0.25] * 3)
    assert macro["published_mean"] == lookup("hot", "Table 1", "Ours (S)", "chains", "macro-f1").mean
    assert macro["verdict"] == "worse"


def test_a_cost_is_shown_and_never_judged():
    cell = "ppgt/peptides-struct/ppgt"
    runs = [make_record(cell, seed) for seed in range(4)]
    result = make_result(cell, runs) | {"metric": "mae", "direction": "min"}
    result["published"] = {"paper": "ppgt", "table": "Table 3", "method": "PPGT", "also": [{"table": "Table 15"}]}
    rows = {row["metric"]: row for row in rows_of(result, runs)}
    assert set(rows) == {"mae", "gpu-memory-gb", "seconds-per-epoch"}
    assert rows["seconds-per-epoch"]["mean"] == pytest.approx(np.mean([0.25, 1.25, 2.25, 3.25]))
    assert rows["gpu-memory-gb"]["mean"] == pytest.approx(np.mean([400, 401, 402, 403]) * 2**20 / 1e9)
    assert {rows[m]["verdict"] for m in ("gpu-memory-gb", "seconds-per-epoch")} == {"none: another machine"}


def test_a_place_that_prints_costs_alone_has_a_row_for_each_and_none_for_the_metric():
    cell = "ppgt/peptides-struct/grit-runtime"
    runs = [make_record(cell, seed) for seed in range(2)]
    result = make_result(cell, runs) | {"metric": "mae", "direction": "min"}
    result["published"] = {"paper": "ppgt", "table": "Table 15", "method": "GRIT"}
    main, *costs = rows_of(result, runs)
    assert (main["metric"], main["published_mean"], main["verdict"], main["notes"]) == (
        "mae",
        None,
        "no published number",
        [],
    )
    printed = {row["metric"]: row["published_mean"] for row in costs}
    assert printed == {"gpu-memory-gb": 29.16, "seconds-per-epoch": 141.6}


def test_a_place_where_nothing_is_printed_is_reported_and_costs_no_row():
    runs = records()
    result = make_result(ET, runs)
    result["published"] = result["published"] | {"also": [{"table": "Table 99"}]}
    (row,) = rows_of(result, runs)
    assert any("has no number at {'table': 'Table 99'}" in note for note in row["notes"])
    assert row["mean"] == pytest.approx(0.65)


def test_a_printed_dataset_may_be_a_part_of_the_test_set():
    records = [make_record("hot/jets/hot-dense", seed) for seed in range(2)]
    for record in records:
        record["deterministic"] |= {"metric": "partition-f1", "test": 0.9}
        parts = {
            f"{metric}@jets-{flavour}": 0.6
            for metric in ("f1", "rand-index", "adjusted-rand-index")
            for flavour in "bcl"
        }
        record["deterministic"]["test_metrics"] = {"partition-f1": 0.9, "rand-index": 0.8, **parts, "f1@jets-b": 0.667}
    also = [{"table": "Table 3", "dataset": f"jets-{flavour}"} for flavour in "cl"]
    result = make_result("hot/jets/hot-dense", records) | {"metric": "partition-f1"}
    result["published"] = {"paper": "hot", "table": "Table 3", "method": "Ours (D)", "dataset": "jets-b", "also": also}
    rows = rows_of(result, records)
    assert len(rows) == 9
    assert (rows[0]["metric"], rows[0]["mean"], rows[0]["published_mean"]) == (
        "f1 (jets-b)",
        pytest.approx(0.667),
        0.667,
    )
    assert all(row["mean"] == pytest.approx(0.6) for row in rows[1:])
    assert {row["metric"] for row in rows} == {
        f"{m} (jets-{f})" for m in ("f1", "rand-index", "adjusted-rand-index") for f in "bcl"
    }


def test_a_number_printed_for_the_training_set_is_the_last_training_loss():
    records = [make_record("tokengt/ba-equivariant-basis-dense/orf", seed) for seed in range(2)]
    for record in records:
        record["deterministic"] |= {
            "metric": "squared-error",
            "direction": "min",
            "test_metrics": {"squared-error": record["deterministic"]["test"]},
        }
    table = "table:equivariant_basis_approximation_std"
    result = make_result("tokengt/ba-equivariant-basis-dense/orf", records) | {
        "metric": "squared-error",
        "direction": "min",
    }
    result["published"] = {
        "paper": "tokengt", "table": table, "method": "node id. = ORF, type id. = yes", "split": "test",
        "also": [{"table": table, "split": "train"}],
    }  # fmt: skip
    test, train = rows_of(result, records)
    assert (test["published_mean"], test["mean"]) == (0.009, pytest.approx(0.65))
    assert train["published_mean"] == 0.080
    assert train["mean"] == pytest.approx(np.mean([r["deterministic"]["epochs"]["train_loss"][-1] for r in records]))


def test_equal_records_give_equal_rows_whatever_was_killed_on_the_way():
    cell = "edge-transformer/texas/gcn"
    runs = [make_record(cell, seed) for seed in range(2)]
    search = {
        "trials": 4,
        "used": 4,
        "states": {"COMPLETE": 3, "PRUNED": 1},
        "best_validation": 0.5,
        "keys": ["model.dropout"],
    }
    plain = rows_of(make_result(cell, runs) | {"search": search}, runs)
    # results of older versions count trials that were killed and queued again as failed
    killed = search | {"trials": 7, "states": {"COMPLETE": 3, "FAIL": 3, "PRUNED": 1}}
    assert rows_of(make_result(cell, runs) | {"search": killed}, runs) == plain
    assert "searched on validation: 4 trials (3 complete, 1 pruned)" in plain[0]["notes"]


def test_a_number_that_is_published_over_averages_is_compared_over_averages():
    published = {"paper": "edge-transformer", "table": "Table 3", "method": "GIN(E)"}
    cell = "edge-transformer/cornell/gin"
    # ten splits that differ much, five repetitions that do not
    runs = [make_record(cell, seed, test=0.3 + 0.04 * (seed % 10) + 0.001 * (seed // 10)) for seed in range(50)]
    result = make_result(cell, runs) | {"published": published}
    (row,) = rows_of(result, runs)
    assert (row["runs"], row["seeds"], row["published_runs"]) == (5, 5, 5)
    assert row["mean"] == pytest.approx(0.482)
    assert row["std"] == pytest.approx(0.001 * 2**0.5)
    assert "5 averages of 10 runs each, as the published number has it" in row["notes"]
    assert row["verdict"] == "worse"
    # if runs are missing, there is no average to compare
    (some,) = rows_of(make_result(cell, runs[:7]) | {"published": published}, runs[:7])
    assert some["runs"] == 7
    assert any("compared as single runs" in note for note in some["notes"])
