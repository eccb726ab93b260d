"""Stage encode@dataset: computes the encodings that recipes of the grid request on a dataset, each once.

    python -m stages.encode DATASET [--data-root data] [--params params.yaml] [--prune] [--jobs N]

Writes data/encodings/DATASET/KEY.safetensors. For each cell of the dataset, writes cells/KEY.json (its key in
grid.yaml) with the digests of the encodings of this cell, so that the encodings of other recipes do not affect it.
"""

import argparse
import json
import sys
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.tasks import LINK
from gt_bench.encodings.requests import requests
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.threads import settle_environment
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Settings


def encode_dataset(
    dataset: str,
    grid: Grid,
    data: Path = Path("data"),
    recipes: Path = Path(),
    prune: bool = False,
    jobs: int | None = None,
) -> list[Path]:
    """Computes missing encodings of a dataset and writes the files of its cells.

    Cells with an invalid recipe are reported and left out.

    Args:
        dataset: one of `grid.datasets`.
        grid: the grid.
        data: folder with packed/ and encodings/.
        recipes: folder that recipe paths are relative to.
        prune: delete encodings that no recipe requests. Otherwise they are listed.
        jobs: number of processes; see `gt_bench.encodings.compute.encode`.

    Returns:
        The files of the encodings.

    Raises:
        RecipeError: the dataset, an encoding or an argument does not exist.
        DatasetError: the dataset is damaged, or an encoding cannot be computed.
    """
    from gt_bench.data.packed import DatasetUnavailable, PackedDataset, say_notes
    from gt_bench.encodings.cache import EncodedDataset
    from gt_bench.encodings.compute import encode, sweep
    from gt_models.encodings import EncodingError, find_encoding

    if dataset not in grid.datasets:
        problem = f"no dataset {dataset!r} in grid.yaml{nearest(dataset, grid.datasets)}"
        raise RecipeError(f"{problem}; known: {', '.join(grid.datasets)}", value=dataset)
    cells = {cell.cell: cell for cell in grid.cells.values() if cell.dataset == dataset}
    requested: dict[str, dict[str, tuple[str, Settings]]] = {}
    invalid: dict[str, dict[str, str]] = {}
    for name, cell in cells.items():
        path = recipes / cell.recipe_path
        try:
            recipe = load_recipe(path)
        except RecipeError as error:
            print(f"{error}\n{name} is not encoded; the other cells continue", file=sys.stderr, flush=True)
            invalid[name] = {"unreadable": str(error)}
            continue
        try:
            requested[name] = {find_encoding(n).key(a): (n, a) for n, a in requests(recipe)}
        except EncodingError as error:
            raise RecipeError(str(error), file=path, place="encodings") from None
    folder = data / "encodings" / dataset
    sweep(folder)
    try:
        packed = PackedDataset.open(data / "packed" / dataset)
    except DatasetUnavailable as error:
        print(f"{dataset}: not encoded: {error}", flush=True)
        _write_cells(folder, {name: {"unavailable": str(error)} for name in cells}, cells)
        return []
    say_notes(packed.folder)
    if packed.header.task == LINK and any(requested.values()):
        print(f"{dataset}: encodings of link prediction are computed in each run, on its training graph", flush=True)
        requested = {name: {} for name in requested}
    union = {key: request for of_cell in requested.values() for key, request in of_cell.items()}
    try:
        paths = [encode(packed, folder, name, arguments, jobs=jobs) for name, arguments in union.values()]
    except ArithmeticError as error:  # eigenvectors did not converge
        raise DatasetError(str(error), place=dataset) from error
    digests = {
        key: EncodedDataset(packed, folder, {name: arguments}).digests[key] for key, (name, arguments) in union.items()
    }
    contents = {name: {key: digests[key] for key in sorted(of_cell)} for name, of_cell in requested.items()}
    _write_cells(folder, invalid | contents, cells)
    if not invalid:  # the encodings of an invalid recipe are unknown
        _report_unused(folder, set(paths), prune)
    if not union:
        print(f"{dataset}: no recipe requests an encoding", flush=True)
    return paths


def _write_cells(folder: Path, contents: dict[str, dict[str, str]], cells: dict[str, Cell]) -> None:
    wanted = {}
    for name, content in contents.items():
        cell = cells[name]
        wanted[folder / "cells" / f"{cell.key}.json"] = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
    for path, text in wanted.items():
        if not path.exists() or path.read_bytes() != text:
            write_bytes(path, text)
    for path in (folder / "cells").glob("*.json"):
        if path not in wanted:
            path.unlink()


def _report_unused(folder: Path, used: set[Path], prune: bool) -> None:
    """Lists the encodings that no recipe requests, and deletes them if `prune`."""
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        if path not in used:
            remedy = "deleted" if prune else "--prune deletes it"
            print(f"{folder.name}: {path.name}: no recipe requests it; {remedy}", flush=True)
            if prune:
                path.unlink()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes: use 1 or more")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Runs the command of the stage and returns its exit status."""
    settle_environment()
    parser = argparse.ArgumentParser(
        prog="python -m stages.encode", description="Computes the encodings that recipes request on a dataset."
    )
    parser.add_argument("dataset")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="folder with packed/ and encodings/")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="the grid, next to suites/")
    parser.add_argument("--prune", action="store_true", help="delete encodings that no recipe requests")
    parser.add_argument(
        "--jobs", type=_positive, help="number of processes (default: number of cores if the work takes long enough)"
    )
    arguments = parser.parse_args(argv)

    def work() -> None:
        grid, recipes = load_grid(arguments.params), arguments.params.parent
        encode_dataset(arguments.dataset, grid, arguments.data_root, recipes, arguments.prune, arguments.jobs)

    return status_of(work)
