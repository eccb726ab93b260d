"""Executes examples/quickstart.ipynb and stores its outputs: python -m tools.docs.notebook."""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples" / "quickstart.ipynb"


def executed(path: Path = PATH) -> nbformat.NotebookNode:
    """Execute a notebook in an empty temporary folder.

    Args:
        path: The notebook.

    Returns:
        The notebook with its outputs. The updates of a progress bar are one output: its last state.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, coalesce_streams=True, resources={"metadata": {"path": folder}})
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        client.execute(env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of the day
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), PATH)
