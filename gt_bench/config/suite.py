"""Content of suite.yaml, which describes a suite."""

from functools import cache
from pathlib import Path
from typing import Literal

from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.utils.paths import MANIFEST, suite_folders, suite_name


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


class Suite(Strict):
    """Content of a suite.yaml.

    Attributes:
        title: title of the paper or the suite.
        label: short name for tables. The name of the folder by default.
        abbreviation: name for narrow terminals.
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
        summary: what is reproduced, what is not, and why. Names of cells in braces are replaced by numbers
            (gt_bench/reports/paper_summary.py).
    """

    title: str
    label: str | None = None
    abbreviation: str | None = None
    authors: str | None = None
    venue: str | None = None
    url: str | None = None
    source: str | None = None
    std_ddof: tuple[Deviations, ...] = ()
    final: tuple[FinalRows, ...] = ()
    described: tuple[str, ...] = ()
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
    folders = suite_folders()
    if (folder := folders.get(suite_name(name))) is None:
        raise RecipeError(f"no suite named {name!r}{nearest(name, list(folders))}; known: {', '.join(folders)}")
    path = folder / MANIFEST
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, _mtime: int) -> Suite:
    return validated(Suite, read_yaml(path), str(path))
