"""suite.yaml: what a suite is, and of a paper who wrote it and where it is."""

from functools import cache
from pathlib import Path

from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.utils.paths import MANIFEST, suite_folders, suite_name


class Suite(Strict):
    """The content of a suite.yaml.

    Attributes:
        title: of the paper, or of the suite.
        label: a short name for tables; the folder's name if not given.
        abbreviation: for narrow terminals, if the name is long.
        authors, venue, url: of a paper.
        source: where its published numbers come from, if not from the text of the paper.
        summary: what holds, what does not, and why. Names of cells between braces are replaced by numbers
            (gt_bench/reports/paper_summary.py).
    """

    title: str
    label: str | None = None
    abbreviation: str | None = None
    authors: str | None = None
    venue: str | None = None
    url: str | None = None
    source: str | None = None
    summary: str | None = None

    @property
    def is_paper(self) -> bool:
        """Whether it has published numbers to compare with."""
        return self.authors is not None


def load_suite(name: str) -> Suite:
    """The suite of this name. Raises RecipeError with the nearest name, and for a suite.yaml that is not valid."""
    folders = suite_folders()
    if (folder := folders.get(suite_name(name))) is None:
        raise RecipeError(f"no suite named {name!r}{nearest(name, list(folders))}; known: {', '.join(folders)}")
    path = folder / MANIFEST
    return _load(path, path.stat().st_mtime_ns)


@cache
def _load(path: Path, _mtime: int) -> Suite:
    return validated(Suite, read_yaml(path), str(path))
