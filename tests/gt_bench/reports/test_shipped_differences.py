"""Numbers that suites/*/differences.md repeats are those of the shipped records and their predictions."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest

from gt_bench.papers.published import everything
from gt_bench.utils.paths import INSTALLED, SUITES

FOLDER = INSTALLED / SUITES
WEBKB = ("dataset", "published", "ours", "majority", "gcn", "gin")
WITNESS = ("dataset", "model", "published", "ours", "schedule", "width", "authors", "ours_short", "difference")


def table(suite: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of the table in differences.md of a suite."""
    lines = (FOLDER / suite / "differences.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip(" |").split("|")] for line in lines if line.startswith("  |")]
    return [dict(zip(columns, row, strict=True)) for row in cells[2:]]


def percentages(cell: str, metric: str) -> list[float]:
    """A metric of each shipped run of a cell on test, in percent."""
    suite, dataset, model = cell.split("/")
    with gzip.open(FOLDER / suite / "records" / dataset / f"{model}.json.gz") as file:
        records = json.load(file)["records"]
    return [100 * record["deterministic"]["test_metrics"][metric] for record in records]


@pytest.mark.parametrize("row", table("edge-transformer", WEBKB), ids=lambda row: row["dataset"])
def test_the_numbers_of_webkb_are_those_of_the_records(row):
    runs = {
        model: percentages(f"edge-transformer/{row['dataset']}/{model}", "accuracy")
        for model in ("edge-transformer", "gcn", "gin")
    }
    ours = runs["edge-transformer"]
    assert row["ours"] == f"{np.mean(ours):.1f}" + (f" ({len(ours)} splits)" if len(ours) < 10 else "")
    assert row["gcn"] == f"{np.mean(runs['gcn']):.1f}"
    assert row["gin"] == f"{np.mean(runs['gin']):.1f}"


@pytest.mark.parametrize("dataset", ["texas", "cornell"])  # predictions of runs on all ten splits are shipped
def test_the_largest_class_is_counted_over_the_same_splits(dataset):
    shares = {}
    with zipfile.ZipFile(FOLDER / "edge-transformer" / "records" / dataset / "gin.predictions.zip") as archive:
        for name in archive.namelist():
            arrays = np.load(io.BytesIO(archive.read(name)))
            target = arrays["test/target"]
            shares[tuple(arrays["test/ids"])] = 100 * np.bincount(target).max() / len(target)
    assert len(shares) == 10
    (row,) = (row for row in table("edge-transformer", WEBKB) if row["dataset"] == dataset)
    assert row["majority"] == f"{np.mean(list(shares.values())):.1f}"


@pytest.mark.parametrize("row", table("polynormer", WITNESS), ids=lambda row: f"{row['dataset']}/{row['model']}")
def test_the_numbers_of_polynormer_are_those_of_the_records(row):
    metric = "accuracy" if row["dataset"] == "photo" else "roc-auc"
    (ours,) = percentages(f"polynormer/{row['dataset']}/{row['model']}", metric)
    assert row["ours"] == f"{ours:.2f}"
    assert row["published"] in {
        number.printed
        for number in everything()
        if (number.paper, number.dataset) == ("polynormer", row["dataset"])
        and number.method == row["model"].capitalize()
    }
