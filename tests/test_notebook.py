"""examples/quickstart.ipynb runs without a warning, and its stored outputs have the same form."""

import copy
import re

import pytest

nbformat = pytest.importorskip("nbformat", reason="no nbformat: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="no ipykernel: pip install ipykernel")

pytestmark = pytest.mark.slow


def texts(notebook, name: str) -> list[str]:
    """Outputs of a kind: "stdout", "stderr", or "result" for the value of a cell."""
    return [
        output.get("text") or output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("name", "result") == name
    ]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """The notebook as stored, and after an execution with fewer seeds and trials: each is a new process."""
    from tools.docs.notebook import PATH, executed

    stored = nbformat.read(PATH, as_version=4)
    shorter = copy.deepcopy(stored)
    for cell in shorter.cells:
        cell.source = cell.source.replace("seeds=2", "seeds=1").replace("search=3", "search=2")
    path = tmp_path_factory.mktemp("notebook") / PATH.name
    nbformat.write(shorter, path)
    return stored, executed(path)


def test_the_quickstart_runs_without_a_warning(notebooks):
    for notebook in notebooks:
        lines = "\n".join(texts(notebook, "stderr")).splitlines()
        assert lines, "no progress bar"
        for line in filter(None, map(str.strip, lines)):
            if re.fullmatch(r"\d+ cells: code changed since the last check \(`gt-bench check`\)", line):
                continue  # tested in test_modified_code.py
            assert re.match(r"tried/[\w./-]+(?: search)?: 100%\|█+\| (\d+)/\1 ", line), line


def test_its_tables_have_own_and_shipped_results(notebooks):
    for notebook in notebooks:
        results = texts(notebook, "result")
        assert len(results) == 4
        assert "published_mean" in results[0]
        for table in results[1:]:
            assert "this run" in table
        assert "hot, shipped" in results[1]
        assert "mlp" in results[3]
