"""Content of suite.yaml, which describes a suite."""

from functools import cache
from pathlib import Path
from typing import Literal

from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.utils.paths import MANIFEST, suite_folder, suite_folders


class Deviations(Strict):
    """Which standard deviation some tables publish.

    Attributes:
        tables: names of the tables.
        ddof: 0 for the population, 1 for the sample deviation (divided by n - 1).
        methods: "own" if it is known for the paper's own methods alone, whose runs its code printed.
        source: passage or released code, with its commit.
    """

    tables: tuple[str, ...]
    ddof: Literal[0, 1]
    methods: Literal["own", "all"] = "all"
    source: str


class FinalRows(Strict):
    """Rows of published tables.

    Attributes:
        tables: names of the tables.
        methods: the paper's methods.
    """

    tables: tuple[str, ...]
    methods: tuple[str, ...]


class SuiteComparison(Strict):
    """Models of this suite that are compared with those of another one on the same datasets.

    Attributes:
        title: title of the table.
        datasets: the datasets.
        rows: rows of this suite.
        suite: the other suite.
        against: its rows. The first is compared everywhere, the others where both have runs.
    """

    title: str
    datasets: tuple[str, ...]
    rows: tuple[str, ...]
    suite: str
    against: tuple[str, ...]


class Suite(Strict):
    """Content of a suite.yaml.

    Attributes:
        title: title of the paper or the suite.
        label: short name for tables. The name of the folder by default.
        authors: authors of the paper.
        venue: venue of the paper.
        url: URL of the paper.
        source: source of the published numbers, if it is not the text of the paper.
        std_ddof: which deviation its tables publish. Unstated for tables that are not named: verdicts must agree for
            both.
        final: the paper's final models in its main tables, whose numbers enter the test of the whole paper. All its own
            numbers if empty.
        described: rows of recipes that follow the text of the paper, where others follow its released code. Of several
            complete recipes of a number they are counted.
        compare: comparisons with other suites (gt_bench/reports/suite_comparison.py).
        summary: what is reproduced, what is not, and why. Names of cells in braces are replaced by numbers
            (gt_bench/reports/paper_summary.py).
    """

    title: str
    label: str | None = None
    authors: str | None = None
    venue: str | None = None
    url: str | None = None
    source: str | None = None
    std_ddof: tuple[Deviations, ...] = ()
    final: tuple[FinalRows, ...] = ()
    described: tuple[str, ...] = ()
    compare: tuple[SuiteComparison, ...] = ()
    summary: str | None = None

    @property
    def is_paper(self) -> bool:
        """Whether the suite has published numbers to compare with."""
        return self.authors is not None


def load_suite(name: str) -> Suite:
    """Returns the suite of this name.

    Raises:
        RecipeError: there is no such suite, or its suite.yaml is invalid.
    """
    if (folder := suite_folder(name)) is None:
        folders = suite_folders()
        problem = f"no suite named {name!r}{nearest(name, list(folders))}; known: {', '.join(folders)}"
        raise RecipeError(problem, value=name)
    path = folder / MANIFEST
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, _mtime: int) -> Suite:
    return validated(Suite, read_yaml(path), path)
