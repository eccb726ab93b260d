"""Published numbers as printed, verdicts against scipy and by hand, rows and their files."""

import csv
import io
import json
import re
from collections import Counter

import numpy as np
import pytest
import yaml

from stages import findings
from stages.report.brec import PAIRS
from stages.report.figures import learning_curves
from stages.report.published import RESULTS, PublishedError, lookup, resolve
from stages.report.rules import Rules
from stages.report.table import (
    COLUMNS,
    SHOWN,
    absent,
    cells,
    remarks_of,
    rows_of,
    summarise,
    table_lines,
    tally,
    terminal_table,
    to_csv,
    to_json,
    to_markdown,
    with_claims,
    with_verdict,
)
from stages.tasks.brec import FAMILIES, REGULAR, scores
from tests.stages.cells import make_record, make_result, without_data

ET = "edge-transformer/cornell/edge-transformer"
PAPERS = ("tokengt", "hot", "ppgt", "edge_transformer", "polynormer")
ENTRIES = yaml.load(RESULTS.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["results"]


@pytest.mark.parametrize(
    ("names", "mean", "std", "runs"),
    [
        (("edge_transformer", "Table 3", "ET", "cornell"), 0.657, 0.049, None),
        (("edge-transformer", "Table 3", "GCN", "wisconsin", "accuracy"), 0.694, 0.027, None),
        (("polynormer", "Table 2", "Polynormer-r", "minesweeper", "roc-auc"), 0.9746, 0.0036, 10),
        (("ppgt", "Table 3", "PPGT", "peptides-struct", "mae"), 0.245, 0.0017, 4),
        (("polynormer", "Table 6", "Polynormer", "pokec", "gpu-memory-gb"), 21.54, None, None),
    ],
)
def test_a_printed_number_is_found_in_raw_units(names, mean, std, runs):
    found = lookup(*names)
    assert found.mean == pytest.approx(mean, abs=1e-12)
    assert found.std == (None if std is None else pytest.approx(std, abs=1e-12))
    assert found.runs == runs


def test_every_printed_number_is_found_by_its_own_names():
    for entry in ENTRIES:
        found = lookup(*(entry[k] for k in ("paper", "table", "method", "dataset", "metric", "split")))
        assert (found.printed, found.oom) == (entry["printed"], entry["oom"])
        scale = 100 if entry["unit"] == "percent" else 1
        assert (found.mean is None) == (entry["mean"] is None)
        assert found.mean is None or found.mean * scale == pytest.approx(entry["mean"], rel=1e-12)
    assert len(ENTRIES) == 907


def test_the_readme_of_published_counts_what_is_there():
    folder = RESULTS.parent
    text = (folder / "README.md").read_text()
    papers = Counter(entry["paper"] for entry in ENTRIES)
    assert f"{len(ENTRIES)} entries, baselines included" in text
    assert f"{sum(bool(entry['own']) for entry in ENTRIES)} of the entries are the papers' own" in text
    assert (
        f"Papers: {', '.join(f'`{paper}` ({papers[paper]} entries)' if i == 0 else f'`{paper}` ({papers[paper]})' for i, paper in enumerate(PAPERS))}."
        in text
    )
    further = yaml.safe_load((folder / "further.yaml").read_text())["results"]
    words = {5: "five", 9: "nine"}
    for paper in {entry["paper"] for entry in further}:
        own = [entry for entry in further if entry["paper"] == paper]
        assert f"({len(own)} numbers on {words[len({entry['dataset'] for entry in own})]} sets)" in " ".join(text.split())
    # every file is said to be there, and every command that it names is one
    for path in folder.iterdir():
        assert path.name == "README.md" or f"`{path.name}{'/' * path.is_dir()}`" in text, path.name
    for name in re.findall(r"claims --recompute (\w+)`", text):
        assert name == "NAME" or name in findings.NAMES


@pytest.mark.parametrize("position", range(5))
def test_a_name_that_is_not_printed_is_an_error_with_the_nearest(position):
    names = ["edge_transformer", "Table 3", "(2,1)-SpeqNet", "cornell", "accuracy"]
    right = names[position]
    names[position] = right + "x"
    with pytest.raises(PublishedError, match="nearest: ") as error:
        lookup(*names)
    key = ("paper", "table", "method", "dataset", "metric")[position]
    assert f"no {key} {right + 'x'!r}" in str(error.value)
    assert repr(right) in str(error.value)


def test_several_numbers_ask_for_a_choice_and_the_test_split_is_the_default():
    with pytest.raises(PublishedError, match="metric seconds-per-epoch, split train; metric gpu-memory-gb, split train"):
        lookup("polynormer", "Table 6", "Polynormer", "pokec")
    names = ("tokengt", "table:equivariant_basis_approximation_std", "node id. = ORF, type id. = yes", "ba-equivariant-basis-dense", "l2")
    assert lookup(*names).split == "test"
    assert lookup(*names, "train").split == "train"
    assert lookup(*names, "train").mean != lookup(*names).mean


def test_our_metric_names_and_the_cell_fill_what_a_reference_leaves_out():
    reference = {"paper": "ppgt", "table": "Table 2", "method": "PPGT", "dataset": None, "metric": None}
    assert resolve(reference, "pattern", "balanced-accuracy").metric == "weighted-accuracy"
    assert resolve(reference | {"dataset": "cluster"}, "sbm-cluster", "balanced-accuracy").dataset == "cluster"
    assert resolve(None, "pattern", "accuracy") is None


def records(tests=(0.6, 0.65, 0.7), failed=()):
    good = [make_record(ET, s, test=t) for s, t in enumerate(tests)]
    return good + [make_record(ET, len(good) + i, status=s) for i, s in enumerate(failed)]


def test_a_row_in_figures():
    runs = records()
    row = summarise(make_result(ET, runs), runs)
    assert set(row) == set(COLUMNS)
    assert row["mean"] == pytest.approx(0.65)
    assert row["std"] == pytest.approx(np.std([0.6, 0.65, 0.7]))
    assert (row["std_ddof"], row["runs"], row["seeds"], row["status"]) == (0, 3, 3, "ok")
    assert (row["published_mean"], row["published_std"], row["published_source"]) == (0.657, 0.049, "edge_transformer, Table 3, ET")
    assert row["difference"] == pytest.approx(-0.007)
    assert (row["parameters"], row["seconds_per_epoch"], row["peak_memory_mib"], row["device"]) == (1234, 1.25, 402.0, "cpu")
    shown = cells(with_verdict(row, make_result(ET, runs)))
    assert shown[2:7] == ["accuracy ↑ %", "65.00 ± 4.08", "3/3", "65.70 ± 4.90 !", "-0.70 [-11.30, 9.90]"]
    assert any("two incompatible protocols" in flag or "split" in flag for flag in row["flags"])


def test_an_incomplete_a_reduced_and_a_failed_cell_get_no_verdict():
    runs = records(failed=("oom", "diverged"))
    result = make_result(ET, runs)
    row = with_verdict(summarise(result, runs), result)
    assert (row["status"], row["verdict"], row["runs"]) == ("ok 3/5 (1 diverged, 1 oom)", "none: 2 of 5 runs failed", 3)
    runs = records()
    for cut in ("5 of 10 epochs", "8 of 24 trials", "derived data: stand-in"):
        result = make_result(ET, runs, reduced=("3 of 10 seeds", cut))
        row = with_verdict(summarise(result, runs), result)
        assert (row["verdict"], row["interval_low"], row["margin"]) == ("none: reduced", None, None)
        assert row["difference"] == pytest.approx(-0.007)
        assert any(f"reduced, not the published setting: 3 of 10 seeds, {cut}" in r for r in remarks_of(row))
    runs = records(tests=(), failed=("oom", "oom"))
    result = make_result(ET, runs)
    row = with_verdict(summarise(result, runs), result)
    assert (row["status"], row["verdict"], row["mean"]) == ("oom", "none: no result", None)
    result = without_data(ET)
    row = with_verdict(summarise(result, []), result)
    assert (row["status"], row["published_mean"]) == ("not run: data", 0.562)


def test_a_cell_that_lacks_only_seeds_is_judged_with_what_it_has_and_never_counted_with_complete_ones():
    runs = records()
    whole, cut = make_result(ET, runs), make_result(ET, runs, reduced=("3 of 10 seeds",))
    begun = whole | {"seeds": list(range(10))}
    rows = [with_verdict(summarise(result, runs), result) for result in (whole, cut, begun)]
    assert [row["verdict"] for row in rows] == ["reproduced", "consistent, 3 of 10 runs", "consistent, 3 of 10 runs"]
    assert rows[0]["margin"] > rows[1]["margin"] == rows[2]["margin"]  # that of all ten seeds, whatever was run of them
    assert rows[1]["power"] < rows[0]["power"]
    assert [row["seeds_needed"] for row in rows[1:]] == [None, None]
    rows = with_claims(rows)
    assert [row["q_difference"] is None for row in rows] == [False, True, True]
    assert tally(rows, Rules()).startswith("1 numbers judged (1 reproduced). ")
    assert "at most 0.1 as higher or lower; 0 are" in tally(rows, Rules())
    assert "Provisional: 2, in none of these counts" in tally(rows, Rules())
    one = with_verdict(summarise(cut, runs[:1]), cut | {"seeds": [0]})
    assert one["verdict"] == "consistent, 1 of 10 runs"
    assert any("a single run: judged by the printed spread alone" in note for note in one["notes"])


def test_a_claim_is_held_against_our_own_run_of_the_rival_where_there_is_one():
    printed = {"paper": "polynormer", "table": "Table 2", "metric": "roc-auc"}

    def row(model, values, method, reduced=()):
        runs = [make_record(f"polynormer/minesweeper/{model}", s, test=v) for s, v in enumerate(values)]
        result = make_result(f"polynormer/minesweeper/{model}", runs, reduced=reduced) | {"metric": "roc-auc"}
        return rows_of(result | {"published": printed | {"method": method}}, runs)[0]

    noise = np.linspace(-0.002, 0.002, 10)
    ours = row("polynormer-r", 0.95 + noise, "Polynormer-r")
    assert lookup("polynormer", "Table 2", "GAT-sep", "minesweeper").mean == 0.9391  # the best of the others
    (alone,) = with_claims([ours])
    assert (alone["claim"], alone["claim_rival"]) == ("claim holds", "GAT-sep, printed")
    assert alone["claim_low"] > 0
    stronger, weaker = row("gat-sep", 0.955 + noise, "GAT-sep"), row("gat-sep-narrow", 0.90 + noise, "GAT-sep")
    held, other, _ = with_claims([ours, stronger, weaker])
    assert (held["claim"], held["claim_rival"]) == ("claim fails", "GAT-sep, our run gat-sep")
    assert other["claim"] is None  # a baseline claims nothing
    unfinished = row("gat-sep", 0.955 + noise, "GAT-sep", reduced=("10 of 20 seeds",))
    assert with_claims([ours, unfinished])[0]["claim_rival"] == "GAT-sep, printed"
    provisional = row("polynormer-r", 0.95 + noise[:3], "Polynormer-r", reduced=("3 of 10 seeds",))
    assert with_claims([provisional])[0]["claim"] == "claim holds, 3 of 10 runs"
    near = with_claims([row("polynormer-r", 0.9391 + 0.001 + noise[::3], "Polynormer-r", reduced=("4 of 10 seeds",))])[0]
    assert near["claim"] == "undecided, 4 of 10 runs"
    assert cells(near)[11].startswith("undecided, 4 of 10 runs")
    # its paper never said that it is the best there
    ratings = [make_record("polynormer/x/polynormer", s, test=0.6) for s in range(2)]
    result = make_result("polynormer/computer/polynormer", ratings) | {
        "published": {"paper": "ppgt", "table": "Table 3", "method": "PPGT", "dataset": "peptides-func", "metric": "ap"}
    }
    assert with_claims(rows_of(result, ratings))[0]["claim"] == "not claimed"


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
    also = [{"table": "Table 1", "dataset": f"brec-{part}", "metric": "pairs-distinguished"} for part in ("basic", "regular")]
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
    assert (basic["verdict"], basic["mean"], basic["published_mean"], basic["reduced"], basic["status"]) == ("consistent", 60, 60, [], "ok")
    if status == "ok":
        assert rows["brec-regular"]["verdict"] == "none: reduced"  # 39 of its 140 pairs
    else:
        assert "brec-regular" not in rows or rows["brec-regular"]["verdict"] == "none: no result"
    # fewer epochs for each pair are another experiment
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


def test_two_hundred_cells_of_which_most_have_nothing():
    runs = records()
    filled = with_verdict(summarise(make_result(ET, runs), runs), make_result(ET, runs))
    rows = with_claims([filled, *(absent(f"edge-transformer/cornell/m{n}", "not run", None) for n in range(200))])
    assert len(rows) == 201
    assert all(row["q_difference"] is None and row["claim"] is None for row in rows[1:])
    assert tally(rows[1:], Rules()).startswith("0 numbers judged (none). ")
    assert len(to_markdown("edge-transformer", rows, Rules()).splitlines()) > 200


def test_a_wrong_reference_is_a_remark_not_an_end():
    runs = records()
    result = make_result(ET, runs, method="ETT")
    row = with_verdict(summarise(result, runs), result)
    assert row["verdict"] == "none: published number not found"
    assert "no method 'ETT'" in row["notes"][0]


def test_files_of_rows():
    runs = records(failed=("oom",))
    result = make_result(ET, runs, reduced=("a | b",))
    rows = [with_verdict(summarise(result, runs), result), summarise(without_data(ET.replace("cornell", "texas")), [])]
    rows[1]["verdict"] = "none: no result"
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert content["std"] == "population (ddof 0) over runs"
    assert content["rows"][0]["mean"] == rows[0]["mean"]
    (first, second) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert float(first["mean"]) == rows[0]["mean"]
    assert (second["status"], second["mean"]) == ("not run: data", "")
    text = to_markdown("edge-transformer", rows, Rules())
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert "oom: as the test asked" in text
    assert text == to_markdown("edge-transformer", json.loads(json.dumps(rows)), Rules())


def test_curves_are_drawn_the_same_each_time_also_for_a_run_that_failed():
    runs = records(failed=("diverged",))
    picture = learning_curves("a cell", runs)
    assert picture.startswith(b"\x89PNG")
    assert picture == learning_curves("a cell", json.loads(json.dumps(runs)))
    assert picture != learning_curves("a cell", runs[:2])
    from matplotlib import style

    with style.context("ggplot"):
        assert picture == learning_curves("a cell", runs)


def test_a_row_for_every_number_that_is_printed_of_the_same_runs():
    cell = "hot/chains/hot"
    runs = [make_record(cell, seed) for seed in range(3)]
    for run in runs:
        run["deterministic"]["test_metrics"] |= {"f1-micro": 0.5, "f1-macro": 0.25}
    result = make_result(cell, runs) | {"published": {"paper": "hot", "table": "Table 1", "method": "Ours (S)", "metric": None}}
    result["published"] |= {"also": [{"table": "Table 1", "metric": "f1-macro"}], "metric": "f1-micro"}
    main, macro = rows_of(result, runs)
    assert (main["metric"], main["published_mean"]) == ("accuracy", lookup("hot", "Table 1", "Ours (S)", "chains", "f1-micro").mean)
    assert (macro["metric"], macro["mean"], macro["values"]) == ("macro-f1", 0.25, [0.25] * 3)
    assert macro["published_mean"] == lookup("hot", "Table 1", "Ours (S)", "chains", "macro-f1").mean
    assert macro["verdict"] == "lower (worse)"


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
    assert (main["metric"], main["published_mean"], main["verdict"], main["notes"]) == ("mae", None, "no published number", [])
    printed = {row["metric"]: row["published_mean"] for row in costs}
    assert printed == {"gpu-memory-gb": 29.16, "seconds-per-epoch": 141.6}


def test_a_place_where_nothing_is_printed_is_said_and_costs_no_row():
    runs = records()
    result = make_result(ET, runs)
    result["published"] = result["published"] | {"also": [{"table": "Table 99"}]}
    (row,) = rows_of(result, runs)
    assert any("prints nothing at {'table': 'Table 99'}" in note for note in row["notes"])
    assert row["mean"] == pytest.approx(0.65)


def test_a_printed_dataset_may_be_a_part_of_the_test_set():
    records = [make_record("hot/jets/hot-dense", seed) for seed in range(2)]
    for record in records:
        record["deterministic"] |= {"metric": "partition-f1", "test": 0.9}
        parts = {f"{metric}@jets-{flavour}": 0.6 for metric in ("f1", "rand-index", "adjusted-rand-index") for flavour in "bcl"}
        record["deterministic"]["test_metrics"] = {"partition-f1": 0.9, "rand-index": 0.8, **parts, "f1@jets-b": 0.667}
    also = [{"table": "Table 3", "dataset": f"jets-{flavour}"} for flavour in "cl"]
    result = make_result("hot/jets/hot-dense", records) | {"metric": "partition-f1"}
    result["published"] = {"paper": "hot", "table": "Table 3", "method": "Ours (D)", "dataset": "jets-b", "also": also}
    rows = rows_of(result, records)
    assert len(rows) == 9
    assert (rows[0]["metric"], rows[0]["mean"], rows[0]["published_mean"]) == ("f1 (jets-b)", pytest.approx(0.667), 0.667)
    assert all(row["mean"] == pytest.approx(0.6) for row in rows[1:])
    assert {row["metric"] for row in rows} == {f"{m} (jets-{f})" for m in ("f1", "rand-index", "adjusted-rand-index") for f in "bcl"}


def test_a_number_printed_for_the_training_set_is_the_last_training_loss():
    records = [make_record("tokengt/ba-equivariant-basis-dense/orf", seed) for seed in range(2)]
    for record in records:
        record["deterministic"] |= {
            "metric": "squared-error",
            "direction": "min",
            "test_metrics": {"squared-error": record["deterministic"]["test"]},
        }
    table = "table:equivariant_basis_approximation_std"
    result = make_result("tokengt/ba-equivariant-basis-dense/orf", records) | {"metric": "squared-error", "direction": "min"}
    result["published"] = {
        "paper": "tokengt", "table": table, "method": "node id. = ORF, type id. = yes", "split": "test", "also": [{"table": table, "split": "train"}],
    }  # fmt: skip
    test, train = rows_of(result, records)
    assert (test["published_mean"], test["mean"]) == (0.009, pytest.approx(0.65))
    assert train["published_mean"] == 0.080
    assert train["mean"] == pytest.approx(np.mean([r["deterministic"]["epochs"]["train_loss"][-1] for r in records]))


@pytest.mark.parametrize(("width", "costs"), [(60, False), (80, False), (180, False), (330, True)])
def test_a_table_leaves_columns_out_and_never_breaks_a_word(width, costs):
    from rich.console import Console

    cell = "hot/chains/hot-sparse-kernel-no-global"
    runs = [make_record(cell, seed) for seed in range(2)]
    row = rows_of(make_result(cell, runs, method=None), runs)[0]
    console = Console(width=width, file=io.StringIO())
    console.print(terminal_table("hot", [row], width))
    shown = console.file.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert "hot-sparse-kernel-no-global" in shown
    body = shown.partition("left out")[0]
    whole = {word for text in (*SHOWN, *cells(row)) for word in text.split()}
    assert {word for line in body.splitlines()[1:] for word in re.sub("[┃│┏┓┡┩└┘┳━╇┴─]", " ", line).split()} <= whole
    assert ("401" in shown) == costs
    assert ("left out" in shown) == (not costs)


def test_equal_records_give_equal_rows_whatever_was_killed_on_the_way():
    cell = "edge-transformer/texas/gcn"
    runs = [make_record(cell, seed) for seed in range(2)]
    search = {"trials": 4, "used": 4, "states": {"COMPLETE": 3, "PRUNED": 1}, "best_validation": 0.5, "keys": ["model.dropout"]}
    plain = rows_of(make_result(cell, runs) | {"search": search}, runs)
    # as results told it before: the trials that were killed and queued again among those that failed
    killed = search | {"trials": 7, "states": {"COMPLETE": 3, "FAIL": 3, "PRUNED": 1}}
    assert rows_of(make_result(cell, runs) | {"search": killed}, runs) == plain
    assert "searched on validation: 4 trials (3 complete, 1 pruned)" in plain[0]["notes"]


def test_foreign_text_in_a_reason_is_text_in_the_report():
    result = without_data("s/texas/gcn") | {"reason": "403 <img src=x onerror=alert(1)> \x1b[31m & more"}
    lines = table_lines(rows_of(result, []))
    (remark,) = [line for line in lines if "403" in line]
    assert "403 &lt;img src=x onerror=alert(1)&gt; [31m &amp; more" in remark


def test_mlflow_shows_what_the_leaderboard_shows(monkeypatch):
    from stages.mlflow import tracking
    from stages.mlflow.content import tracked_cell

    runs = records()
    result = make_result(ET, runs)
    (row,) = with_claims(rows_of(result, runs))
    assert not any(tag.startswith(("gt.verdict", "gt.claim")) for tag in tracked_cell(result, runs).tags)  # while it trains
    tags = tracked_cell(result, runs, row).tags
    assert (tags["gt.verdict"], tags["gt.claim"]) == ("reproduced", "not claimed")
    assert tags["gt.verdict.interval"] == f"[{row['interval_low']:.6g}, {row['interval_high']:.6g}]"
    assert [float(tags[f"gt.verdict.{k}"]) for k in ("margin", "power")] == [row["margin"], row["power"]]
    put = []

    class Store:
        def __init__(self, *_):
            pass

        def put_cell(self, *arguments):
            put.append(arguments)

        def drop_other_cells(self, _):
            pass

        def put_views(self):
            pass

    monkeypatch.setattr(tracking, "Mirror", Store)
    other = make_result(ET.replace("cornell", "texas"), [])
    tracking.complete(
        "edge-transformer", [result, other], {r["digest"]: r for r in runs}, rows=[row, row | {"verdict": "a further number"}]
    )
    assert [arguments[2] for arguments in put] == [row, None]


def test_csv_and_json_carry_both_verdicts_and_what_is_behind_them():
    runs = records()
    rows = with_claims(rows_of(make_result(ET, runs), runs))
    carried = {
        "verdict",
        "interval_low",
        "interval_high",
        "margin",
        "power",
        "seeds_needed",
        "claim",
        "claim_low",
        "claim_high",
        "claim_more_seeds",
    }
    (read,) = csv.DictReader(io.StringIO(to_csv(rows)))
    assert carried <= read.keys()
    assert float(read["margin"]) == rows[0]["margin"]
    content = json.loads(to_json("edge-transformer", rows, Rules()))
    assert carried <= content["rows"][0].keys()
    assert content["verdict"] == {"level": 0.05, "power": 0.8, "unstated_runs": [4, 10]}
    assert "at most 0.1 as higher or lower" in content["tally"]
