"""Every mutation and refactoring fits the code, and one of each is run; `make mutants` runs all."""

from collections import Counter

import pytest

from gt_bench.experiment.golden_values import golden_recipe
from tests.gt_bench.data.raw_files import RAW
from tests.mutants.__main__ import job, problem, title
from tests.mutants.mutations import MUTATIONS
from tests.mutants.refactorings import REFACTORINGS
from tests.mutants.runner import ROOT, Checked, applied, check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("item", [*MUTATIONS, *REFACTORINGS], ids=title)
def test_a_change_fits_the_current_code(item):
    """If this fails, write the same change for the current code."""
    edits, cells = job(item)
    texts = {edit.file: (ROOT / edit.file).read_text() for edit in edits}
    before = dict(texts)
    for edit in edits:
        texts[edit.file] = applied(texts[edit.file], edit)
    for file, text in texts.items():
        compile(text, file, "exec")
        assert text != before[file]
    assert all(cell in RAW or golden_recipe(cell, ROOT / "suites").is_file() for cell in cells)


def test_each_group_has_three_mutations_at_least():
    assert min(Counter(mutation.group for mutation in MUTATIONS).values()) >= 3
    assert len(MUTATIONS) >= 45
    assert len({(m.file, m.old, m.new) for m in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("item", [MUTATIONS[0], REFACTORINGS[1]], ids=title)
def test_golden_values_notice_a_mutation_and_no_refactoring(item):
    checked = check(*job(item))
    assert problem(item, checked) is None, checked.output


def test_a_crash_is_not_taken_for_a_difference():
    crashed = Checked(1, (), "[1/1] a/b/c: IndexError (loop.py:3): out of range (0.1 s)\n1 cells in 3 s, 1 failures")
    assert "IndexError (loop.py:3)" in problem(MUTATIONS[0], crashed)
    unchanged = Checked(0, (), "[1/1] a/b/c: ok (0.1 s)\n1 cells in 3 s, 0 failures")
    assert problem(MUTATIONS[0], unchanged) == f"not noticed by {MUTATIONS[0].cell}"
    assert problem(REFACTORINGS[0], unchanged) is None
    assert problem(REFACTORINGS[0], crashed).startswith("noticed: ")
