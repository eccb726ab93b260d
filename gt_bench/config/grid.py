"""The grid of cells: the content of grid.yaml with that of params.yaml (gt_bench/config/params.py)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from gt_bench.config.grid_text import render
from gt_bench.config.params import Limits, Resources, RunSettings
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import Positive, RecipeError, Strict, nearest, parse_yaml, read_yaml, validated
from gt_bench.config.search_section import SearchMethod, SearchSection
from gt_bench.utils.errors import closest, suggestion
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import INSTALLED, SUITES, is_project, packaged_suites, place, recipe_file


class Cell(Strict):
    """One (suite, dataset, model) of the grid.

    Attributes:
        key: name of its DVC stages: `cell` with dashes.
        cell: SUITE/DATASET/ROW.
        dataset: the second part of its name.
        model: the third part of its name.
        settings: "recipes", or "tuned" if the recipe has a search.
        after: the cell whose weights this one starts from.
        recipe: path of the recipe, for the dependencies in dvc.yaml.
        values: path of the file that the cell is trained with, which is the recipe or the result of its search, for
            dvc.yaml.
    """

    key: str
    cell: str
    dataset: str
    model: str
    settings: Literal["recipes", "tuned"]
    after: str | None = None
    recipe: str | None = None
    values: str | None = None

    @property
    def suite(self) -> str:
        """First part of its name."""
        return self.cell.split("/")[0]

    @property
    def recipe_path(self) -> Path:
        """Path of its recipe, in the working directory or the installed package."""
        return place(recipe_file(self.cell))

    @property
    def settings_path(self) -> Path:
        """Path of its recipe, or of the result of its search in the folder `settings`."""
        return self.recipe_path if self.settings == "recipes" else Path(self.settings, f"{self.cell}.yaml")


class Grid(Strict):
    """Content of params.yaml and grid.yaml.

    Attributes:
        run: settings of all runs.
        limits: {suite or cell: its limits}.
        resources: {suite, cell or "all": resources on a cluster}.
        fair_search: {suite: number of trials of each of its searches}, instead of the numbers in the recipes. The
            search spaces must have the same size.
        search: {suite, cell or "all": keys of `search:` of recipes that are replaced}, such as sampler and pruner.
        datasets: names of datasets.
        suites: names of suites.
        cells: {key: cell}. In grid.yaml, cells that start from another one are under `finetunes`, because their stage
            depends on it.
        searches: cells whose recipe has a search.
        finetunes: cells that start from another one.
    """

    run: RunSettings = RunSettings()
    limits: dict[str, Limits] = {}
    resources: dict[str, Resources] = {}
    fair_search: dict[str, Positive] = {}
    search: dict[str, SearchMethod] = {}
    datasets: list[str]
    suites: list[str]
    cells: dict[str, Cell]
    searches: dict[str, Cell] = {}
    finetunes: dict[str, Cell] = {}

    @model_validator(mode="before")
    @classmethod
    def _add_finetunes(cls, content: object) -> object:
        if (
            isinstance(content, dict)
            and isinstance(content.get("cells"), dict)
            and isinstance(content.get("finetunes"), dict)
        ):
            twice = sorted(content["cells"].keys() & content["finetunes"].keys())
            if twice:
                raise RecipeError(f"cell {twice[0]} is also listed under cells", place="finetunes", value=twice[0])
            content = content | {"cells": content["cells"] | content["finetunes"]}
        return content

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for where, name in [
            *(("datasets", name) for name in self.datasets),
            *(("suites", name) for name in self.suites),
            *((f"cells.{cell.key}.model", cell.model) for cell in self.cells.values()),
        ]:
            if not is_plain_name(name):  # each becomes a folder or a file
                remedy = "expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
                raise RecipeError(f"invalid name {name!r:.200}", place=where, value=name, remedy=remedy)
        names = [c.cell for c in self.cells.values()]
        for cell in self.cells.values():
            where = f"cells.{cell.key}"
            suite, *rest = cell.cell.split("/")
            if rest != [cell.dataset, cell.model] or cell.key != cell.cell.replace("/", "-"):
                remedy = "expected suite-dataset-model: {cell: suite/dataset/model, ...}"
                raise RecipeError("key, cell, dataset and model disagree", place=where, remedy=remedy)
            for kind, name, known in (("dataset", cell.dataset, self.datasets), ("suite", suite, self.suites)):
                if name not in known:
                    problem = f"{kind} {name!r:.200} is not listed under {kind}s{nearest(name, known)}"
                    raise RecipeError(problem, place=where, value=name)
            if (cell.after is not None) != (cell.key in self.finetunes):
                problem = "expected a key `after`, the cell that it starts from, for cells under finetunes only"
                raise RecipeError(problem, place=where)
            if cell.after is not None and (cell.after not in names or cell.after == cell.cell):
                problem = f"no other cell {cell.after!r:.200}{nearest(cell.after, names)}"
                raise RecipeError(problem, place=f"{where}.after", value=cell.after)
        tuned = {k for k, c in self.cells.items() if c.settings == "tuned"}
        if tuned != set(self.searches):
            raise RecipeError(
                f"differ from the cells with settings: tuned in {sorted(tuned ^ set(self.searches))}; expected the "
                "same cells",
                place="searches",
            )
        for section, known in (
            ("limits", [*self.suites, *names]),
            ("resources", ["all", *self.suites, *names]),
            ("search", ["all", *self.suites, *names]),
        ):
            for name in getattr(self, section):
                if name not in known:
                    problem = f"no suite or cell {name!r:.200}{nearest(name, known)}"
                    raise RecipeError(problem, place=section, value=name)
        for name in self.fair_search:
            if name not in self.suites:
                problem = f"no suite {name!r:.200}{nearest(name, self.suites)}"
                raise RecipeError(problem, place="fair_search", value=name)
        return self

    def limits_of(self, cell: Cell) -> Limits:
        """Returns the limits of a cell, or else those of its suite."""
        return self.limits.get(cell.cell) or self.limits.get(cell.suite) or Limits()

    def with_method(self, recipe: Recipe, cell: Cell) -> Recipe:
        """Returns the recipe with the changes of `search` for all cells, for its suite and for the cell, in this order.

        Raises:
            RecipeError: the search of the recipe does not allow them.
        """
        for name in ("all", cell.suite, cell.cell):
            if name in self.search and recipe.search:
                section = recipe.search.merged(self.search[name])
                where = f"{cell.recipe_path}, with `search.{name}` of params.yaml or options"
                recipe = recipe.model_copy(update={"search": validated(SearchSection, section, where, "search")})
        return recipe

    def resources_of(self, cell: Cell) -> Resources:
        """Returns the resources of a cell. Values for the cell have priority over its suite, and those over `all`."""
        merged: Settings = {}
        for name in ("all", cell.suite, cell.cell):
            values = self.resources.get(name, Resources()).model_dump(exclude_unset=True)
            merged |= values | {"slurm": merged.get("slurm", {}) | values.get("slurm", {})}
        return Resources(**merged)

    def suite(self, name: str) -> list[Cell]:
        """Returns the cells of a suite, in their order in grid.yaml.

        Raises:
            RecipeError: there is no such suite.
        """
        if name not in self.suites:
            problem = f"no suite named {name!r:.200}{nearest(name, self.suites)}; known: {', '.join(self.suites)}"
            raise RecipeError(problem, value=name)
        return [c for c in self.cells.values() if c.suite == name]

    def find(self, cell: str) -> Cell:
        """Returns the cell with this name (suite/dataset/model) or key.

        Raises:
            RecipeError: there is no such cell.
        """
        for candidate in self.cells.values():
            if cell in (candidate.cell, candidate.key):
                return candidate
        names = [c.cell for c in self.cells.values()]
        hint = nearest(cell, names)
        if cell.count("/") == 1:  # SUITE/DATASET, or DATASET/ROW without the suite
            ends = {name.partition("/")[2]: name for name in reversed(names)}
            near = closest(cell, [*ends, *dict.fromkeys(name.rpartition("/")[0] for name in names)])
            hint = suggestion(ends.get(near, near))
        if cell.startswith("tried/"):
            remedy = "create it by `gt-bench try MODEL DATASET`"
            raise RecipeError(f"{cell}: not found in this folder{hint}", value=cell, remedy=remedy)
        raise RecipeError(f"no cell {cell!r:.200} in grid.yaml{hint}", value=cell)

    def means_suite(self, name: str) -> bool:
        """Returns whether `name` is the name of a suite, known or not, and not of a cell."""
        return name in self.suites or ("/" not in name and name not in self.cells)

    def chosen(self, names: Sequence[str]) -> list[Cell]:
        """Returns the cells of these suites, datasets of a suite (SUITE/DATASET) and cells; all cells without names.

        Raises:
            RecipeError: there is no such suite or cell.
        """
        if not names:
            return list(self.cells.values())
        by_key: dict[str, Cell] = {}
        for name in names:
            cells = [cell for cell in self.cells.values() if cell.cell.startswith(f"{name}/")]  # SUITE/DATASET
            cells = cells or (self.suite(name) if self.means_suite(name) else [self.find(name)])
            by_key |= {cell.key: cell for cell in cells}
        return list(by_key.values())


def load_grid(path: str | Path = "params.yaml") -> Grid:
    """Reads and validates params.yaml and the grid.yaml next to it.

    In a folder that is not a project, the installed files are used, with additional cells for the recipes in the
    folder.

    Raises:
        RecipeError: a file is invalid.
    """
    if Path(path) == Path("params.yaml") and not is_project():
        return _installed()
    content, grid = read_yaml(path), Path(path).with_name("grid.yaml")
    generated = {"datasets", "suites", "cells", "searches", "finetunes"}
    if grid.exists():
        if twice := sorted(generated & content.keys()):
            raise RecipeError(
                f"{', '.join(twice)} are also in {grid}",
                file=path,
                value=twice,
                remedy="remove them here, because `python -m gt_bench.pipeline.grid` writes that file",
            )
        content |= read_yaml(grid)
    elif not generated & content.keys():
        remedy = "write it from the recipes: python -m gt_bench.pipeline.grid"
        raise RecipeError("no such file", file=grid, remedy=remedy)
    for section in ("cells", "searches", "finetunes"):
        if isinstance(content.get(section), dict):
            content[section] = {k: {"key": k, **v} if isinstance(v, dict) else v for k, v in content[section].items()}
    return validated(Grid, content, path)


def _installed() -> Grid:
    grid = load_grid(INSTALLED / "params.yaml")
    if not SUITES.is_dir() and not packaged_suites():
        return grid

    own = parse_yaml(render(SUITES))
    cells = {
        section: {key: {"key": key, **cell} for key, cell in (own[section] or {}).items()}
        for section in ("cells", "searches", "finetunes")
    }
    content = grid.model_dump()
    # loading a grid adds its finetunes to `cells`
    content["cells"] = {key: cell for key, cell in content["cells"].items() if key not in content["finetunes"]}
    for section, more in cells.items():
        content[section] = content[section] | more
    for section in ("datasets", "suites"):
        content[section] = list(dict.fromkeys([*content[section], *(own[section] or ())]))
    return validated(Grid, content, "suites/")
