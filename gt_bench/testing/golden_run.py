"""The golden run of a cell: its recipe, shortened but complete, on a miniature of its dataset.

    python -m gt_bench.testing.golden_run suite/dataset/row ...

Run it in the folder that contains suites/. It prints a line of JSON per cell. gt_bench/experiment/golden_values.py
stores and compares the values.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.encodings.requests import requests
from gt_bench.experiment.golden_values import (
    Entry,
    agrees,
    components,
    golden_recipe,
    recipe_digest,
    sealed,
    shortened,
    without_unstable,
)
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.malloc import keep_allocations
from gt_bench.runtime.signals import accept_interrupts, die_with_parent, interrupts_blocked
from gt_bench.runtime.startup import collect_garbage_rarely
from gt_bench.runtime.threads import settle_environment
from gt_bench.store.run_store import Store
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.errors import DatasetError, UserError
from gt_bench.utils.json_types import Json
from gt_bench.utils.paths import SUITES
from gt_bench.utils.versions import version_of

if TYPE_CHECKING:
    from torch import nn

    from gt_bench.config.recipe import Recipe
    from gt_bench.experiment.run import Experiment
    from gt_bench.training.loader import Loader

SECONDS = 300  # time limit of a golden run


@dataclass(frozen=True)
class Computed:
    """The golden run of one cell.

    Attributes:
        cell: suite/dataset/row.
        seconds: time of the run.
        entry: its values. None after an error.
        error: message of the error that ended it.
    """

    cell: str
    seconds: float
    entry: Entry | None = None
    error: str | None = None


def compute(cell: str, data: Path, root: Path = Path(), update: bool = False, kept: Entry | None = None) -> Computed:
    """Computes the golden run of a cell in this process. Errors are caught and returned.

    Args:
        cell: suite/dataset/row.
        data: folder with packed/ of `miniatures`.
        root: folder that contains suites/.
        update: if values differ from `kept`, compute them again with slightly different initial weights to find
            unstable values.
        kept: stored values.
    """
    start, output = time.perf_counter(), io.StringIO()
    try:
        with _alarm(SECONDS), contextlib.redirect_stdout(output):
            entry = _run(cell, data, root)
            if update and not agrees(kept, entry):
                values = without_unstable(
                    cast(Json, entry["values"]), cast(Json, _run(cell, data, root, jitter=1e-13)["values"])
                )
                entry = sealed(entry | {"values": cast(dict[str, Json], values)})
        return Computed(cell, time.perf_counter() - start, entry)
    except Exception as error:  # an error of one cell must not hide the others
        return Computed(cell, time.perf_counter() - start, error=explained(error))


def short_experiment(
    cell: str, data: Path, store: Path, root: Path = Path(), kind: "type[Experiment] | None" = None, **changes: object
) -> "Experiment":
    """Returns the experiment of a golden run, with its encodings and the run that it starts from computed.

    Args:
        cell: suite/dataset/row.
        data: folder with packed/ of `miniatures`.
        store: folder for records.
        root: folder that contains suites/.
        kind: class of the experiment.
        **changes: changes of the shortened recipe.
    """
    from gt_bench.data.packed import PackedDataset
    from gt_bench.encodings.compute import encode
    from gt_bench.experiment.run import Experiment

    path = golden_recipe(cell, root / SUITES)
    recipe, dataset, source = load_recipe(path), cell.split("/")[1], None
    if recipe.start is not None:
        source = short_experiment(recipe.start.cell, data, store, root, kind, **changes)
        source.run(recipe.seeds[0])
    packed = PackedDataset.open(data / "packed" / dataset)
    for encoding, arguments in requests(recipe.model_copy(update={"search": None})) if not recipe.subgraphs else ():
        encode(packed, data / "encodings" / dataset, encoding, arguments)
    settings = RunSettings(device="cpu", checkpoint_seconds=1e9, tracking=False, predictions=0)
    short = shortened(recipe).model_copy(update=changes)
    return (kind or Experiment)(short, str(path), dataset, settings, Store(store), data, source=source)


def _run(cell: str, data: Path, root: Path, jitter: float = 0.0) -> Entry:
    """Runs the golden run of a cell, with initial weights that differ by the fraction `jitter`."""
    from gt_bench.testing.golden_experiment import GoldenExperiment, reference
    from gt_bench.testing.measures import encoding_norms, gradient, moved, norm, recorded_losses

    models: list[nn.Module] = []
    norms: list[float] = []
    gradients: list[float] = []

    def differentiated(losses: list[float]) -> None:
        if len(losses) == 1:
            gradients.append(gradient(models[-1]))

    class Watched(GoldenExperiment):
        """An experiment that records its models and their initial norms. Other processes cannot import it."""

        def build(self) -> "nn.Module":
            models.append(moved(super().build(), jitter))
            norms.append(norm(models[-1]))
            return models[-1]

    recipe = load_recipe(golden_recipe(cell, root / SUITES))
    seed, shared = recipe.seeds[0], recipe.processes > 1
    with (
        reference(),
        recorded_losses(differentiated) as losses,
        tempfile.TemporaryDirectory(prefix="gt-golden-") as store,
    ):
        experiment = short_experiment(cell, data, Path(store), root, GoldenExperiment if shared else Watched)
        for seen in (models, norms, gradients, losses):  # of the run that it starts from
            seen.clear()
        if experiment.task.runner is None and not shared:
            experiment.time_limit = 0.0  # the run ends after its first epoch, and resumes from its checkpoint
            experiment.run(seed)
            experiment.time_limit = None
        record, _ = experiment.run(seed)
        if experiment.task.runner is None:
            del norms[1:]
    run, task = record.run, experiment.header.task
    if run.status != "ok":
        raise RecipeError(f"{run.status}: {run.error}")
    values: dict[str, Json] = {"encodings": cast(Json, encoding_norms(experiment)), "parameters": run.parameters}
    values |= {"initial_norm": cast(Json, norms), "gradient": cast(Json, gradients), "losses": cast(Json, losses)}
    values |= {name: cast(Json, curve) for name, curve in run.epochs.items() if name != "epoch"}
    values |= {"best_epoch": run.best_epoch, "test": cast(Json, run.test_metrics)}
    values |= {"norm": norm(models[-1])} if models else {}
    if experiment.header.num_splits > 1:  # the miniatures of consecutive splits begin with different rows
        values["first_row_of_next_seed"] = int(cast("Loader", experiment.loader(seed + 1)).ids["train"][0])
    if recipe.precision == "bf16":
        values["precision"] = cast(Json, _precision(cell, data, root, recipe))
    entry: Entry = {
        "model": recipe.model.name,
        "task": task,
        "versions": {component: version_of(module) for component, module in components(recipe, task).items()},
        "recipe": recipe_digest(recipe),
        "data": experiment.packed.digest,
        "values": values,
        "operations": sorted({operation for taken in record.measured.forms.values() for operation in taken}),
    }
    return sealed(entry)


def _precision(cell: str, data: Path, root: Path, recipe: "Recipe") -> list[str]:
    """Returns the types of the outputs of linear layers in an epoch of the precision that the recipe requests.

    The golden run itself has float64, because numbers of lower precision differ between processors.
    """
    import torch

    from gt_bench.testing.golden_experiment import GoldenExperiment, reference

    types: set[str] = set()

    def note(module: "nn.Module", _: object, output: "torch.Tensor") -> None:
        if isinstance(module, torch.nn.Linear):
            types.add(str(output.dtype))

    hook = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        with reference(torch.float32), tempfile.TemporaryDirectory(prefix="gt-golden-") as store:
            changes: dict[str, object] = {"precision": recipe.precision}
            experiment = short_experiment(cell, data, Path(store), root, GoldenExperiment, **changes)
            experiment.time_limit = 0.0
            experiment.run(recipe.seeds[0])
    finally:
        hook.remove()
    return sorted(types)


def explained(error: BaseException) -> str:
    """Returns the message of a user's error, or a bug with its location."""
    if isinstance(error, UserError | TimeoutError):
        return str(error)
    trace, frame = error.__traceback__, None
    while trace is not None:
        frame = trace if Path(trace.tb_frame.f_code.co_filename).is_relative_to(ROOT) else frame
        trace = trace.tb_next
    where = f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""
    return f"{type(error).__name__}{where}: {error}"


@contextlib.contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"not finished after {seconds} s on a miniature")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _begin(parent: int) -> None:
    """Initialises a worker: one thread in every library, and an allocator that does not return memory."""
    die_with_parent(parent)
    accept_interrupts()
    import warnings

    from gt_bench.encodings.compute import limit_threads

    collect_garbage_rarely()
    warnings.simplefilter("ignore")  # metrics warn about classes that are missing in a miniature
    keep_allocations()
    limit_threads()


def compute_all(
    cells: Sequence[str],
    root: Path = Path(),
    workers: int = 2,
    say: Callable[[Computed], None] = lambda outcome: None,
    update: bool = False,
    kept: Mapping[str, Entry] | None = None,
) -> dict[str, Computed]:
    """Computes golden runs in worker processes. A worker that dies fails only its cell.

    Args:
        cells: the cells.
        root: folder that contains suites/.
        workers: number of processes.
        say: called with each golden run.
        update: as for `compute`.
        kept: {cell: stored values}.

    Returns:
        {cell: its golden run}.
    """
    data = Path(tempfile.mkdtemp(prefix="gt-golden-"))
    done: dict[str, Computed] = {}

    def note(outcome: Computed) -> None:
        done[outcome.cell] = outcome
        say(outcome)

    def in_pool(some: Sequence[str], processes: int) -> None:
        context, size = get_context("spawn"), max(1, min(processes, len(some)))
        with ProcessPoolExecutor(size, mp_context=context, initializer=_begin, initargs=(os.getpid(),)) as pool:
            with interrupts_blocked():
                runs = [pool.submit(compute, cell, data, root, update, (kept or {}).get(cell)) for cell in some]
            for future in as_completed(runs):
                note(future.result())

    # spawned workers look for modules where this process does
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    try:
        for cell, error in miniatures(cells, data, root).items():
            note(Computed(cell, 0.0, error=error))
        todo = [cell for cell in cells if cell not in done]
        with contextlib.suppress(BrokenProcessPool):
            in_pool(todo, workers)
        # the pool does not report whose worker died: run each remaining cell in a separate process
        for cell in [cell for cell in todo if cell not in done]:
            try:
                in_pool([cell], 1)
            except BrokenProcessPool:
                note(Computed(cell, 0.0, error="the process was killed, probably because memory was exhausted"))
    finally:
        shutil.rmtree(data)
    return {cell: done[cell] for cell in cells}


def miniatures(cells: Iterable[str], data: Path, root: Path = Path()) -> dict[str, str]:
    """Packs miniatures of the datasets of cells, and of the cells that they start from, into data/packed.

    Returns:
        {cell: why it has no miniature}.
    """
    from gt_bench.data.standin import miniature
    from gt_bench.testing.datasets import spec_of

    packed: dict[str, str | None] = {}
    failed: dict[str, str] = {}
    for cell in cells:
        for name in _with_sources(cell, root):
            dataset = name.split("/")[1]
            if dataset not in packed:
                packed[dataset] = None
                try:
                    miniature(spec_of(dataset), data / "packed" / dataset)
                except DatasetError as error:
                    packed[dataset] = str(error)
            if (error_text := packed[dataset]) is not None:
                failed[cell] = error_text
    return failed


def _with_sources(cell: str, root: Path) -> list[str]:
    """Returns a cell and the cells that it starts from, as far as their recipes are valid."""
    chain = [cell]
    with contextlib.suppress(RecipeError):
        while (
            start := load_recipe(golden_recipe(chain[-1], root / SUITES)).start
        ) is not None and start.cell not in chain:
            chain.append(start.cell)
    return chain


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line of JSON for each golden run."""
    parser = argparse.ArgumentParser(prog="python -m gt_bench.testing.golden_run", description=__doc__)
    parser.add_argument("cells", nargs="+", metavar="suite/dataset/row")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    arguments = parser.parse_args(argv)
    settle_environment()

    def say(outcome: Computed) -> None:
        print(json.dumps({"cell": outcome.cell, "entry": outcome.entry, "error": outcome.error}), flush=True)

    def work() -> None:
        compute_all(arguments.cells, Path(), arguments.workers, say)

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())
