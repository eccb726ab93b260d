"""The text of grid.yaml, found from the recipes: every recipe of recipes/<suite>/<dataset>/<row>.yaml is a cell."""

import re
from pathlib import Path

from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, nearest

MARK = "# Written by `python -m gt_bench.pipeline.grid` from the files under recipes/."
FIRST = "embedded"  # the suite that needs nothing from outside leads the list


def render(recipes: Path, faulty: dict[str, str] | None = None) -> str:
    """The text of grid.yaml for the folder `recipes`.

    Args:
        recipes: the folder.
        faulty: receives by cell the message of each file that cannot be a cell, which is then left out.

    Raises:
        RecipeError: without `faulty`, for the first such file.
    """
    cells: list[str] = []
    searches: list[str] = []
    finetunes: list[str] = []
    datasets: dict[str, None] = {}
    suites: dict[str, None] = {}
    found = _recipes(recipes, faulty)
    for path, recipe in found.items():
        parts = path.relative_to(recipes).with_suffix("").parts
        suite, dataset, row = parts
        suites[suite] = datasets[dataset] = None
        settings = "tuned" if recipe.search else "recipes"
        after = f", after: {recipe.start.cell}" if recipe.start else ""
        line = f"  {'-'.join(parts)}: {{cell: {'/'.join(parts)}, dataset: {dataset}, model: {row}, settings: {settings}{after}}}"
        (finetunes if after else cells).append(line)
        searches += [line] if settings == "tuned" else []
    lines = [MARK, "", _names("suites", suites), "", _names("datasets", datasets), ""]
    lines += ["cells: # suite-dataset-row", *cells, ""]
    lines += (
        ["finetunes: # the cells that start from the weights of another one, `after` it", *finetunes]
        if finetunes
        else ["finetunes: {}"]
    )
    lines += ["", "searches: # the cells whose recipe has a search", *searches] if searches else ["", "searches: {}"]
    return "\n".join(lines) + "\n"


def _recipes(recipes: Path, faulty: dict[str, str] | None) -> dict[Path, Recipe]:
    """The recipes of a folder in the order of the grid; `faulty` and errors as in `render`."""
    found: dict[Path, Recipe] = {}

    def fault(path: Path, error: RecipeError) -> None:
        if faulty is None:
            raise error
        faulty[path.relative_to(recipes).with_suffix("").as_posix()] = str(error)
        found.pop(path, None)

    paths = (
        path for path in recipes.rglob("*.yaml") if not path.name.startswith("_")
    )  # those are bases of recipes alone
    for path in sorted(paths, key=lambda p: (p.relative_to(recipes).parts[0] != FIRST, p)):
        parts = path.relative_to(recipes).with_suffix("").parts
        try:
            if len(parts) != 3 or not all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", part) for part in parts):
                raise RecipeError(
                    f"{path}: a recipe is recipes/<suite>/<dataset>/<row>.yaml, each in lower case, digits and dashes"
                )
            found[path] = load_recipe(path)
        except RecipeError as error:
            fault(path, error)
    while True:  # a recipe that is left out may be what another one starts from
        before = len(found)
        for path, recipe in list(found.items()):
            try:
                _check_start(path, recipe, found, recipes)
            except RecipeError as error:
                fault(path, error)
        if len(found) == before:
            return found


def _check_start(path: Path, recipe: Recipe, found: dict[Path, Recipe], recipes: Path) -> None:
    """Raises RecipeError for a recipe that starts from a cell which is not there, keeps no weights, or lacks a seed."""
    if recipe.start is None:
        return
    cells = ["/".join(path.relative_to(recipes).with_suffix("").parts) for path in found]
    source = recipes / f"{recipe.start.cell}.yaml"
    before = found.get(source)
    if before is None:
        raise RecipeError(f"{path}: start.cell: there is no {source}{nearest(recipe.start.cell, cells)}")
    if source == path:
        raise RecipeError(f"{path}: start.cell: a cell cannot start from itself")
    lacking = [seed for seed in recipe.seeds if seed not in before.seeds]
    if not before.keep_weights or lacking:
        needs = f"seeds {', '.join(map(str, lacking))}" if before.keep_weights else "keep_weights: true"
        raise RecipeError(f"{path}: start.cell: {source} needs {needs}, or there is nothing to start from")


def _names(key: str, names: dict[str, None]) -> str:
    return "\n".join([f"{key}:", *(f"  - {name}" for name in names)])
