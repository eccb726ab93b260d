"""Check of the grid: every cell, with its real model at its real width, takes two optimisation steps and one evaluation.

    python -m stages.check_grid [SUITE or suite/dataset/row ...] [--workers 2]

The data are miniatures (stages/datasets/miniature.py), so nothing is downloaded and nothing kept; everything between recipe and record is what
a real run uses. Exits 1 with a table of what failed. Recipes that grid.yaml does not list yet are checked too. Of the whole grid it says how
many cells train through each form of each operation of gt_models.kernels; a fast form that no cell trains through is a failure: it is to be
taught what the recipes need, or to go.
"""

import argparse
import contextlib
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from stages.command import status_of
from stages.contents import Record
from stages.errors import DatasetError, UserError
from stages.params import Cell, Grid, RunSettings, load_grid
from stages.quiet import listen, started_quietly
from stages.recipe import Recipe, load_recipe
from stages.schema import RecipeError
from stages.threads import settle_environment

STEPS = 2
# forms that a miniature on the CPU cannot reach, and where they run; their own tests hold them against the definition
ELSEWHERE = {
    ("ada_rms", "two-numbers"): "on a GPU, or without Numba",
    ("gated_norm", "triton"): "on a GPU",
    ("graph_attention", "triton"): "on a GPU",
    ("triangular_attention", "triton"): "on a GPU",
    ("triangular_attention", "chunked"): "where all triples of a batch are too many",
}
SECONDS = 300  # a cell that takes longer than this on its miniature is broken, or belongs on another one


@dataclass(frozen=True)
class Checked:
    """One cell's outcome; `error` is None where all went well. `forms`: of each operation, those that it trained through."""

    cell: str
    seconds: float
    parameters: int | None = None
    error: str | None = None
    note: str | None = None
    forms: dict[str, list[str]] = field(default_factory=dict)


def cells_of(names: Sequence[str], grid: Grid) -> list[Cell]:
    """The named cells, or all; recipes without an entry in grid.yaml included. Raises RecipeError with the nearest name."""
    cells = {cell.key: cell for cell in grid.cells.values()}
    for path in sorted(Path("recipes").glob("*/*/*.yaml")):
        suite, dataset, row = path.parts[-3], path.parts[-2], path.stem
        key = f"{suite}-{dataset}-{row}"
        if key not in cells:
            cells[key] = Cell(key=key, cell=f"{suite}/{dataset}/{row}", dataset=dataset, model=row, settings="recipes")
    suites = list(dict.fromkeys([*grid.suites, *(cell.suite for cell in cells.values())]))
    return grid.model_copy(update={"cells": cells, "suites": suites}).chosen(names)


def shortened(recipe: Recipe) -> Recipe:
    """The recipe with two epochs, or one for each of its phases where there are more, and one validation; one seed."""
    changes: dict[str, object] = {"seeds": recipe.seeds[:1], "patience": None, "search": None}
    if recipe.phases:
        each = max(1, STEPS // len(recipe.phases))
        changes["phases"] = [phase.model_copy(update={"epochs": each}) for phase in recipe.phases]
        total = each * len(recipe.phases)
    else:
        total = changes["epochs"] = min(STEPS, recipe.total_epochs)
    # where a phase begins from the best weights so far, there must have been some
    changes["eval_every"] = 1 if any(phase.reload_best for phase in recipe.phases) else total
    if recipe.eval_after is not None:
        changes["eval_after"] = None
    if recipe.batch.parts is not None:  # a miniature has few nodes, and BatchNorm needs two
        changes["batch"] = recipe.batch.model_copy(update={"parts": min(recipe.batch.parts, 2)})
    short = recipe.model_copy(update=changes)
    return short.with_protocol(short.protocol.of_miniature()) if short.protocol else short


def check_cell(cell: Cell, data: Path) -> Checked:
    """Runs the cell on the miniature that lies in `data`. What a recipe can get wrong, and a bug, becomes the error."""
    start = time.perf_counter()
    said = io.StringIO()
    try:
        with _alarm(SECONDS), contextlib.redirect_stdout(said), tempfile.TemporaryDirectory(prefix="gt-check-") as store:
            record, note = _run(cell, data, Path(store))
        run = record["deterministic"]
        error = None if run["status"] == "ok" else f"{run['status']}: {run['error']}"
        forms = record["measured"]["forms"]["training"]
        return Checked(cell.cell, time.perf_counter() - start, run["parameters"], error, note, forms)
    except Exception as error:  # whatever breaks a cell must not hide the others
        return Checked(cell.cell, time.perf_counter() - start, error=_explain(error))


def _run(cell: Cell, data: Path, store: Path) -> tuple[Record, str | None]:
    from stages.datasets.encoding import encode
    from stages.datasets.packed import PackedDataset
    from stages.encode import requests
    from stages.runs import Experiment
    from stages.space import check_space
    from stages.store import Store

    settings = RunSettings(device="cpu", checkpoint_seconds=1e9, tracking=False)

    def experiment_of(cell: str, recipe: Recipe) -> Experiment:
        """With the run that it starts from done before it."""
        dataset, path, source = cell.split("/")[1], Path("recipes", f"{cell}.yaml"), None
        if recipe.start is not None:
            source = experiment_of(recipe.start.cell, load_recipe(Path("recipes", f"{recipe.start.cell}.yaml")))
            source.run(seed)
        packed = PackedDataset.open(data / "packed" / dataset)
        for name, arguments in requests(recipe.model_copy(update={"search": None})) if not recipe.subgraphs else ():
            encode(packed, data / "encodings" / dataset, name, arguments)
        return Experiment(shortened(recipe), str(path), dataset, settings, Store(store), data, source=source)

    recipe = load_recipe(cell.recipe_path)
    if recipe.search is not None:
        check_space(recipe, cell)
    seed = recipe.seeds[0]
    record, _ = experiment_of(cell.cell, recipe).run(seed)
    count = record["deterministic"]["parameters"]
    # papers print counts to two or three digits
    differs = recipe.parameters is not None and abs(count / recipe.parameters - 1) > 0.01
    note = f"{count:,} parameters, {recipe.parameters:,} printed" if differs else None
    return record, note


def _with_sources(cell: str) -> list[str]:
    """A cell and the ones that it starts from, as far as their recipes can be read."""
    found = [cell]
    with contextlib.suppress(RecipeError):
        while (start := load_recipe(Path("recipes", f"{found[-1]}.yaml")).start) is not None and start.cell not in found:
            found.append(start.cell)
    return found


def _explain(error: BaseException) -> str:
    """A user's mistake in its own words; a bug with where it happened."""
    if isinstance(error, UserError | TimeoutError):
        return str(error)
    trace, frame = error.__traceback__, None
    while trace is not None:
        frame = trace if Path(trace.tb_frame.f_code.co_filename).is_relative_to(Path(__file__).parent.parent) else frame
        trace = trace.tb_next
    where = f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""
    return f"{type(error).__name__}{where}: {error}"


@contextlib.contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s on a miniature")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _begin() -> None:
    """In a worker: one thread, and freed memory kept."""
    listen()
    import warnings

    import torch

    from stages.allocations import keep_allocations

    warnings.simplefilter("ignore")  # of metrics, about classes that twelve graphs do not have
    keep_allocations()
    torch.set_num_threads(1)


def check(cells: Sequence[Cell], workers: int = 2, say: Callable[[str], None] = print) -> list[Checked]:
    """Checks all cells in `workers` processes; `say` is called with each outcome. A worker that dies fails its cell, and the rest goes on."""
    from stages.datasets.catalog import get_spec
    from stages.datasets.miniature import miniature

    data = Path(tempfile.mkdtemp(prefix="gt-grid-"))
    done: dict[str, Checked] = {}

    def note(outcome: Checked) -> None:
        done[outcome.cell] = outcome
        say(f"[{len(done)}/{len(cells)}] {outcome.cell}: {outcome.error or 'ok'} ({outcome.seconds:.1f} s)")

    try:
        unknown: dict[str, str] = {}
        for dataset in dict.fromkeys(name.split("/")[1] for cell in cells for name in _with_sources(cell.cell)):
            try:
                miniature(get_spec(dataset), data / "packed" / dataset)
            except DatasetError as error:
                unknown[dataset] = str(error)
        for cell in cells:
            if cell.dataset in unknown:
                note(Checked(cell.cell, 0.0, error=unknown[cell.dataset]))
        todo = [cell for cell in cells if cell.cell not in done]
        alone: list[Cell] = []
        try:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin) as pool:
                with started_quietly():
                    checked = [pool.submit(check_cell, cell, data) for cell in todo]
                for future in as_completed(checked):
                    note(future.result())
        except BrokenProcessPool:
            # the pool does not say whose worker died: each cell that is left gets a process of its own
            alone = [cell for cell in todo if cell.cell not in done]
        for cell in alone:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin) as pool:
                try:
                    with started_quietly():
                        checking = pool.submit(check_cell, cell, data)
                    note(checking.result())
                except BrokenProcessPool:
                    note(Checked(cell.cell, 0.0, error="its process was killed: too little memory for this model on this machine"))
    finally:
        shutil.rmtree(data)
    return [done[cell.cell] for cell in cells]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 1 where a cell fails or, over the whole grid, where a fast form of an operation is reached by no recipe."""
    parser = argparse.ArgumentParser(prog="python -m stages.check_grid", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites and cells; all where none is named")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    arguments = parser.parse_args(argv)
    # spawned workers look for modules where this process does
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    settle_environment()

    def work() -> int:
        start = time.perf_counter()
        outcomes = check(cells_of(arguments.names, load_grid()), arguments.workers, lambda line: print(line, flush=True))
        report(outcomes, time.perf_counter() - start)
        unreached = [] if arguments.names else report_forms(outcomes)
        return int(bool(unreached) or any(outcome.error for outcome in outcomes))

    return status_of(work)


def report_forms(outcomes: Sequence[Checked]) -> list[str]:
    """Prints how many cells train through each form; returns the fast ones that none does and that are not for `ELSEWHERE`."""
    from gt_models.kernels import all_operations

    unreached = []
    for name, operation in sorted(all_operations().items()):
        counts = {form.name: 0 for form in operation.forms} | {"reference": 0}
        for outcome in outcomes:
            for form in outcome.forms.get(name, ()):
                counts[form] += 1
        elsewhere = {form: ELSEWHERE[name, form] for form in counts if (name, form) in ELSEWHERE and not counts[form]}
        print(f"{name}: " + ", ".join(f"{form} {elsewhere.get(form, f'{count} cells')}" for form, count in counts.items()))
        unreached += [f"{name}, {form}" for form, count in counts.items() if form != "reference" and not count and form not in elsewhere]
    for one in unreached:
        print(f"no cell of the grid trains through {one}")
    return unreached


def report(outcomes: Sequence[Checked], seconds: float) -> None:
    """Prints the notes, the failures as a table, and one line with totals and the three slowest cells."""
    from stages.report.terminal import print_table

    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in (o for o in outcomes if o.note):
        print(f"{outcome.cell}: {outcome.note}")
    if failed:
        print_table(("cell", "what is wrong"), [(o.cell, o.error or "") for o in failed], wrapped=("what is wrong",), title="Failures")
    slowest = ", ".join(f"{o.cell} {o.seconds:.0f} s" for o in sorted(outcomes, key=lambda o: -o.seconds)[:3])
    print(f"{len(outcomes)} cells in {seconds:.0f} s, {len(failed)} failures; slowest: {slowest}")


if __name__ == "__main__":
    sys.exit(main())
