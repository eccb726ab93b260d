"""Published numbers as printed, found by their names."""

import re
from collections import Counter

import pytest
import yaml

from gt_bench.claims.experiments import registry
from gt_bench.papers.published import RESULTS, PublishedError, lookup, resolve

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
        assert f"({len(own)} numbers on {words[len({entry['dataset'] for entry in own})]} sets)" in " ".join(
            text.split()
        )
    missing = yaml.load(RESULTS.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["missing"]
    names = {
        "tokengt": "TokenGT",
        "hot": "HOT",
        "ppgt": "PPGT",
        "edge_transformer": "Edge Transformer",
        "polynormer": "Polynormer",
    }
    (lost,) = re.findall(r"## Not in the texts\n(.*?)\n\n", text, re.DOTALL)
    assert {names[entry["paper"]] for entry in missing} == {
        name for name in names.values() if name in " ".join(lost.split())
    }
    # every file is said to be there, and every command that it names is one
    for path in folder.iterdir():
        assert path.name == "README.md" or f"`{path.name}{'/' * path.is_dir()}`" in text, path.name
    for name in re.findall(r"claims --recompute (\w+)`", text):
        assert name == "NAME" or name in registry.NAMES


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
    with pytest.raises(
        PublishedError, match="metric seconds-per-epoch, split train; metric gpu-memory-gb, split train"
    ):
        lookup("polynormer", "Table 6", "Polynormer", "pokec")
    names = (
        "tokengt",
        "table:equivariant_basis_approximation_std",
        "node id. = ORF, type id. = yes",
        "ba-equivariant-basis-dense",
        "l2",
    )
    assert lookup(*names).split == "test"
    assert lookup(*names, "train").split == "train"
    assert lookup(*names, "train").mean != lookup(*names).mean


def test_our_metric_names_and_the_cell_fill_what_a_reference_leaves_out():
    reference = {"paper": "ppgt", "table": "Table 2", "method": "PPGT", "dataset": None, "metric": None}
    assert resolve(reference, "pattern", "balanced-accuracy").metric == "weighted-accuracy"
    assert resolve(reference | {"dataset": "cluster"}, "sbm-cluster", "balanced-accuracy").dataset == "cluster"
    assert resolve(None, "pattern", "accuracy") is None
