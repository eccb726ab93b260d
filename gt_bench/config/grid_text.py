"""Text of grid.yaml: every recipe suites/SUITE/recipes/DATASET/ROW.yaml is a cell."""

import re
from collections.abc import Iterator
from pathlib import Path

from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.utils.paths import SUITES, packaged_suites, recipe_file

MARK = "# Written by `python -m gt_bench.pipeline.grid` from the recipes in suites/."
FIRST = "embedded"  # the suite that needs no download comes first


def render(suites: Path) -> str:
    """Returns the text of grid.yaml for a folder of suites and for further suites of installed packages.

    Args:
        suites: the folder.

    Raises:
        RecipeError: a file cannot be a cell.
    """
    cells: list[str] = []
    searches: list[str] = []
    finetunes: list[str] = []
    datasets: dict[str, None] = {}
    names: dict[str, None] = {}
    for cell, (path, recipe) in _recipes(suites).items():
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
    """Yields (SUITE/DATASET/ROW, file) of all recipes in the order of the grid."""
    packaged = {name: folder for name, folder in packaged_suites().items() if not (suites / name).exists()}
    folders = {folder.name: folder for folder in suites.glob("*") if folder.is_dir()} | packaged
    for name in sorted(folders, key=lambda suite: (suite != FIRST, suite)):
        recipes = folders[name] / "recipes"
        for path in sorted(recipes.rglob("*.yaml")):
            if not path.name.startswith("_"):  # bases of recipes
                yield f"{name}/{path.relative_to(recipes).with_suffix('').as_posix()}", path


def _recipes(suites: Path) -> dict[str, tuple[Path, Recipe]]:
    """Returns the file and the recipe of each cell, in the order of the grid; errors as in `render`."""
    recipes: dict[str, tuple[Path, Recipe]] = {}
    for cell, path in _files(suites):
        parts = cell.split("/")
        if len(parts) != 3 or not all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", part) for part in parts):
            raise RecipeError(
                "expected suites/SUITE/recipes/DATASET/ROW.yaml, each name of lower-case letters, digits and dashes",
                file=path,
            )
        recipes[cell] = path, load_recipe(path)
    for cell in recipes:
        _check_start(cell, recipes, suites)
    return recipes


def _check_start(cell: str, recipes: dict[str, tuple[Path, Recipe]], suites: Path) -> None:
    """Checks the cell that a recipe starts from.

    Raises:
        RecipeError: it does not exist, does not save weights, or a seed is missing.
    """
    path, recipe = recipes[cell]
    if recipe.start is None:
        return
    start = recipe.start.cell
    if start not in recipes:
        problem = f"{recipe_file(start, suites)} not found{nearest(start, list(recipes))}"
        raise RecipeError(problem, file=path, place="start.cell", value=start)
    source, before = recipes[start]
    if start == cell:
        raise RecipeError("a cell cannot start from itself", file=path, place="start.cell", value=start)
    missing = [seed for seed in recipe.seeds if seed not in before.seeds]
    if not before.keep_weights or missing:
        needed = f"seeds {', '.join(map(str, missing))}" if before.keep_weights else "keep_weights: true"
        remedy = f"add {needed} to {source}"
        raise RecipeError("no weights to start from", file=path, place="start.cell", value=start, remedy=remedy)


def _names(key: str, names: dict[str, None]) -> str:
    return "\n".join([f"{key}:", *(f"  - {name}" for name in names)])
