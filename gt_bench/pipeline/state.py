"""Stage state: write the dependencies of the other stages as small files. It always runs, and takes little time.

state/datasets/<dataset>.json                what decides its packed bytes, and whether it is available
state/encodings/<dataset>.json               the encodings that recipes request, and the versions of their code
state/cells/<suite>/<dataset>/<model>.json   versions of the code of the cell, its limits, and its base recipes
state/suites/<suite>.json                    cells, code and settings of the leaderboard

A file changes only if a stage must run again. The files contain no digest of the code of cells. If the code of a
finished cell changed, its golden values are compared (gt_bench/experiment/modified_code.py). If they differ and no
version was raised, the file of the cell changes, and the cell runs again. A result whose records are missing is
removed, so that its cell runs again too.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from gt_bench.config.components import run_versions
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.inheritance import bases_of
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import get_spec
from gt_bench.encodings.requests import requests as encoding_requests
from gt_bench.experiment import modified_code
from gt_bench.leaderboard.expectations import THEORY
from gt_bench.papers.results_file import FLAGS, RESULTS
from gt_bench.plugins.models import files_digest
from gt_bench.runtime.exit_status import status_of
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import read_result
from gt_bench.tracking.uri import workspace_id
from gt_bench.utils.code_digest import code_digest
from gt_bench.utils.digest import digest_of
from gt_bench.utils.dvc import keep_in_memory, without_git_user
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Settings
from gt_bench.utils.paths import suite_folders
from gt_bench.utils.redact import without_credentials
from gt_bench.utils.tempfiles import sweep
from gt_bench.utils.versions import modules_of_encodings, version_of
from gt_models.registry import list_models, model_module

ROOT, DATA = Path("state"), Path("data")
# Packages whose code decides the reports. If it changes, the leaderboards run again, which takes little time.
_REPORTING = ("claims", "leaderboard", "papers", "pipeline.leaderboard", "provenance", "reports", "stats", "tracking")
REPORTING = tuple(f"gt_bench.{name}" for name in _REPORTING)


def write_state(grid: Grid) -> None:
    """Write all state files, and remove files of cells and datasets that are no longer in the grid."""
    from gt_bench.data.prepare import available, contradicted

    wanted: dict[Path, object] = {}
    specs = {name: get_spec(name) for name in grid.datasets}
    states: dict[str, Settings] = {}
    requests: dict[str, dict[str, list[tuple[str, Settings]]]] = {name: {} for name in grid.datasets}
    for cell in grid.cells.values():
        state_of = ROOT / "cells" / f"{cell.cell}.json"
        try:
            recipe = load_recipe(cell.recipe_path)
        except RecipeError as error:  # the stages of the cell stop with this error; other cells are not affected
            print_text(f"{error}\n{cell.cell} cannot run until this is fixed; other cells continue", file=sys.stderr)
            wanted[state_of], requests[cell.dataset][cell.key] = {"error": str(error)}, []
            continue
        try:
            state = _identity(recipe, specs[cell.dataset].task)
        except KeyError as error:
            place = f"dataset {cell.dataset!r}"
            raise RecipeError(error.args[0], file=cell.recipe_path, place=place, value=cell.dataset) from error
        except UserError as error:  # of a user's model: the stage of the cell stops with this error
            state = {"error": str(error)}
        limits = grid.limits_of(cell).model_dump(exclude_none=True)
        if cell.settings == "tuned" and cell.suite in grid.fair_search:
            limits["fair_search"] = grid.fair_search[cell.suite]
        if cell.settings == "tuned" and grid.search:
            changed = grid.with_method(recipe, cell).searched.model_dump(mode="json", exclude_unset=True)
            limits["search"] = digest_of(changed)
        wanted[state_of] = states[cell.cell] = state | {"limits": limits}
        if bases_of(cell.recipe_path):  # stages depend on the recipe file itself, but not on its base recipes
            states[cell.cell]["base"] = digest_of(recipe.model_dump(mode="json", exclude_unset=True))
        requests[cell.dataset][cell.key] = encoding_requests(recipe)
    for name, modified in _modified(grid, states, {name: spec.task for name, spec in specs.items()}).items():
        states[name]["modified"] = modified
    for name, spec in specs.items():
        is_available, _ = available(name, DATA, grid.run.mirrors)
        other = contradicted(name, DATA)  # absent otherwise, so that pins of a first use run nothing again
        state = {"spec": spec.digest, "available": is_available} | ({"packed_from_other": other} if other else {})
        wanted[ROOT / "datasets" / f"{name}.json"] = state
        wanted[ROOT / "encodings" / f"{name}.json"] = {
            "versions": _encoding_versions(requests[name]),
            "requests": requests[name],
        }
    report_code, store = code_digest(["gt_bench.pipeline.leaderboard"], packages=REPORTING), _tracking_store()
    published = _published_numbers()
    for suite in grid.suites:
        cells = [cell.cell for cell in grid.suite(suite)]
        wanted[ROOT / "suites" / f"{suite}.json"] = {
            "cells": cells,
            "code": report_code,
            "published": published,
            "verdict": grid.run.verdict.model_dump(mode="json"),
            "tracking": store,
        }
    _replace(ROOT, wanted)


def remove_results_without_records(cells: Iterable[Cell]) -> None:
    """Remove the results of cells of which a record is not in the store. DVC does not manage the store."""
    store, lost = Store(), []
    for cell in cells:
        path = Path("results", f"{cell.cell}.json")
        try:
            result = read_result(path, cell.cell)
        except StoreError:  # the leaderboard reports it
            continue
        if result and not all((store.folder(digest) / "record.json").exists() for digest in result.runs):
            path.unlink(missing_ok=True)
            lost.append(cell.cell)
    if lost:
        shown = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        print_text(
            f"{len(lost)} cells run again, because {store.root}/ has not all of their records: {shown}", flush=True
        )


def _identity(recipe: Recipe, task: str) -> Settings:
    """Return what of the code decides a cell's runs: versions, and the digest of a user's model.

    Models of the library are not imported: importing torch takes longer than everything else in this stage.
    """
    model, files = recipe.model.name, None
    if not (model in list_models() and model_module(model).startswith("gt_models.")):
        files = files_digest(model)
    versions = run_versions(None if files else model, task, recipe.decisive())
    return {"versions": versions} | ({"files": files} if files else {})


def _encoding_versions(requests: dict[str, list[tuple[str, Settings]]]) -> dict[str, int]:
    """Return component -> version of the encodings that recipes of a dataset request."""
    modules = modules_of_encodings({name for of_cell in requests.values() for name, _ in of_cell})
    return {component: version_of(module) for component, module in modules.items()}


def _modified(grid: Grid, states: Mapping[str, Settings], tasks: Mapping[str, str]) -> dict[str, str]:
    """Return cell -> digest of its code, for cells with a result whose golden values changed without a new version."""
    references: dict[str, list[str]] = {}  # cell -> cells whose golden values decide
    codes: dict[str, str] = {}  # the latter -> hash of their code
    for cell in grid.cells.values():
        if "versions" not in states.get(cell.cell, {}) or not Path("results", f"{cell.cell}.json").exists():
            continue
        recipe = load_recipe(cell.recipe_path)
        components = {*states[cell.cell]["versions"], *modules_of_encodings(recipe.encodings)}
        found = modified_code.references_of(cell.cell, recipe.model.name, tasks[cell.dataset], components)
        references[cell.cell] = list(found)
        codes |= found
    differs = modified_code.differences(codes)
    modified = {}
    for name, its_references in references.items():
        if reference := next((one for one in its_references if differs[one]), None):
            modified[name] = codes[reference]
            print_text(
                f"{name}: {differs[reference]}, and no version was raised: it runs under a new key", file=sys.stderr
            )
    return modified


def _published_numbers() -> str:
    """sha256 of what leaderboards read of all suites: published numbers, remarks on them, and what theory expects."""
    found = hashlib.sha256()
    for name, folder in suite_folders().items():
        for file in (RESULTS, FLAGS, THEORY):
            if (path := folder / file).exists():
                found.update(f"{name}/{file}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _tracking_store() -> str:
    """Return the address of the tracking server, or the id of the local tracking store.

    A local store that was deleted gets a new id, so that the leaderboards run again and fill it from the records.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return without_credentials(uri)
    return workspace_id()


def _replace(root: Path, wanted: dict[Path, object]) -> None:
    for path, content in wanted.items():
        new = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
        if not path.exists() or path.read_bytes() != new:
            write_bytes(path, new)
    for path in root.rglob("*.json"):
        if path not in wanted:
            path.unlink()
    sweep(root, everywhere=True)
    for folder in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            shutil.rmtree(folder)


def main() -> int:
    """Run the stage and return its exit status."""
    keep_in_memory()

    def work() -> None:
        grid = load_grid()
        for line in without_git_user():
            print(line, flush=True)
        remove_results_without_records(grid.cells.values())
        write_state(grid)

    return status_of(work)
