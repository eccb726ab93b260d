"""Stage state: always runs, cheap. Writes what the other stages depend on as small files that change only when something that matters does.

state/datasets/<dataset>.json             what decides its packed bytes, and whether it can be had now
state/encodings/<dataset>.json            which encodings some recipe asks for, and the versions of what computes them
state/cells/<suite>/<dataset>/<model>.json   versions of what computes the cell, what is cut of it, and what its recipe starts from
state/suites/<suite>.json                 its cells, and what decides its leaderboard: published numbers, code, rules of verdicts, tracking store

Code itself is in none of them. Where that of a finished cell has changed, its golden values are compared (gt_bench/experiment/golden_values.py); where they
differ and no version was raised, its file says so, and the cell runs again.
"""

import hashlib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from gt_bench.config.grid import Grid, load_grid
from gt_bench.config.inheritance import bases_of
from gt_bench.config.recipe import Recipe, digest_of, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment import golden_values
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.leaderboard.expectations import THEORY
from gt_bench.papers.published import FLAGS, RESULTS
from gt_bench.runtime.exit_status import status_of
from gt_bench.schemas import Settings
from gt_bench.utils.code_digest import code_digest
from gt_bench.utils.dvc import keep_in_memory
from gt_bench.utils.errors import UserError
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import suite_folders
from gt_bench.utils.redact import without_credentials
from gt_bench.utils.tempfiles import sweep
from gt_bench.utils.versions import modules_of_encodings, version_of
from gt_models.registry import list_models, model_module

ROOT, DATA = Path("state"), Path("data")
# packages whose code decides what a report says; an edit of them runs the leaderboards again, which is cheap
REPORTING = tuple(
    f"gt_bench.{name}"
    for name in (
        "claims",
        "leaderboard",
        "papers",
        "pipeline.leaderboard",
        "provenance",
        "reports",
        "stats",
        "tracking",
    )
)


def write_state(grid: Grid) -> None:
    """Writes all state files; files of what is no longer in the grid are removed."""
    from gt_bench.data.inventory import available
    from gt_bench.data.prepare import contradicted
    from gt_bench.data.registry import get_spec
    from gt_bench.encodings.encode_dataset import requests as encoding_requests

    wanted: dict[Path, object] = {}
    specs = {name: get_spec(name) for name in grid.datasets}
    states: dict[str, Settings] = {}
    requests: dict[str, dict[str, list[tuple[str, Settings]]]] = {name: {} for name in grid.datasets}
    for cell in grid.cells.values():
        state_of = ROOT / "cells" / f"{cell.cell}.json"
        try:
            recipe = load_recipe(cell.recipe_path)
        except RecipeError as error:  # its stages stop and say it again, and no other cell waits for that
            print_text(
                f"{error}\n{cell.cell} cannot be run until that is mended; the other cells go on", file=sys.stderr
            )
            wanted[state_of], requests[cell.dataset][cell.key] = {"error": str(error)}, []
            continue
        try:
            state = _identity(recipe, specs[cell.dataset].task)
        except KeyError as error:
            raise RecipeError(f"{cell.recipe_path}, dataset {cell.dataset!r}: {error.args[0]}") from error
        except (
            UserError
        ) as error:  # of a model of one's own: its stage stops and says it, and no other cell waits for that
            state = {"error": str(error)}
        limits = grid.limits_of(cell).model_dump(exclude_none=True)
        if cell.settings == "tuned" and cell.suite in grid.fair_search:
            limits["fair_search"] = grid.fair_search[cell.suite]
        # the recipe itself is a dependency of its stages; what it starts from shows here
        base = (
            {"base": digest_of(recipe.model_dump(mode="json", exclude_unset=True))}
            if bases_of(cell.recipe_path)
            else {}
        )
        wanted[state_of] = states[cell.cell] = state | {"limits": limits, **base}
        requests[cell.dataset][cell.key] = encoding_requests(recipe)
    for name, modified in _modified(grid, states, {name: spec.task for name, spec in specs.items()}).items():
        states[name]["modified"] = modified
    for name, spec in specs.items():
        can_be_had, _ = available(name, DATA, grid.run.mirrors)
        other = contradicted(name, DATA)  # named only then, so that the pins of a first use run nothing again
        state = {"spec": spec.digest, "available": can_be_had} | ({"packed_from_other": other} if other else {})
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


def _identity(recipe: Recipe, task: str) -> Settings:
    """What of the code decides a cell's runs: versions, and the files of a user's own model. torch takes longer to import than all else
    here, and a model of the library needs only its file. Raises KeyError, UserError."""
    model, own = recipe.model.name, None
    if not (model in list_models() and model_module(model).startswith("gt_models.")):
        from gt_bench.plugins.models import files_digest

        own = files_digest(model, recipe.model.arguments)
    versions = run_versions(None if own else model, task, recipe.decisive())
    return {"versions": versions} | ({"files": own} if own else {})


def _encoding_versions(requests: dict[str, list[tuple[str, Settings]]]) -> dict[str, int]:
    """Versions of the encodings that recipes of a dataset request, by component."""
    modules = modules_of_encodings({name for of_cell in requests.values() for name, _ in of_cell})
    return {component: version_of(module) for component, module in modules.items()}


def _modified(grid: Grid, states: Mapping[str, Settings], tasks: Mapping[str, str]) -> dict[str, str]:
    """Of the cells that have a result: those whose code computes other golden values under the same versions, with the hash of the code."""
    guardians, codes = {}, {}
    for cell in grid.cells.values():
        if "versions" not in states.get(cell.cell, {}) or not Path("results", f"{cell.cell}.json").exists():
            continue
        guardian = golden_values.reference_cell(
            cell.cell, load_recipe(cell.recipe_path).model.name, tasks[cell.dataset]
        )
        if guardian is not None:
            guardians[cell.cell] = guardian
            codes[guardian] = code_of(*golden_values.model_and_task(guardian))
    found = golden_values.differences(codes, say=lambda line: print_text(line, file=sys.stderr, flush=True))
    for name, guardian in guardians.items():
        if found[guardian]:
            print_text(
                f"{name}: {found[guardian]}, and no version was raised: it runs under a key of its own", file=sys.stderr
            )
    return {cell: codes[guardian] for cell, guardian in guardians.items() if found[guardian]}


def _published_numbers() -> str:
    """sha256 of what leaderboards read of all suites: published numbers, remarks on them, and what theory expects."""
    found = hashlib.sha256()
    for name, folder in suite_folders().items():
        for file in (RESULTS, FLAGS, THEORY):
            if (path := folder / file).exists():
                found.update(f"{name}/{file}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _tracking_store() -> str:
    """Which tracking store is in use: a server's address, or the id of the local one. A deleted store gets a new id, so that the leaderboards
    are run again and fill it from the records."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        return without_credentials(uri)
    path = Path("mlruns") / "id"
    if not path.exists():
        write_bytes(path, f"{uuid.uuid4()}\n".encode())
    return path.read_text(encoding="utf-8").strip()


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
    """Exit status of the stage's command."""
    keep_in_memory()
    return status_of(lambda: write_state(load_grid()))
