"""Stage encode@dataset: the encodings that some recipe of the grid asks for on this dataset, each computed once.

    python -m stages.encode DATASET [--data-root data] [--params params.yaml] [--prune] [--jobs N]

Writes data/encodings/DATASET/KEY.safetensors, and for each cell of the dataset cells/KEY.json (its key in grid.yaml) with the digests of
just its own encodings: what one recipe asks for touches no other cell.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.threads import settle_environment
from gt_bench.schemas import Settings
from gt_bench.utils.errors import DatasetError


def encode_dataset(
    dataset: str,
    grid: Grid,
    data: Path = Path("data"),
    recipes: Path = Path(),
    prune: bool = False,
    jobs: int | None = None,
) -> list[Path]:
    """Computes what is missing and writes the cells' files; returns the files of encodings.

    Args:
        dataset: one of `grid.datasets`.
        data: folder with packed/ and encodings/.
        recipes: folder that recipe paths are relative to.
        prune: delete encodings that no recipe asks for any more (they are listed otherwise).
        jobs: processes; None as many as cores where that pays. The files are the same.

    Cells whose recipe cannot be read are named and left out. Raises RecipeError for an unknown dataset, encoding or argument.
    """
    from gt_bench.config.schema import nearest
    from gt_bench.data.packed import DatasetUnavailable, PackedDataset, say_notes
    from gt_bench.encodings.cache import EncodedDataset
    from gt_bench.encodings.compute import encode, sweep
    from gt_models.encodings import EncodingError, find_encoding

    if dataset not in grid.datasets:
        raise RecipeError(
            f"no dataset {dataset!r} in grid.yaml{nearest(dataset, grid.datasets)}; known: {', '.join(grid.datasets)}"
        )
    cells = {cell.cell: cell for cell in grid.cells.values() if cell.dataset == dataset}
    asked: dict[str, dict[str, tuple[str, Settings]]] = {}
    unreadable: dict[str, dict[str, str]] = {}  # cells that are not encoded: their own stages say why once more
    for name, cell in cells.items():
        path = recipes / cell.recipe_path
        try:
            recipe = load_recipe(path)
        except RecipeError as error:
            print(f"{error}\n{name} is not encoded; the other cells go on", file=sys.stderr, flush=True)
            unreadable[name] = {"unreadable": str(error)}
            continue
        try:
            asked[name] = {find_encoding(n).key(a): (n, a) for n, a in requests(recipe)}
        except EncodingError as error:
            raise RecipeError(f"{path}: encodings: {error}") from None
    folder = data / "encodings" / dataset
    sweep(folder)
    try:
        packed = PackedDataset.open(data / "packed" / dataset)
    except DatasetUnavailable as error:
        print(f"{dataset}: not encoded: {error}", flush=True)
        _write_cells(folder, {name: {"unavailable": str(error)} for name in cells}, cells)
        return []
    say_notes(packed.folder)
    union = {key: request for wanted in asked.values() for key, request in wanted.items()}
    try:
        paths = [encode(packed, folder, name, arguments, jobs=jobs) for name, arguments in union.values()]
    except ArithmeticError as error:  # eigenvectors that do not converge
        raise DatasetError(f"{dataset}: {error}") from error
    digests = {
        key: EncodedDataset(packed, folder, {name: arguments}).digests[key] for key, (name, arguments) in union.items()
    }
    _write_cells(
        folder,
        unreadable | {name: {key: digests[key] for key in sorted(wanted)} for name, wanted in asked.items()},
        cells,
    )
    if not unreadable:  # whose encodings nobody knows
        _unasked(folder, set(paths), prune)
    if not union:
        print(f"{dataset}: no recipe asks for an encoding", flush=True)
    return paths


def requests(recipe: Recipe) -> list[tuple[str, Settings]]:
    """(encoding, arguments) that runs of the recipe may need: more than one of a name where its search tries several arguments; none where
    they are those of subgraphs, which are made on the fly."""
    found: list[tuple[str, Settings]] = []
    if recipe.subgraphs:
        return found
    for name, arguments in recipe.encodings.items():
        prefix = f"encodings.{name}."
        space = (
            {k.removeprefix(prefix): c for k, c in recipe.search.space.items() if k.startswith(prefix)}
            if recipe.search
            else {}
        )
        choices = []
        for key, choice in space.items():
            if not isinstance(choice, Choice):
                raise RecipeError(
                    f"search.space.{prefix}{key}: encodings are searched by `choices` only, so that they can be computed beforehand"
                )
            choices.append(choice.choices)
        found += [(name, arguments | dict(zip(space, values))) for values in itertools.product(*choices)]
    return found


def _write_cells(folder: Path, contents: dict[str, dict[str, str]], cells: dict[str, Cell]) -> None:
    from gt_bench.utils.io import write_bytes

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


def _unasked(folder: Path, wanted: set[Path], prune: bool) -> None:
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        if path not in wanted:
            print(
                f"{folder.name}: {path.name}: no recipe asks for it any more; {'deleted' if prune else '--prune deletes it'}",
                flush=True,
            )
            if prune:
                path.unlink()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: give 1 or more")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Exit status of the stage's command."""
    settle_environment()
    parser = argparse.ArgumentParser(
        prog="python -m stages.encode", description="Computes the encodings that recipes ask for on a dataset."
    )
    parser.add_argument("dataset")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="folder with packed/ and encodings/")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="the grid; suites/ is next to it")
    parser.add_argument("--prune", action="store_true", help="delete encodings that no recipe asks for any more")
    parser.add_argument(
        "--jobs", type=_positive, help="processes (default: as many as cores where the work is worth their start)"
    )
    arguments = parser.parse_args(argv)

    def work() -> None:
        grid, recipes = load_grid(arguments.params), arguments.params.parent
        encode_dataset(arguments.dataset, grid, arguments.data_root, recipes, arguments.prune, arguments.jobs)

    return status_of(work)
