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

import os
from collections import Counter
from functools import cache, lru_cache
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


def suite_name(name: str) -> str:
    """Returns the name of a suite as its folder spells it: `edge_transformer` is accepted for `edge-transformer`."""
    return name.replace("_", "-")


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

    Suites are in the current folder, in installed packages and in the benchmark. A suite of the current folder replaces
    the benchmark's suite of the same name.

    Raises:
        SuiteError: two suites have the same name.
    """
    packaged, own = packaged_suites(), _suites_in(SUITES)
    shipped = _suites_in(INSTALLED / SUITES)
    for name, folder in packaged.items():
        for other in (own.get(name), shipped.get(name)):
            if other is not None and other.resolve() != folder.resolve():
                raise SuiteError(f"two suites are named {name!r}: {other} and {folder}; rename one of them")
    return dict(sorted((shipped | packaged | own).items()))


def _suites_in(root: Path) -> dict[str, Path]:
    """Returns the suites in a folder of suites, by name.

    Raises:
        SuiteError: two folders are spellings of the same name.
    """
    try:
        paths = [entry.path for entry in os.scandir(root)]  # called often: glob takes five times as long
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _by_name(tuple(sorted(path for path in paths if os.path.exists(f"{path}/{MANIFEST}"))))


@lru_cache  # a page of results asks for the same folders 30,000 times
def _by_name(paths: tuple[str, ...]) -> dict[str, Path]:
    folders = [Path(path) for path in paths]
    names = Counter(suite_name(folder.name) for folder in folders)
    if twice := [name for name, count in names.items() if count > 1]:
        both = " and ".join(str(folder) for folder in folders if suite_name(folder.name) == twice[0])
        raise SuiteError(f"two suites are named {twice[0]!r}: {both}; rename one of them")
    return {suite_name(folder.name): folder for folder in folders}


@cache
def packaged_suites() -> dict[str, Path]:
    """Returns the folders of suites in installed packages, by name.

    Raises:
        SuiteError: two suites have the same name, or a suite has no suite.yaml.
    """
    found: dict[str, Path] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        name, folder = suite_name(entry.name), _folder_of(entry)
        if name in found and found[name] != folder:
            raise SuiteError(
                f"two suites are named {name!r}: {found[name]} and {folder}; uninstall one of their packages"
            )
        found[name] = folder
    return found


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
        f"suite {entry.name!r} of {brought}: no {MANIFEST} in the package {entry.value!r}, which its entry point "
        f"in {ENTRY_POINTS} names; correct the entry point, or uninstall the package"
    )
