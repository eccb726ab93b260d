"""Location of the benchmark's files: the current folder if it is a project, else the installed package.

A project has a params.yaml or grid.yaml.

Everything of a suite is in its folder, `suites/NAME/`:

    suite.yaml                        title, and of a paper: authors, venue, url
    results.yaml                      published numbers
    claims.yaml                       sentences of the paper, each with a test
    recipes/DATASET/ROW.yaml          one recipe per cell
    records/DATASET/ROW.json.gz       shipped records of finished cells
    golden.json                       golden values of the cells
    golden/DATASET/ROW.yaml           recipes that only golden runs use

An installed package adds a suite by an entry point of the group `gt_bench.suites`. Its name is the name of the suite,
and its value is the package that contains these files.

What is computed (data/, store/, results/, mlruns/, tried/) is always in the current folder.
"""

import contextlib
import os
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from gt_bench.utils.errors import UserError

# only in a wheel (setup.py); a checkout has the same folders at its root
SHIPPED = Path(__file__).parents[1] / "shipped"
INSTALLED = SHIPPED if SHIPPED.is_dir() else Path(__file__).parents[2]
SUITES = Path("suites")
MANIFEST = "suite.yaml"
ENTRY_POINTS = "gt_bench.suites"


class SuiteError(UserError, ValueError):
    """A suite is invalid: no folder, a duplicate name, or missing files."""


def is_project() -> bool:
    """Return whether the current folder has a params.yaml or grid.yaml."""
    return Path("params.yaml").exists() or Path("grid.yaml").exists()


def place(path: str | Path) -> Path:
    """Returns the file of a relative path.

    Returns:
        `path` if it exists. For a path in `suites/`, else the file of the package with this suite. Outside a project,
            else the installed file of this name. Otherwise `path`.
    """
    path = Path(path)
    if path.is_absolute() or path.exists():
        return path
    if path.parts[:1] == SUITES.parts and len(path.parts) > 1 and (folder := packaged_suites().get(path.parts[1])):
        return folder.joinpath(*path.parts[2:])
    return path if is_project() or not (INSTALLED / path).exists() else INSTALLED / path


def recipe_file(cell: str, root: Path = SUITES) -> Path:
    """Returns suites/SUITE/recipes/DATASET/ROW.yaml of the cell SUITE/DATASET/ROW."""
    return _file_of(cell, "recipes", ".yaml", root)


def record_file(cell: str, root: Path = SUITES) -> Path:
    """Returns suites/SUITE/records/DATASET/ROW.json.gz of the cell SUITE/DATASET/ROW."""
    return _file_of(cell, "records", ".json.gz", root)


def _file_of(cell: str, kind: str, suffix: str, root: Path) -> Path:
    suite, _, row = cell.partition("/")
    return root / suite / kind / f"{row}{suffix}"


def suite_folders() -> dict[str, Path]:
    """Returns the folder of each suite with a suite.yaml, by name in alphabetical order.

    Raises:
        SuiteError: two suites have the same name.
    """
    names = set(packaged_suites())
    for root in {SUITES, INSTALLED / SUITES}:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            names |= set(os.listdir(root))
    return {name: folder for name in sorted(names) if (folder := suite_folder(name)) is not None}


def suite_folder(name: str) -> Path | None:
    """Returns the folder of a suite with a suite.yaml, None if there is no such suite.

    Suites are in the current folder, in installed packages and in the benchmark. A suite of the current folder replaces
    the benchmark's suite of the same name.

    Raises:
        SuiteError: the suite is in an installed package and also in another place.
    """
    own, packaged, shipped = SUITES / name, packaged_suites().get(name), INSTALLED / SUITES / name
    here = next((folder for folder in (own, shipped) if os.path.exists(f"{folder}/{MANIFEST}")), None)
    if packaged and here and here.resolve() != packaged.resolve():
        problem = f"two suites are named {name!r}: {here} and {packaged}"
        raise SuiteError(problem, value=name, remedy="rename one of them")
    return here or packaged


@cache
def packaged_suites() -> dict[str, Path]:
    """Returns the folders of suites in installed packages, by name.

    Raises:
        SuiteError: two suites have the same name, or a suite has no suite.yaml.
    """
    folders: dict[str, Path] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        name, folder = entry.name, _folder_of(entry)
        if name in folders and folders[name] != folder:
            problem = f"two suites are named {name!r}: {folders[name]} and {folder}"
            raise SuiteError(problem, value=name, remedy="uninstall one of their packages")
        folders[name] = folder
    return folders


def _folder_of(entry: EntryPoint) -> Path:
    brought = f"the package {entry.dist.name}" if entry.dist else "an installed package"
    try:
        spec = find_spec(entry.value)
    except ImportError:
        spec = None
    for folder in map(Path, (spec.submodule_search_locations if spec else None) or ()):
        if (folder / MANIFEST).is_file():
            return folder
    raise SuiteError(
        f"no {MANIFEST} in the package {entry.value!r}, which its entry point in {ENTRY_POINTS} names",
        place=f"suite {entry.name!r} of {brought}",
        value=entry.value,
        remedy="correct the entry point, or uninstall the package",
    )
