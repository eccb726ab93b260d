"""`gt-bench ablate FACTOR CELL... --design DESIGN --values VALUES`: recipes of the cells that a comparison needs.

    one-at-a-time    the factor takes each of its values, everything else is as in the recipe of the cell
    random           `draws` times the keys of --over are drawn at random, and for each draw the factor takes each of
                     its values (GraphGym: You et al., 2020)

Each new recipe has the recipe of its cell as `base:` and contains only what differs. `gt-bench work SUITE` computes the
new cells, and `gt-bench ablate FACTOR` then finds pairs of cells that differ in the factor alone.
"""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from gt_bench.config.grid import Cell
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.config.search_section import Choice, Range, SearchSection
from gt_bench.config.space_text import space_in
from gt_bench.data.registry import get_spec
from gt_bench.experiment.validate import check_fit, check_model
from gt_bench.pipeline.grid import write_grid
from gt_bench.utils.io import is_plain_name, write_bytes
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import is_project, recipe_file

ABSENT, PRESENT = "absent", "present"  # values that remove a key, and that add an encoding without arguments


def _space(text: str) -> tuple[str, Choice | Range]:
    key, content = space_in(text)
    section = validated(SearchSection, {"trials": 1, "space": {key: content}}, text)
    return key, section.space[key]


def draw(over: Mapping[str, Choice | Range], draws: int, seed: int) -> list[Settings]:
    """Returns different random values of keys.

    Raises:
        OptionError: fewer than `draws` different ones are possible.
    """
    rng, drawn = random.Random(seed), list[Settings]()
    for _ in range(100 * draws):
        if len(drawn) < draws and (values := {key: _drawn(space, rng) for key, space in over.items()}) not in drawn:
            drawn.append(values)
    if len(drawn) < draws:
        problem = f"only {len(drawn)} different draws of {', '.join(over)} are possible"
        raise OptionError(problem, place="--draws", value=draws)
    return drawn


def _drawn(space: Choice | Range, rng: random.Random) -> object:
    if isinstance(space, Choice):
        return rng.choice(space.choices)
    if space.integer:
        return rng.randrange(int(space.low), int(space.high) + 1, int(space.step or 1))
    if space.step:
        return space.low + space.step * rng.randrange(int((space.high - space.low) / space.step + 1e-9) + 1)
    low, high = space.low, space.high  # three digits, so that names of cells are short
    return float(f"{low * (high / low) ** rng.random() if space.log else rng.uniform(low, high):.3g}")


def _recipe(cell: Cell, change: Settings, factor: str, folder: Path) -> Settings:
    """Returns the content of a recipe that differs from that of a cell."""
    base = cell.settings_path if cell.settings == "tuned" else cell.recipe_path
    content: Settings = {"base": os.path.relpath(base, folder)}
    if removed := [key for key, value in change.items() if value == ABSENT]:
        content["drop"] = removed
    kept = {key: value for key, value in change.items() if value != ABSENT}
    for key, value in kept.items():
        *sections, last = key.split(".")
        place = content
        for name in sections:
            place = place.setdefault(name, {})
        place[last] = {} if value == PRESENT and sections == ["encodings"] else value
    if kept:
        content["origin"] = {key: f"chosen: varied by gt-bench ablate {factor}" for key in kept}
    return content


def design(
    factor: str, cells: Sequence[Cell], kind: str, values: str, over: Sequence[str], draws: int, seed: int, suite: str
) -> Iterator[str]:
    """Writes the recipes of a design and updates the grid. Yields lines for the user.

    Args:
        factor: a dotted key.
        cells: cells whose recipes are changed.
        kind: one-at-a-time or random.
        values: of the factor: VALUE,VALUE.
        over: KEY=VALUES of a random design, as in `gt-bench try --space`.
        draws: number of draws of a random design, for each cell.
        seed: of the draws.
        suite: suite of the new cells.

    Raises:
        OptionError: an option is invalid.
        RecipeError: a value is invalid for a cell, or a recipe of this name exists. No recipe is written.
    """
    if not is_plain_name(suite) or suite != suite.lower():
        raise OptionError("a name of a suite has lower-case letters, digits and dashes", place="--into", value=suite)
    _, space = _space(f"{factor}={values}")
    if not isinstance(space, Choice):
        raise OptionError("expected values, not a range: 0.0,0.25,0.5", place="--values", value=values)
    if bool(over) != (kind == "random"):
        remedy = "add --over KEY=VALUES" if not over else "--over needs --design random"
        raise OptionError(remedy, place="--design", value=kind)
    drawn = draw(dict(map(_space, over)), draws, seed) if over else [{}]
    written: list[Path] = []
    try:
        for cell in cells:
            for change in ({**others, factor: value} for others in drawn for value in space.choices):
                words = "-".join(f"{key.split('.')[-1]}-{value}" for key, value in change.items())
                row = "".join(c if c.isalnum() or c in ".-" else "-" for c in f"{cell.model}-{words}".lower())
                path = recipe_file(f"{suite}/{cell.dataset}/{row[:80].strip('-.')}")
                text = yaml.safe_dump(_recipe(cell, change, factor, path.parent), sort_keys=False, width=140).encode()
                if path.exists() and path.read_bytes() != text:
                    remedy = "use another suite: --into NAME"
                    raise RecipeError("another recipe has this name", file=path, remedy=remedy)
                if not path.exists():
                    written.append(write_bytes(path, text))
                recipe = load_recipe(path)
                check_model(recipe, str(path))
                check_fit(recipe, get_spec(cell.dataset).level, cell.dataset, str(path))
    except RecipeError:
        for path in written:
            path.unlink()
        raise
    if written and is_project():
        write_grid()
    yield from (f"written: {path}" for path in written)
    yield f"next: gt-bench work {suite} {' '.join(cell.cell for cell in cells)}, then gt-bench ablate {factor}"
