"""Records of uncommitted code are counted and their cells named."""

from gt_bench.store.uncommitted import sentence
from tests.gt_bench.cells import ENVIRONMENT, ET, changed, make_record
from tests.gt_bench.conftest import COMMIT


def record(commit):
    return changed(make_record(ET, 0), measured={"environment": ENVIRONMENT | {"commit": commit}})


def test_cells_with_records_of_uncommitted_code_are_named():
    records = {
        "a/b/c": [record(COMMIT), record(f"{COMMIT}-dirty")],
        "a/b/d": [record(COMMIT)],
        "a/b/e": [record(f"{COMMIT}-dirty")] * 3,
        "a/b/f": [record(None)],
    }
    said = sentence(records)
    assert said.startswith("4 of 7 records, of 2 cells, name a commit with uncommitted changes")
    assert said.endswith("Their cells: a/b/c, a/b/e.")
    assert sentence({"a/b/d": records["a/b/d"]}) == "All 1 records are of committed code."
