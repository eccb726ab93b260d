"""The rows of a cell: statistics of its records, one row for each published number."""

import numpy as np
import pytest

from gt_bench.leaderboard.collect import judged, summarise
from gt_bench.leaderboard.columns import cells
from gt_bench.leaderboard.row import Note, NoteKind
from gt_bench.leaderboard.words import remarks_of, status_of
from gt_bench.papers.pair_counts import PAIRS
from gt_bench.papers.published import lookup
from gt_bench.tasks.brec import FAMILIES, REGULAR, scores
from tests.gt_bench.cells import ET, changed, make_record, make_result, records, reduction


def test_a_row_in_figures():
    runs = records()
    row = summarise(make_result(ET, runs), runs)
    summary, published, cost = row.summary, row.published, row.cost
    assert (summary.mean, summary.std) == pytest.approx((0.65, np.std([0.6, 0.65, 0.7])))
    assert (summary.runs, summary.wanted, status_of(row.state)) == (3, 3, "ok")
    assert (published.mean, published.std, published.source) == (0.657, 0.049, "edge-transformer, Table 3, ET")
    assert row.difference == pytest.approx(-0.007)
    assert (cost.parameters, cost.seconds_per_epoch) == (1234, 1.25)
    assert (cost.peak_memory_mib, cost.device) == (402.0, "cpu")
    shown = cells(judged(make_result(ET, runs), runs)[0])
    assert shown[2:7] == ["accuracy ↑ %", "65.00 ± 4.08", "3/3", "65.70 ± 4.90 !", "-0.70 [-11.30, 9.90]"]
    assert any("two incompatible protocols" in flag or "split" in flag for flag in published.flags)


@pytest.mark.parametrize(("metric", "shown"), [("mae", "mae ↓ / σ"), ("mse", "mse ↓ / σ²"), ("r2", "r2 ↓")])
def test_errors_of_standardised_targets_have_another_unit(metric, shown):
    """Without it, they look like errors in the unit of the data."""
    cell = "mine/web/mlp"
    runs = [make_record(cell, seed) for seed in (0, 1)]
    result = changed(make_result(cell, runs), metric=metric, direction="min", published=None)
    for recipe, head in (({"targets": "train"}, shown), ({}, f"{metric} ↓")):
        row = summarise(changed(result, recipe=result.recipe | recipe), runs)
        assert cells(row)[2] == head


@pytest.mark.parametrize("imported", [None, {"commit": "0123abc", "stale": [{"part": "modified code"}]}])
def test_modified_code_gets_no_verdict(imported):
    runs = [changed(one, run={"digests": one.run.digests.to_disk() | {"modified": "d" * 64}}) for one in records()]
    (row,) = judged(changed(make_result(ET, runs), imported=imported), runs)
    assert (row.verdict.word, row.interval, row.summary.mean) == ("modified code", None, pytest.approx(0.65))


def test_an_epoch_that_was_chosen_on_test_is_flagged():
    runs = records()
    result = make_result(ET, runs)
    row = judged(changed(result, recipe=result.recipe | {"select": "test"}), runs)[0]
    assert row.chosen_on_test
    assert not summarise(result, runs).chosen_on_test
    assert cells(row)[3] == "65.00 ± 4.08 !"
    assert any("the epoch was chosen on the test split" in remark for remark in remarks_of(row))


def test_runs_on_two_kinds_of_device_have_no_cost():
    runs = records()
    runs[1] = changed(runs[1], measured={"device": "a GPU"})
    row = summarise(make_result(ET, runs), runs)
    assert (row.cost.device, row.cost.seconds_per_epoch, row.cost.peak_memory_mib) == ("a GPU, cpu", None, None)
    assert row.summary.mean == pytest.approx(0.65)


def brec_runs(pairs, distinguished, status="ok", seeds=3):
    curves = {"pair": list(pairs), "distinguished": [int(p in distinguished) for p in pairs]}
    curves |= {"unchecked": [0] * len(pairs), "reliable": [1] * len(pairs)}
    tested = {"test": float(len(distinguished)), "test_metrics": scores(curves)} if status == "ok" else {}
    runs = [make_record("ppgt/brec/ppgt", seed, status=status) for seed in range(seeds)]
    return [changed(run, run={"epochs": run.run.epochs | curves} | tested) for run in runs]


@pytest.mark.parametrize("status", ["ok", "timed-out"])
def test_a_category_of_brec_is_a_whole_experiment(status):
    runs = brec_runs([*range(60), *range(60, 99)], set(range(60)), status)
    counts = {"table": "Table 1", "metric": "pairs-distinguished"}
    also = [counts | {"dataset": f"brec-{part}"} for part in ("basic", "regular")]
    published = counts | {"paper": "ppgt", "method": "PPGT", "dataset": "brec-total", "also": also}
    result = make_result("ppgt/brec/ppgt", runs, reduced=("99 of 400 pairs",))
    result = changed(result, metric="pairs-distinguished", published=published)
    rows = {row.published.place[3]: row for row in judged(result, runs) if row.published}
    assert rows["brec-total"].verdict.word in ("reduced", "no result")
    basic = rows["brec-basic"]
    assert (basic.verdict.word, basic.summary.mean, basic.published.mean) == ("consistent", 60, 60)
    assert basic.state.complete
    assert not basic.reduced
    if status == "ok":
        assert rows["brec-regular"].verdict.word == "reduced"  # 39 of its 140 pairs
    else:
        assert "brec-regular" not in rows or rows["brec-regular"].verdict.word == "no result"
    # with fewer epochs for each pair it is another experiment
    cut = changed(result, reduced=[reduction(text).to_disk() for text in ("99 of 400 pairs", "5 of 10 epochs")])
    again = {row.published.place[3]: row for row in judged(cut, runs) if row.published}
    assert again["brec-basic"].verdict.word == "reduced"


def test_an_eigenvector_that_the_graph_does_not_determine_is_flagged_on_the_row():
    key = "second-eigenvector"

    def flagged(count):
        encodings = {key: {"computed_by": {}, "flags": {"repeated_eigenvalue": count}}}
        runs = [changed(make_record(ET, seed), measured={"encodings": encodings}) for seed in range(2)]
        return judged(make_result(ET, runs), runs)[0]

    row = flagged(3)
    assert row.notes == (Note(NoteKind.NOT_UNIQUE, (key, "repeated_eigenvalue", 3)),)
    assert row.notes[0].kind.severe
    assert any(key in remark for remark in remarks_of(row))
    assert not flagged(0).notes


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
    row = judged(result, runs)[0]
    assert row.verdict.word == "published number not found"
    assert [note.kind for note in row.notes] == [NoteKind.NOT_FOUND]


def test_a_row_for_every_number_that_is_printed_of_the_same_runs():
    cell = "hot/chains/hot"
    runs = [make_record(cell, seed) for seed in range(3)]
    scores = {"f1-micro": 0.5, "f1-macro": 0.25}
    runs = [changed(run, run={"test_metrics": run.run.test_metrics | scores}) for run in runs]
    published = {"paper": "hot", "table": "Table 1", "method": "Ours (S)", "metric": "f1-micro"}
    published["also"] = [{"table": "Table 1", "metric": "f1-macro"}]
    result = changed(make_result(cell, runs), published=published)
    main, macro = judged(result, runs)
    micro, also = (lookup("hot", "Table 1", "Ours (S)", "chains", metric) for metric in ("f1-micro", "macro-f1"))
    assert (main.metric, main.published.mean) == ("accuracy", micro.mean)
    assert (macro.metric, macro.summary.mean, macro.summary.values) == ("macro-f1", 0.25, (0.25,) * 3)
    assert macro.published.mean == also.mean
    assert macro.verdict.word == "worse"


def test_a_cost_is_shown_and_never_judged():
    cell = "ppgt/peptides-struct/ppgt"
    runs = [make_record(cell, seed) for seed in range(4)]
    published = {"paper": "ppgt", "table": "Table 3", "method": "PPGT", "also": [{"table": "Table 15"}]}
    result = changed(make_result(cell, runs), metric="mae", direction="min", published=published)
    rows = {row.metric: row for row in judged(result, runs)}
    assert set(rows) == {"mae", "gpu-memory-gb", "seconds-per-epoch"}
    assert rows["seconds-per-epoch"].summary.mean == pytest.approx(np.mean([0.25, 1.25, 2.25, 3.25]))
    assert rows["gpu-memory-gb"].summary.mean == pytest.approx(np.mean([400, 401, 402, 403]) * 2**20 / 1e9)
    assert {rows[m].verdict.word for m in ("gpu-memory-gb", "seconds-per-epoch")} == {"another machine"}


def test_a_printed_dataset_may_be_a_part_of_the_test_set():
    metrics = ("f1", "rand-index", "adjusted-rand-index")
    parts = {f"{metric}@jets-{flavour}": 0.6 for metric in metrics for flavour in "bcl"}
    scores = {"partition-f1": 0.9, "rand-index": 0.8, **parts, "f1@jets-b": 0.667}
    tested = {"metric": "partition-f1", "test": 0.9, "test_metrics": scores}
    records = [changed(make_record("hot/jets/hot-dense", seed), run=tested) for seed in range(2)]
    also = [{"table": "Table 3", "dataset": f"jets-{flavour}"} for flavour in "cl"]
    published = {"paper": "hot", "table": "Table 3", "method": "Ours (D)", "dataset": "jets-b", "also": also}
    result = changed(make_result("hot/jets/hot-dense", records), metric="partition-f1", published=published)
    rows = judged(result, records)
    assert len(rows) == 9
    found = {row.metric: row.summary.mean for row in rows}
    assert found.pop("f1 (jets-b)") == pytest.approx(0.667) == rows[0].published.mean
    assert found == {f"{m} (jets-{f})": pytest.approx(0.6) for m in metrics for f in "bcl" if (m, f) != ("f1", "b")}


def test_a_number_printed_for_the_training_set_is_the_last_training_loss():
    tested = {"metric": "squared-error", "direction": "min", "test_metrics": {"squared-error": 0.65}}
    cell = "tokengt/ba-equivariant-basis-dense/orf"
    records = [changed(make_record(cell, seed), run=tested) for seed in range(2)]
    table = "table:equivariant_basis_approximation_std"
    published = {
        "paper": "tokengt", "table": table, "method": "node id. = ORF, type id. = yes", "split": "test",
        "also": [{"table": table, "split": "train"}],
    }  # fmt: skip
    result = changed(make_result(cell, records), metric="squared-error", direction="min", published=published)
    test, train = judged(result, records)
    assert (test.published.mean, test.summary.mean) == (0.009, pytest.approx(0.65))
    assert train.published.mean == 0.080
    assert train.summary.mean == pytest.approx(np.mean([r.run.epochs["train_loss"][-1] for r in records]))


def test_a_number_that_is_published_over_averages_is_compared_over_averages():
    published = {"paper": "edge-transformer", "table": "Table 3", "method": "GIN(E)"}
    cell = "edge-transformer/cornell/gin"
    # ten splits that differ much, five repetitions that do not
    runs = [make_record(cell, seed, test=0.3 + 0.04 * (seed % 10) + 0.001 * (seed // 10)) for seed in range(50)]
    result = changed(make_result(cell, runs), published=published)
    (row,) = judged(result, runs)
    assert (row.summary.runs, row.summary.wanted, row.published.runs) == (5, 5, 5)
    assert row.summary.mean == pytest.approx(0.482)
    assert row.summary.std == pytest.approx(0.001 * 2**0.5)
    assert row.notes == (Note(NoteKind.AVERAGED, (5, 10)),)
    assert row.verdict.word == "worse"
    # if runs are missing, there is no average to compare
    (some,) = judged(changed(make_result(cell, runs[:7]), published=published), runs[:7])
    assert some.summary.runs == 7
    assert some.notes == (Note(NoteKind.SINGLE_RUNS, (10, 7)),)
