"""Numbers that suites/*/differences.md repeats are those of the shipped records and their predictions."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest

from gt_bench.utils.paths import INSTALLED, SUITES

SUITE = INSTALLED / SUITES / "edge-transformer"
COLUMNS = ("dataset", "published", "ours", "majority", "gcn", "gin")


def table() -> dict[str, dict[str, str]]:
    """The rows of the table of the three WebKB datasets, by dataset."""
    lines = (SUITE / "differences.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip(" |").split("|")] for line in lines if line.startswith("  |")]
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in cells[2:]}


def accuracies(dataset: str, model: str) -> list[float]:
    """Accuracy of each shipped run on test, in percent."""
    with gzip.open(SUITE / "records" / dataset / f"{model}.json.gz") as file:
        records = json.load(file)["records"]
    return [100 * record["deterministic"]["test_metrics"]["accuracy"] for record in records]


@pytest.mark.parametrize("dataset", ["texas", "cornell", "wisconsin"])
def test_our_numbers_are_those_of_the_records(dataset):
    row = table()[dataset]
    ours = accuracies(dataset, "edge-transformer")
    expected = f"{np.mean(ours):.1f}" + (f" ({len(ours)} splits)" if len(ours) < 10 else "")
    assert row["ours"] == expected
    assert row["gcn"] == f"{np.mean(accuracies(dataset, 'gcn')):.1f}"
    assert row["gin"] == f"{np.mean(accuracies(dataset, 'gin')):.1f}"


@pytest.mark.parametrize("dataset", ["texas", "cornell"])  # predictions of runs on all ten splits are shipped
def test_the_largest_class_is_counted_over_the_same_splits(dataset):
    shares = {}
    with zipfile.ZipFile(SUITE / "records" / dataset / "gin.predictions.zip") as archive:
        for name in archive.namelist():
            arrays = np.load(io.BytesIO(archive.read(name)))
            target = arrays["test/target"]
            shares[tuple(arrays["test/ids"])] = 100 * np.bincount(target).max() / len(target)
    assert len(shares) == 10
    assert table()[dataset]["majority"] == f"{np.mean(list(shares.values())):.1f}"
