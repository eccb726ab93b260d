"""What may be in params.yaml (run-wide settings that change no number, and cuts of the grid) and in grid.yaml (datasets, suites, cells)."""

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from gt_bench.config.schema import Positive, RecipeError, Strict, nearest, parse_yaml, read_yaml, validated
from gt_bench.config.verdict_settings import Rules
from gt_bench.schemas import Settings
from gt_bench.utils.io import is_plain_name
from gt_bench.utils.paths import INSTALLED, SUITES, is_project, packaged_suites, place, recipe_file

PREDICTIONS_MIB = 16.0


class Cell(Strict):
    """One (suite, dataset, model) of the grid.

    Attributes:
        key: its `cell` with dashes, as DVC names its stages.
        cell: SUITE/DATASET/ROW.
        settings: `recipes`, or `tuned` if the recipe has a search.
        after: the cell whose weights this one starts from.
        recipe, values: paths that dvc.yaml depends on: the recipe, and the file that the cell is trained with, which is the recipe or
            what a search chose. Only DVC reads them.
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
        """The first part of its name."""
        return self.cell.split("/")[0]

    @property
    def recipe_path(self) -> Path:
        """suites/SUITE/recipes/DATASET/ROW.yaml, here or as installed."""
        return place(recipe_file(self.cell))

    @property
    def settings_path(self) -> Path:
        """Where the values come from: its recipe, or what a search chose in the folder `settings`."""
        return self.recipe_path if self.settings == "recipes" else Path(self.settings, f"{self.cell}.yaml")


class Limits(Strict):
    """Cuts of a suite or a cell for limited time (`pairs`: of a protocol that goes by pairs). Whatever is cut is shown as `reduced`, never as a full cell."""

    seeds: Positive | None = None
    trials: Positive | None = None
    epochs: Positive | None = None
    pairs: Positive | None = None


class Resources(Strict):
    """What a job of a suite or a cell asks the cluster for, in place of what its forecast says. `hours`: after which it keeps a checkpoint and is
    queued again; `slurm`: further options of sbatch, such as partition, account, qos or constraint."""

    memory_gib: float | None = Field(None, gt=0, allow_inf_nan=False)
    hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    gpus: int | None = Field(None, ge=0)
    slurm: dict[str, str | int] = {}


class RunSettings(Strict):
    """Run-wide settings that change no number of a finished run. `parallel`: how many seeds of a cell train at once, "auto" as many as cores
    and memory hold (on a GPU one). `predictions`: outputs on validation and test are stored next to each record if they need at most this
    many MiB; 0 stores none. `require_predictions`: a run whose record has none is computed again. `study_storage`: URL of the database of searches, nothing for journal files."""

    device: str = "auto"
    parallel: Literal["auto"] | Positive = "auto"
    mirrors: list[str] = []
    time_limit_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    checkpoint_seconds: float = Field(60.0, ge=0, allow_inf_nan=False)
    tracking: bool = True
    predictions: float = Field(PREDICTIONS_MIB, ge=0, allow_inf_nan=False)
    require_predictions: bool = False
    study_storage: str | None = None
    verdict: Rules = Rules()

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, content: object) -> object:
        if isinstance(content, dict) and "threads" in content:
            raise ValueError(
                "threads is no longer a setting: it decides numbers, and is a key of recipes now (`threads: 2` with its origin; nothing is 1). "
                "Take it out here; `parallel` says how many seeds train at once"
            )
        if isinstance(content, dict) and "margin_std" in content:
            raise ValueError(
                "margin_std is no longer a setting: the margin follows from the printed deviation and the numbers of runs (docs/verdicts.md). "
                "Take it out here; the section `verdict` has the level and the power"
            )
        return content

    @field_validator("parallel", mode="before")
    @classmethod
    def _at_once(cls, parallel: object) -> object:
        if parallel != "auto" and (type(parallel) is not int or parallel < 1):
            raise ValueError("expected auto, or how many seeds of a cell train at once: 1, 2, ...")
        return parallel

    @field_validator("device")
    @classmethod
    def _known(cls, device: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise ValueError("expected auto, cpu, cuda or, of several GPUs, cuda:1")
        return device


class Grid(Strict):
    """params.yaml and grid.yaml: run-wide settings, datasets, cells and suites. `cells` are all of them; in the file those that start from another one
    are apart, under `finetunes`, because their stage depends on it. `resources`: of a suite, a cell or `all`. `fair_search`: suite -> trials of each of its searches, whatever their
    recipes say, over spaces of one size."""

    run: RunSettings = RunSettings()
    limits: dict[str, Limits] = {}
    resources: dict[str, Resources] = {}
    fair_search: dict[str, Positive] = {}
    datasets: list[str]
    suites: list[str]
    cells: dict[str, Cell]
    searches: dict[str, Cell] = {}
    finetunes: dict[str, Cell] = {}
    # by cell the message of a recipe that was left out
    _faulty: dict[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _all_cells(cls, content: object) -> object:
        if (
            isinstance(content, dict)
            and isinstance(content.get("cells"), dict)
            and isinstance(content.get("finetunes"), dict)
        ):
            twice = sorted(content["cells"].keys() & content["finetunes"].keys())
            if twice:
                raise ValueError(f"cell {twice[0]} stands under cells and under finetunes")
            content = content | {"cells": content["cells"] | content["finetunes"]}
        return content

    @model_validator(mode="before")
    @classmethod
    def _cut_by_path(cls, content: object) -> object:
        """A cell under `limits` and `resources` by its path; its key in grid.yaml means the same."""
        if not isinstance(content, dict):
            return content
        found = [
            c for part in ("cells", "finetunes") if isinstance(content.get(part), dict) for c in content[part].items()
        ]
        paths = {
            key: cell["cell"] for key, cell in found if isinstance(cell, dict) and isinstance(cell.get("cell"), str)
        }
        renamed = {}
        for section in ("limits", "resources"):
            if isinstance(said := content.get(section), dict):
                if twice := [f"{paths[name]} and {name}" for name in said if paths.get(name) in said]:
                    raise ValueError(f"{section}: {twice[0]} are one cell; keep one of the two")
                renamed[section] = {paths.get(name, name): value for name, value in said.items()}
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
                    f"a {kind} cannot be named {name!r:.200}: letters, digits, '.', '_' and '-', beginning with a letter or digit"
                )
        for cell in self.cells.values():
            suite, *rest = cell.cell.split("/")
            if rest != [cell.dataset, cell.model] or cell.key != cell.cell.replace("/", "-"):
                raise ValueError(
                    f"cell {cell.key}: key, cell, dataset and model disagree; expected suite-dataset-model: {{cell: suite/dataset/model, ...}}"
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
                    f"cell {cell.key}: finetunes are exactly the cells with `after`, the cell that they start from"
                )
            if cell.after is not None and (cell.after not in names or cell.after == cell.cell):
                raise ValueError(
                    f"cell {cell.key}: after {cell.after!r:.200} is no other cell{nearest(cell.after, names)}"
                )
        tuned = {k for k, c in self.cells.items() if c.settings == "tuned"}
        if tuned != set(self.searches):
            raise ValueError(
                f"searches must list exactly the cells with settings: tuned; they differ in {sorted(tuned ^ set(self.searches))}"
            )
        for section, known in (("limits", [*self.suites, *names]), ("resources", ["all", *self.suites, *names])):
            for name in getattr(self, section):
                if name not in known:
                    raise ValueError(f"{section}: no suite or cell {name!r:.200}{nearest(name, known)}")
        for name in self.fair_search:
            if name not in self.suites:
                raise ValueError(f"fair_search: no suite {name!r:.200}{nearest(name, self.suites)}")
        return self

    def limits_of(self, cell: Cell) -> Limits:
        """What is cut of `cell`: its own limits if it has any, else its suite's."""
        return self.limits.get(cell.cell) or self.limits.get(cell.suite) or Limits()

    def resources_of(self, cell: Cell) -> Resources:
        """What is said under `all`, over that what is said of the suite, and over that of the cell."""
        merged: Settings = {}
        for name in ("all", cell.suite, cell.cell):
            said = self.resources.get(name, Resources()).model_dump(exclude_unset=True)
            merged |= said | {"slurm": merged.get("slurm", {}) | said.get("slurm", {})}
        return Resources(**merged)

    def suite_name(self, name: str) -> str:
        """The suite that `name` means: `edge_transformer` is a spelling of `edge-transformer`. Any other name is returned as it is."""
        usual = name.replace("_", "-")
        return usual if name not in self.suites and usual in self.suites else name

    def suite(self, name: str) -> list[Cell]:
        """The cells of one suite in order of declaration. Raises RecipeError with the nearest suite name."""
        name = self.suite_name(name)
        if name not in self.suites:
            if own := [message for cell, message in self._faulty.items() if cell.split("/")[0] == name]:
                raise RecipeError("\n".join(own))
            raise RecipeError(
                f"no suite named {name!r:.200}{nearest(name, self.suites)}; known: {', '.join(self.suites)}"
            )
        return [c for c in self.cells.values() if c.suite == name]

    def find(self, cell: str) -> Cell:
        """The cell suite/dataset/model (or its key). Raises RecipeError with the nearest one."""
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
                f"{cell}: nothing of this name was tried in this folder{nearest(cell, [c.cell for c in self.cells.values()])}; "
                "`gt-bench try MODEL DATASET` makes one"
            )
        raise RecipeError(f"no cell {cell!r:.200} in grid.yaml{nearest(cell, [c.cell for c in self.cells.values()])}")

    def means_suite(self, name: str) -> bool:
        """Whether `name` is that of a suite, known or not, and not of a cell."""
        return self.suite_name(name) in self.suites or ("/" not in name and name not in self.cells)

    def chosen(self, names: Sequence[str]) -> list[Cell]:
        """The cells that names of suites and cells mean; all for no name. Raises RecipeError with the nearest name."""
        if not names:
            return list(self.cells.values())
        found: dict[str, Cell] = {}
        for name in names:
            found |= {cell.key: cell for cell in (self.suite(name) if self.means_suite(name) else [self.find(name)])}
        return list(found.values())


def load_grid(path: str | Path = "params.yaml") -> Grid:
    """Reads and checks params.yaml and the grid.yaml beside it; in a folder that is no project, those that were installed, with the cells of the
    folder's own recipes. Raises RecipeError."""
    if Path(path) == Path("params.yaml"):
        _check_layout()
        if not is_project():
            return _installed()
    content, grid = read_yaml(path), Path(path).with_name("grid.yaml")
    generated = {"datasets", "suites", "cells", "searches", "finetunes"}
    if grid.exists():
        if twice := sorted(generated & content.keys()):
            raise RecipeError(
                f"{path}: {', '.join(twice)} stand in {grid} too; take them out here: `python -m gt_bench.pipeline.grid` writes that file"
            )
        content |= read_yaml(grid)
    elif not generated & content.keys():
        raise RecipeError(f"{grid}: there is no such file; write it from the recipes: python -m gt_bench.pipeline.grid")
    for section in ("cells", "searches", "finetunes"):
        if isinstance(content.get(section), dict):
            content[section] = {k: {"key": k, **v} if isinstance(v, dict) else v for k, v in content[section].items()}
    return validated(Grid, content, str(path))


def _check_layout() -> None:
    """Raises RecipeError in a folder that has recipes where earlier versions had them."""
    if next(Path("recipes").glob("*/*/*.yaml"), None):
        raise RecipeError(
            "recipes/: the layout of an earlier version; `gt-bench suite migrate` moves its files into suites/"
        )


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
