"""The text of grid.yaml, found from the recipes: every recipe of recipes/<suite>/<dataset>/<row>.yaml is a cell."""

import re
from pathlib import Path

from stages.recipe import Recipe, load_recipe
from stages.schema import RecipeError, nearest

MARK = "# Written by `python -m stages.grid` from the files under recipes/."
FIRST = "embedded"  # the suite that needs nothing from outside leads the list


def render(recipes: Path, left_out: list[str] | None = None) -> str:
    """The text of grid.yaml for the folder `recipes`. Raises RecipeError for a file that is no recipe or lies in the wrong place; where
    `left_out` is given, such a file is left out, and what is wrong with it is added there."""
    cells: list[str] = []
    searches: list[str] = []
    finetunes: list[str] = []
    datasets: dict[str, None] = {}
    suites: dict[str, None] = {}
    found: dict[Path, Recipe] = {}

    def fault(path: Path, error: RecipeError) -> None:
        if left_out is None:
            raise error
        left_out.append(f"{error}; {path.relative_to(recipes).with_suffix('')} is left out until this is fixed")
        found.pop(path, None)

    paths = (path for path in recipes.rglob("*.yaml") if not path.name.startswith("_"))  # those are bases of recipes alone
    for path in sorted(paths, key=lambda p: (p.relative_to(recipes).parts[0] != FIRST, p)):
        parts = path.relative_to(recipes).with_suffix("").parts
        try:
            if len(parts) != 3 or not all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", part) for part in parts):
                raise RecipeError(f"{path}: a recipe is recipes/<suite>/<dataset>/<row>.yaml, each in lower case, digits and dashes")
            found[path] = load_recipe(path)
        except RecipeError as error:
            fault(path, error)
    for path in list(found):
        try:
            _check_start(path, found, recipes)
        except RecipeError as error:
            fault(path, error)
    for path, recipe in found.items():
        suite, dataset, row = parts = path.relative_to(recipes).with_suffix("").parts
        suites[suite] = datasets[dataset] = None
        settings = "tuned" if recipe.search else "recipes"
        after = f", after: {recipe.start.cell}" if recipe.start else ""
        line = f"  {'-'.join(parts)}: {{cell: {'/'.join(parts)}, dataset: {dataset}, model: {row}, settings: {settings}{after}}}"
        (finetunes if after else cells).append(line)
        searches += [line] if settings == "tuned" else []
    lines = [MARK, "", _names("suites", suites), "", _names("datasets", datasets), ""]
    lines += ["cells: # suite-dataset-row", *cells, ""]
    lines += (
        ["finetunes: # the cells that start from the weights of another one, `after` it", *finetunes] if finetunes else ["finetunes: {}"]
    )
    lines += ["", "searches: # the cells whose recipe has a search", *searches] if searches else ["", "searches: {}"]
    return "\n".join(lines) + "\n"


def _check_start(path: Path, found: dict[Path, Recipe], recipes: Path) -> None:
    """Raises RecipeError for a recipe that starts from a cell which is not there, keeps no weights, or lacks a seed."""
    recipe = found[path]
    if recipe.start is None:
        return
    source = recipes / f"{recipe.start.cell}.yaml"
    before = found.get(source)
    if before is None:
        cells = ["/".join(path.relative_to(recipes).with_suffix("").parts) for path in found]
        raise RecipeError(f"{path}: start.cell: there is no {source}{nearest(recipe.start.cell, cells)}")
    if source == path:
        raise RecipeError(f"{path}: start.cell: a cell cannot start from itself")
    lacking = [seed for seed in recipe.seeds if seed not in before.seeds]
    if not before.keep_weights or lacking:
        needs = f"seeds {', '.join(map(str, lacking))}" if before.keep_weights else "keep_weights: true"
        raise RecipeError(f"{path}: start.cell: {source} needs {needs}, or there is nothing to start from")


def _names(key: str, names: dict[str, None]) -> str:
    return "\n".join([f"{key}:", *(f"  - {name}" for name in names)])
