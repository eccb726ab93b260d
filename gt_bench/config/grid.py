"""The grid of cells: the content of grid.yaml with that of params.yaml (gt_bench/config/params.py)."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import PrivateAttr, model_validator

from gt_bench.config.params import Limits, Resources, RunSettings
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import Positive, RecipeError, Strict, nearest, parse_yaml, read_yaml, validated
from gt_bench.config.search_section import SearchMethod, SearchSection
from gt_bench.schemas import Settings
from gt_bench.utils.io import is_plain_name
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
    # {cell: error message of a recipe that was left out}
    _faulty: dict[str, str] = PrivateAttr(default_factory=dict)

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
                raise ValueError(f"cell {twice[0]} is listed under cells and under finetunes")
            content = content | {"cells": content["cells"] | content["finetunes"]}
        return content

    @model_validator(mode="before")
    @classmethod
    def _keys_to_paths(cls, content: object) -> object:
        """Renames keys of `limits`, `resources` and `search` that are the key of a cell to the path of the cell."""
        if not isinstance(content, dict):
            return content
        found = [
            c for part in ("cells", "finetunes") if isinstance(content.get(part), dict) for c in content[part].items()
        ]
        paths = {
            key: cell["cell"] for key, cell in found if isinstance(cell, dict) and isinstance(cell.get("cell"), str)
        }
        renamed = {}
        for section in ("limits", "resources", "search"):
            if isinstance(values := content.get(section), dict):
                if twice := [f"{paths[name]} and {name}" for name in values if paths.get(name) in values]:
                    raise ValueError(f"{section}: {twice[0]} are the same cell; keep one of them")
                renamed[section] = {paths.get(name, name): value for name, value in values.items()}
        return content | renamed

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for kind, name in [
            *(("dataset", name) for name in self.datasets),
            *(("suite", name) for name in self.suites),
            *(("model", cell.model) for cell in self.cells.values()),
        ]:
            if not is_plain_name(name):  # each becomes a folder or a file
                raise ValueError(
                    f"invalid name {name!r:.200} of a {kind}; expected letters, digits, '.', '_' and '-', beginning "
                    "with a letter or digit"
                )
        for cell in self.cells.values():
            suite, *rest = cell.cell.split("/")
            if rest != [cell.dataset, cell.model] or cell.key != cell.cell.replace("/", "-"):
                raise ValueError(
                    f"cell {cell.key}: key, cell, dataset and model disagree; expected suite-dataset-model: "
                    "{cell: suite/dataset/model, ...}"
                )
            for kind, name, known in (("dataset", cell.dataset, self.datasets), ("suite", suite, self.suites)):
                if name not in known:
                    raise ValueError(
                        f"cell {cell.key}: {kind} {name!r:.200} is not listed under {kind}s{nearest(name, known)}"
                    )
        names = [c.cell for c in self.cells.values()]
        for cell in self.cells.values():
            if (cell.after is not None) != (cell.key in self.finetunes):
                raise ValueError(
                    f"cell {cell.key}: expected a key `after`, the cell that it starts from, for cells under "
                    "finetunes only"
                )
            if cell.after is not None and (cell.after not in names or cell.after == cell.cell):
                raise ValueError(
                    f"cell {cell.key}: after: no other cell {cell.after!r:.200}{nearest(cell.after, names)}"
                )
        tuned = {k for k, c in self.cells.items() if c.settings == "tuned"}
        if tuned != set(self.searches):
            raise ValueError(
                f"searches and cells with settings: tuned differ in {sorted(tuned ^ set(self.searches))}; expected "
                "the same cells"
            )
        for section, known in (
            ("limits", [*self.suites, *names]),
            ("resources", ["all", *self.suites, *names]),
            ("search", ["all", *self.suites, *names]),
        ):
            for name in getattr(self, section):
                if name not in known:
                    raise ValueError(f"{section}: no suite or cell {name!r:.200}{nearest(name, known)}")
        for name in self.fair_search:
            if name not in self.suites:
                raise ValueError(f"fair_search: no suite {name!r:.200}{nearest(name, self.suites)}")
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
                recipe = recipe.model_copy(update={"search": validated(SearchSection, section, where, "search.")})
        return recipe

    def resources_of(self, cell: Cell) -> Resources:
        """Returns the resources of a cell. Values for the cell have priority over its suite, and those over `all`."""
        merged: Settings = {}
        for name in ("all", cell.suite, cell.cell):
            values = self.resources.get(name, Resources()).model_dump(exclude_unset=True)
            merged |= values | {"slurm": merged.get("slurm", {}) | values.get("slurm", {})}
        return Resources(**merged)

    def suite_name(self, name: str) -> str:
        """Returns the name of a suite in its usual spelling (`edge_transformer` is accepted); other names unchanged."""
        usual = name.replace("_", "-")
        return usual if name not in self.suites and usual in self.suites else name

    def suite(self, name: str) -> list[Cell]:
        """Returns the cells of a suite, in their order in grid.yaml.

        Raises:
            RecipeError: there is no such suite.
        """
        name = self.suite_name(name)
        if name not in self.suites:
            if own := [message for cell, message in self._faulty.items() if cell.split("/")[0] == name]:
                raise RecipeError("\n".join(own))
            raise RecipeError(
                f"no suite named {name!r:.200}{nearest(name, self.suites)}; known: {', '.join(self.suites)}"
            )
        return [c for c in self.cells.values() if c.suite == name]

    def find(self, cell: str) -> Cell:
        """Returns the cell with this name (suite/dataset/model) or key.

        Raises:
            RecipeError: there is no such cell.
        """
        if "/" in cell:
            suite, _, rest = cell.partition("/")
            cell = f"{self.suite_name(suite)}/{rest}"
        for candidate in self.cells.values():
            if cell in (candidate.cell, candidate.key):
                return candidate
        if message := next((m for name, m in self._faulty.items() if cell in (name, name.replace("/", "-"))), None):
            raise RecipeError(message)
        if cell.startswith("tried/"):
            raise RecipeError(
                f"{cell}: not found in this folder{nearest(cell, [c.cell for c in self.cells.values()])}; create it by "
                "`gt-bench try MODEL DATASET`"
            )
        raise RecipeError(f"no cell {cell!r:.200} in grid.yaml{nearest(cell, [c.cell for c in self.cells.values()])}")

    def means_suite(self, name: str) -> bool:
        """Returns whether `name` is the name of a suite, known or not, and not of a cell."""
        return self.suite_name(name) in self.suites or ("/" not in name and name not in self.cells)

    def chosen(self, names: Sequence[str]) -> list[Cell]:
        """Returns the cells of these suites, datasets of a suite (SUITE/DATASET) and cells; all cells without names.

        Raises:
            RecipeError: there is no such suite or cell.
        """
        if not names:
            return list(self.cells.values())
        found: dict[str, Cell] = {}
        for name in names:
            cells = [cell for cell in self.cells.values() if cell.cell.startswith(f"{name}/")]  # SUITE/DATASET
            cells = cells or (self.suite(name) if self.means_suite(name) else [self.find(name)])
            found |= {cell.key: cell for cell in cells}
        return list(found.values())


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
                f"{path}: {', '.join(twice)} are also in {grid}; remove them here, because "
                "`python -m gt_bench.pipeline.grid` writes that file"
            )
        content |= read_yaml(grid)
    elif not generated & content.keys():
        raise RecipeError(f"{grid}: no such file; write it from the recipes: python -m gt_bench.pipeline.grid")
    for section in ("cells", "searches", "finetunes"):
        if isinstance(content.get(section), dict):
            content[section] = {k: {"key": k, **v} if isinstance(v, dict) else v for k, v in content[section].items()}
    return validated(Grid, content, str(path))


def _installed() -> Grid:
    grid = load_grid(INSTALLED / "params.yaml")
    if not SUITES.is_dir() and not packaged_suites():
        return grid
    from gt_bench.config.grid_text import render

    faulty: dict[str, str] = {}
    own = parse_yaml(render(SUITES, faulty))
    for message in faulty.values():
        _warn_once(f"warning: {message}\nthis recipe is left out until it is fixed; the other cells are not affected")
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
    found = validated(Grid, content, "suites/")
    found._faulty = faulty
    return found


@cache
def _warn_once(line: str) -> None:
    print(line, file=sys.stderr)
