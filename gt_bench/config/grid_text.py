"""The text of grid.yaml: every recipe suites/SUITE/recipes/DATASET/ROW.yaml is a cell."""

import re
from collections.abc import Iterator
from pathlib import Path

from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.utils.paths import SUITES, packaged_suites, recipe_file

MARK = "# Written by `python -m gt_bench.pipeline.grid` from the recipes in suites/."
FIRST = "embedded"  # the suite that needs nothing from outside leads the list


def render(suites: Path, faulty: dict[str, str] | None = None) -> str:
    """The text of grid.yaml for a folder of suites, and for the suites of installed packages that it does not have.

    Args:
        suites: the folder.
        faulty: receives by cell the message of each file that cannot be a cell, which is then left out.

    Raises:
        RecipeError: without `faulty`, for the first such file.
    """
    cells: list[str] = []
    searches: list[str] = []
    finetunes: list[str] = []
    datasets: dict[str, None] = {}
    names: dict[str, None] = {}
    for cell, (path, recipe) in _recipes(suites, faulty).items():
        suite, dataset, row = cell.split("/")
        names[suite] = datasets[dataset] = None
        place = SUITES / path.relative_to(suites) if path.is_relative_to(suites) else path  # as DVC names it
        settings, values = ("tuned", Path("tuned", f"{cell}.yaml")) if recipe.search else ("recipes", place)
        after = f", after: {recipe.start.cell}" if recipe.start else ""
        start = (
            f"  {cell.replace('/', '-')}: {{cell: {cell}, dataset: {dataset}, model: {row}, settings: {settings}{after}"
        )
        (finetunes if after else cells).append(f"{start}, values: {values.as_posix()}}}")
        searches += [f"{start}, recipe: {place.as_posix()}}}"] if recipe.search else []
    lines = [MARK, "", _names("suites", names), "", _names("datasets", datasets), ""]
    lines += ["cells: # suite-dataset-row", *cells, ""]
    lines += (
        ["finetunes: # the cells that start from the weights of another one, `after` it", *finetunes]
        if finetunes
        else ["finetunes: {}"]
    )
    lines += ["", "searches: # the cells whose recipe has a search", *searches] if searches else ["", "searches: {}"]
    return "\n".join(lines) + "\n"


def _files(suites: Path) -> Iterator[tuple[str, Path]]:
    """(SUITE/DATASET/ROW, file) of all recipes in the order of the grid."""
    packaged = {name: folder for name, folder in packaged_suites().items() if not (suites / name).exists()}
    folders = {folder.name: folder for folder in suites.glob("*") if folder.is_dir()} | packaged
    for name in sorted(folders, key=lambda suite: (suite != FIRST, suite)):
        recipes = folders[name] / "recipes"
        for path in sorted(recipes.rglob("*.yaml")):
            if not path.name.startswith("_"):  # those are bases of recipes alone
                yield f"{name}/{path.relative_to(recipes).with_suffix('').as_posix()}", path


def _recipes(suites: Path, faulty: dict[str, str] | None) -> dict[str, tuple[Path, Recipe]]:
    """By cell the file and its recipe, in the order of the grid; `faulty` and errors as in `render`."""
    found: dict[str, tuple[Path, Recipe]] = {}

    def fault(cell: str, error: RecipeError) -> None:
        if faulty is None:
            raise error
        faulty[cell] = str(error)
        found.pop(cell, None)

    for cell, path in _files(suites):
        parts = cell.split("/")
        try:
            if len(parts) != 3 or not all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", part) for part in parts):
                raise RecipeError(
                    f"{path}: a recipe is suites/SUITE/recipes/DATASET/ROW.yaml, each name in lower case, digits and dashes"
                )
            found[cell] = path, load_recipe(path)
        except RecipeError as error:
            fault(cell, error)
    while True:  # a recipe that is left out may be what another one starts from
        before = len(found)
        for cell in list(found):
            try:
                _check_start(cell, found, suites)
            except RecipeError as error:
                fault(cell, error)
        if len(found) == before:
            return found


def _check_start(cell: str, found: dict[str, tuple[Path, Recipe]], suites: Path) -> None:
    """Raises RecipeError for a recipe that starts from a cell which is not there, keeps no weights, or lacks a seed."""
    path, recipe = found[cell]
    if recipe.start is None:
        return
    start = recipe.start.cell
    if start not in found:
        raise RecipeError(f"{path}: start.cell: there is no {recipe_file(start, suites)}{nearest(start, list(found))}")
    source, before = found[start]
    if start == cell:
        raise RecipeError(f"{path}: start.cell: a cell cannot start from itself")
    lacking = [seed for seed in recipe.seeds if seed not in before.seeds]
    if not before.keep_weights or lacking:
        needs = f"seeds {', '.join(map(str, lacking))}" if before.keep_weights else "keep_weights: true"
        raise RecipeError(f"{path}: start.cell: {source} needs {needs}, or there is nothing to start from")


def _names(key: str, names: dict[str, None]) -> str:
    return "\n".join([f"{key}:", *(f"  - {name}" for name in names)])
