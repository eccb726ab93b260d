"""Location of the benchmark's files: the current folder if it is a project, else the installed package.

A project has a params.yaml or grid.yaml. Computed files (data/, store/, results/, mlruns/, tried/) are always in the
current folder.
"""

from pathlib import Path

SHIPPED = (
    Path(__file__).parents[1] / "shipped"
)  # only in a wheel (setup.py); a checkout has the same folders at its root
INSTALLED = SHIPPED if SHIPPED.is_dir() else Path(__file__).parents[2]


def is_project() -> bool:
    """Return whether the current folder has a params.yaml or grid.yaml."""
    return Path("params.yaml").exists() or Path("grid.yaml").exists()


def place(path: str | Path) -> Path:
    """Return `path` in the current folder, or the installed file if the folder is no project and has no such file."""
    path = Path(path)
    if path.is_absolute() or path.exists() or is_project() or not (INSTALLED / path).exists():
        return path
    return INSTALLED / path
