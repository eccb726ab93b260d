"""`gt-bench ablate FACTOR CELL... --design DESIGN --values ...`: recipes of missing cells, and a plan to compute them.

    one-at-a-time    each factor takes each of its values, everything else is as in the recipe of the cell
    random           `draws` times the factors of --over are drawn at random, and for each draw the factor takes each of
                     its values (GraphGym: You et al., 2020)

`gt-bench ablate FACTOR` then finds pairs of cells that differ in the factor alone.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.origins import ROW, check_origins
from gt_bench.config.recipe import DESCRIPTIVE, Recipe, load_recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.config.search_space import Choice, Range, SearchSection
from gt_bench.config.space_text import space_in
from gt_bench.data.registry import get_spec
from gt_bench.experiment.cell import settings_of
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.schemas import Settings
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import is_plain_name, write_bytes
from gt_bench.utils.paths import SUITES, recipe_file

ABSENT, PRESENT = "absent", "present"  # values that remove a key, and that add an encoding without arguments
MOST = 1000  # cells of a design


@dataclass(frozen=True)
class Design:
    """Cells of a design.

    Attributes:
        cells: names of all cells, those that exist already included, in the order of the plan.
        recipes: {name of a missing cell: its recipe}.
    """

    cells: list[str]
    recipes: Mapping[str, Recipe]


def values_in(factors: Sequence[str], texts: Sequence[str]) -> dict[str, Choice]:
    """Returns the values of each factor.

    Args:
        factors: dotted keys of recipes.
        texts: `VALUE,VALUE` if there is one factor, otherwise `KEY=VALUE,VALUE`. A range has to be written as values.

    Raises:
        RecipeError: a text is invalid, or a factor has no values or is given twice.
    """
    found: dict[str, Choice] = {}
    for text in texts:
        whole = f"{factors[0]}={text}" if len(factors) == 1 and "=" not in text else text
        key, space = _space(whole, "--values")
        if key not in factors:
            raise RecipeError(f"--values {text}: {key} is not a factor of this command; factors: {', '.join(factors)}")
        if key in found:
            raise RecipeError(f"--values {text}: {key} has values already; name them together: {key}=VALUE,VALUE")
        if not isinstance(space, Choice):
            raise RecipeError(f"--values {text}: expected values, not a range: {key}=0.0,0.25,0.5")
        found[key] = space
    if missing := [key for key in factors if key not in found]:
        raise RecipeError(f"--design: {missing[0]} has no values; add --values {missing[0]}=VALUE,VALUE")
    return found


def others_in(factors: Sequence[str], texts: Sequence[str]) -> dict[str, Choice | Range]:
    """Returns what a random design draws: `KEY=VALUES` as in `gt-bench try --space`.

    Raises:
        RecipeError: a text is invalid, or a key is a factor or given twice.
    """
    found: dict[str, Choice | Range] = {}
    for text in texts:
        key, space = _space(text, "--over")
        if key in factors or key in found:
            raise RecipeError(f"--over {text}: {key} is {'the factor' if key in factors else 'given twice'}; remove it")
        found[key] = space
    return found


def _space(text: str, option: str) -> tuple[str, Choice | Range]:
    try:
        key, content = space_in(text)
    except RecipeError as error:
        raise RecipeError(str(error).replace("--space", option, 1)) from None
    section = validated(SearchSection, {"trials": 1, "space": {key: content}}, option)
    return key, section.space[key]


def one_at_a_time(values: Mapping[str, Choice]) -> list[Settings]:
    """Returns the changes of a recipe, one factor each."""
    return [{key: value} for key, space in values.items() for value in space.choices]


def random_design(
    values: Mapping[str, Choice], others: Mapping[str, Choice | Range], draws: int, seed: int
) -> list[Settings]:
    """Returns the changes of a recipe: all values of the factors for each draw of the other keys.

    Raises:
        RecipeError: nothing is drawn, or fewer than `draws` different ones are possible.
    """
    if not others:
        raise RecipeError("--design random draws other keys and varies the factor in each: add --over KEY=VALUES")
    rng, drawn = random.Random(seed), list[Settings]()
    for _ in range(100 * draws):
        if len(drawn) == draws:
            break
        one = {key: _draw(space, rng) for key, space in others.items()}
        if one not in drawn:
            drawn.append(one)
    if len(drawn) < draws:
        raise RecipeError(f"--draws {draws}: only {len(drawn)} different draws of {', '.join(others)} are possible")
    factor = [dict(zip(values, c, strict=True)) for c in itertools.product(*(s.choices for s in values.values()))]
    return [draw | change for draw in drawn for change in factor]


def _draw(space: Choice | Range, rng: random.Random) -> object:
    if isinstance(space, Choice):
        return rng.choice(space.choices)
    if space.integer:
        return rng.randrange(int(space.low), int(space.high) + 1, int(space.step or 1))
    if space.step:
        return space.low + space.step * rng.randrange(int((space.high - space.low) / space.step + 1e-9) + 1)
    # three digits, so that names of cells are short
    low, high = space.low, space.high
    return float(f"{low * (high / low) ** rng.random() if space.log else rng.uniform(low, high):.3g}")


def design_of(
    cells: Sequence[Cell], changes: Sequence[Settings], grid: Grid, suite: str, factor: str, with_cells: bool = True
) -> Design:
    """Makes the recipes of a design. A cell that exists already, in any suite, is not made again.

    Args:
        cells: cells whose recipes are changed.
        changes: dotted keys with other values. "absent" removes a key, "present" adds an encoding without arguments.
        grid: the grid.
        suite: suite of the new cells.
        factor: the factor, for the origins of values.
        with_cells: whether the cells themselves are part of the design.

    Raises:
        RecipeError: a value is invalid in a recipe, model or dataset, or a name is taken.
    """
    if len(cells) * len(changes) > MOST:
        raise RecipeError(
            f"--design: {len(cells)} cells times {len(changes)} changes are {len(cells) * len(changes):,} cells, and "
            f"{MOST:,} are the most; name fewer cells, values or draws"
        )
    known: dict[str, str] = {}
    for other in grid.cells.values():
        if other.dataset in {cell.dataset for cell in cells}:
            recipe = load_recipe(other.recipe_path)
            if recipe.search is None:
                known.setdefault(_identity(other.dataset, recipe), other.cell)
    names: dict[str, None] = {}
    recipes: dict[str, Recipe] = {}
    for cell in cells:
        base = settings_of(cell)
        known.setdefault(_identity(cell.dataset, base), cell.cell)
        if with_cells:
            names[cell.cell] = None
        for change in changes:
            recipe = _changed(base, change, cell, factor)
            identity = _identity(cell.dataset, recipe)
            if identity not in known:
                name = _name(cell, change, suite)
                path = recipe_file(name)
                if name in recipes or path.exists():
                    raise RecipeError(f"{path}: another recipe has this name; use another suite: --into NAME")
                known[identity], recipes[name] = name, recipe
            names[known[identity]] = None
    return Design(list(names), recipes)


def _identity(dataset: str, recipe: Recipe) -> str:
    return digest_of([dataset, recipe.decisive(), recipe.seeds])


def _name(cell: Cell, change: Settings, suite: str) -> str:
    parts = [f"{key.split('.')[-1]}-{value}" for key, value in change.items()]
    row = "-".join([cell.model, *parts]).lower().replace("+", "").replace("_", "-")
    row = "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in row)[:80].strip("-.")
    return f"{suite}/{cell.dataset}/{row}"


def _changed(base: Recipe, change: Settings, cell: Cell, factor: str) -> Recipe:
    """Returns the recipe with a change, with an origin for each value and without keys that describe a row."""
    where = f"gt-bench ablate {factor}: {cell.cell} with {', '.join(f'{k}={v}' for k, v in change.items())}"
    content = base.model_dump(mode="json", exclude_unset=True, exclude=set(ROW) | {"origin"})
    for key, value in change.items():
        _put(content, key, value, where)
    recipe = validated(Recipe, content, where)
    check_model(recipe, where)
    check_fit(recipe, get_spec(cell.dataset).level, cell.dataset, where)
    origin = {}
    for key in recipe.given_values():
        covering = [one for one in base.origin if one in ("all", key) or key.startswith(f"{one}.")]
        if any(key == one or key.startswith(f"{one}.") for one in change):
            origin[key] = f"chosen: varied by gt-bench ablate {factor}"
        elif covering:
            origin[key] = base.origin[max(covering, key=lambda one: (one != "all", len(one)))]
    recipe = recipe.model_copy(update={"origin": origin})
    check_origins(recipe.given_values(), recipe.origin, where)
    return recipe


def _put(content: Settings, key: str, value: object, where: str) -> None:
    *sections, last = key.split(".")
    if key == "model.name" or key in DESCRIPTIVE:
        raise RecipeError(f"{where}: {key} is no factor: runs do not depend on it, or it is another model")
    place = content
    for name in sections:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise RecipeError(f"{where}: {name} is a value, not a section")
    if value == ABSENT:
        place.pop(last, None)
    else:
        place[last] = {} if value == PRESENT and sections == ["encodings"] else value


def write_design(design: Design, plan: Path, command: str) -> list[Path]:
    """Writes the recipes of missing cells and the plan, and updates the grid. Returns the recipes.

    Raises:
        RecipeError: the plan exists with another content.
        WriteError: a file cannot be written.
    """
    from gt_bench.pipeline.grid import write_grid
    from gt_bench.utils.paths import is_project

    entry = yaml.safe_dump({"runs": [{"cells": design.cells}]}, sort_keys=False, width=140)
    content = f"# written by `{command}`; compute it by `gt-bench work --plan {plan}`\n{entry}"
    if plan.exists() and plan.read_text(encoding="utf-8") != content:
        raise RecipeError(f"{plan}: exists with another content; move it away, or use --plan with another file")
    paths = []
    for name, recipe in design.recipes.items():
        text = yaml.safe_dump(recipe.model_dump(mode="json", exclude_unset=True), sort_keys=False, width=140)
        paths.append(write_bytes(recipe_file(name), text.encode()))
    if paths and is_project():
        write_grid()
    write_bytes(plan, content.encode())
    return paths


def check_suite(suite: str) -> None:
    """Raises RecipeError for an invalid name of a suite."""
    if not is_plain_name(suite) or suite != suite.lower():
        raise RecipeError(f"--into {suite}: a name of a suite has lower-case letters, digits and dashes")


def design(
    factor: str | None,
    cells: Sequence[Cell],
    grid: Grid,
    kind: str,
    values: Sequence[str],
    over: Sequence[str],
    draws: int,
    seed: int,
    suite: str,
    plan: Path,
) -> Iterator[str]:
    """Makes a design and writes its files. Yields lines for the user.

    Args:
        factor: dotted keys, separated by commas.
        cells: cells whose recipes are changed.
        grid: the grid.
        kind: one-at-a-time or random.
        values: texts of --values.
        over: texts of --over.
        draws: number of draws of a random design.
        seed: of the draws.
        suite: suite of the new cells.
        plan: file of the plan.

    Raises:
        RecipeError: an option is invalid, or a value is invalid for a cell.
    """
    names = [name.strip() for name in (factor or "").split(",") if name.strip()]
    if not names:
        raise RecipeError(f"--design {kind}: of which factor? gt-bench ablate model.dropout CELL --design {kind} ...")
    check_suite(suite)
    if kind == "random":
        changes = random_design(values_in(names, values), others_in(names, over), draws, seed)
    elif over:
        raise RecipeError(f"--over {over[0]}: a one-at-a-time design changes the factor alone; use --design random")
    else:
        changes = one_at_a_time(values_in(names, values))
    found = design_of(cells, changes, grid, suite, ",".join(names), with_cells=kind != "random")
    for path in write_design(found, plan, f"gt-bench ablate {factor} --design {kind}"):
        yield f"written: {path}"
    yield (
        f"written: {plan}: {len(found.cells)} cells, of which {len(found.recipes)} are new (suite {suite}, in "
        f"{SUITES / suite})"
    )
    yield f"next: gt-bench work --plan {plan}, then gt-bench ablate {','.join(names)}"
