"""The skeleton of a suite: valid files with comments on how to fill them in."""

import re
from pathlib import Path

from gt_bench.papers.results_file import RESULTS
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import MANIFEST, SUITES, SuiteError, suite_folders

PAPER = """\
authors: {authors}
# venue: ICLR 2026
# url: https://arxiv.org/abs/...
"""
NUMBERS = """\
# The published numbers of the paper, one line each. All keys: suites/README.md.
#
# table, method     as the paper names them
# dataset, metric   names of this benchmark: docs/datasets.md, or your own in datasets.yaml
# direction, unit   max or min; percent, fraction or none
# mean, std, runs   numbers; leave std and runs out if the paper does not give them
# printed           the text of the table cell
# own               true for the paper's own method, false for a baseline
#
# - {{table: Table 1, method: My model, dataset: chains, metric: accuracy, direction: max, unit: percent,
#    mean: 99.1, std: 0.4, runs: 10, printed: 99.1 ± 0.4, own: true}}
schema_version: 1
results: []
"""
CLAIMS_TEXT = """\
# Sentences of the paper, each with a test that computes a verdict (`gt-bench claims {name}`).
# docs/add_a_paper.md describes the tests.
#
# - id: {name}-beats-gcn
#   place: Section 5
#   sentence: My model outperforms GCN
#   test: {{kind: best, arguments: {{table: Table 1, method: My model, against: [GCN]}}}}
claims: []
"""
README = """\
# {title}

What reproduces, what does not, and why. Write it here.

| file | content |
|---|---|
| `suite.yaml` | title, authors, link |
| `results.yaml` | published numbers |
| `claims.yaml` | sentences of the paper, each with a test |
| `recipes/DATASET/ROW.yaml` | hyperparameters of one model on one dataset |
| `records/` | finished cells, written by `gt-bench store export {name}` |

"""


def new_suite(name: str, title: str | None = None, authors: str | None = None) -> list[Path]:
    """Writes suites/NAME/ with valid files.

    Args:
        name: name of the suite.
        title: title of the suite or the paper.
        authors: authors of the paper. None if the suite is not a paper.

    Returns:
        The files.

    Raises:
        SuiteError: the name is invalid or exists.
        WriteError: the disk is full.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        remedy = "expected lower-case letters, digits and dashes"
        raise SuiteError(f"{name!r}: invalid name of a suite", value=name, remedy=remedy)
    if name in (known := suite_folders()):
        problem = f"suite {name!r} already exists: {known[name]}"
        raise SuiteError(problem, value=name, remedy="choose another name")
    folder, title = SUITES / name, title or name
    files = {MANIFEST: f"title: {_quoted(title)}\n" + (PAPER.format(authors=_quoted(authors)) if authors else "")}
    if authors:
        files |= {RESULTS: NUMBERS.format(name=name), "claims.yaml": CLAIMS_TEXT.format(name=name)}
    files["README.md"] = README.format(title=title, name=name)
    for file, text in files.items():
        write_bytes(folder / file, text.encode())
    (folder / "recipes").mkdir(exist_ok=True)
    return [folder / file for file in files]


def _quoted(text: str) -> str:
    """Returns any text as a YAML string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
