"""Where the files of the benchmark lie: in the current folder where that is a project (it has params.yaml or grid.yaml), else as they were installed.

What is computed (data/, store/, results/, mlruns/, tried/) is always the current folder's.
"""

from pathlib import Path

SHIPPED = Path(__file__).parents[1] / "shipped"  # in a wheel (setup.py); a checkout has the same folders at its root
INSTALLED = SHIPPED if SHIPPED.is_dir() else Path(__file__).parents[2]


def is_project() -> bool:
    """Whether the current folder has a params.yaml or grid.yaml."""
    return Path("params.yaml").exists() or Path("grid.yaml").exists()


def place(path: str | Path) -> Path:
    """`path` in the current folder; what was installed under that name where the folder is no project and has none of its own."""
    path = Path(path)
    return (
        path
        if path.is_absolute() or path.exists() or is_project() or not (INSTALLED / path).exists()
        else INSTALLED / path
    )
