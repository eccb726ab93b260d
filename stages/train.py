"""Stage train@cell: every seed of one cell, side by side where the machine has room, each at most once in its life.

    python -m stages.train suite/dataset/model

Writes results/suite/dataset/model.json, which names the records. A dataset that cannot be had gives the status "not run: data".
"""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stages.cells import experiment_of, limited, settings_of
from stages.command import cell_stage
from stages.errors import UserError
from stages.params import Cell, Grid
from stages.recipe import Recipe
from stages.schema import RecipeError
from stages.side_by_side import Crew, Ending, Lost, at_once, cores


def train_cell(
    cell: Cell,
    grid: Grid,
    data: Path = Path("data"),
    store_root: Path = Path("store"),
    results: Path = Path("results"),
    *,
    bar: bool = True,
    notice: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Runs what is not in the store yet and writes the cell's result; returns it. Seeds run side by side where `run.parallel` and the machine
    allow it. `bar`: False for plain lines; `notice`: called after each epoch.

    Raises RecipeError for a recipe that does not fit, and Lost where processes of seeds died: after the other seeds are finished.
    """
    from stages.datasets.packed import DatasetUnavailable, PackedDataset
    from stages.files import write_json
    from stages.progress import Progress
    from stages.store import Store
    from stages.tracking import Live

    recipe, cuts = limited(settings_of(cell), grid, cell)
    result: dict[str, Any] = {
        "cell": cell.cell, "suite": cell.suite, "dataset": cell.dataset, "model": cell.model, "status": "ok", "reason": None, "metric": None, "direction": None,
        "runs": [], "seeds": recipe.seeds, "recipe": recipe.model_dump(mode="json", exclude_unset=True), "reduced": cuts,
        "published": recipe.published and recipe.published.model_dump(), "search": _search_summary(cell),
    }  # fmt: skip
    path = results / f"{cell.cell}.json"
    try:
        PackedDataset.open(data / "packed" / cell.dataset)
    except DatasetUnavailable as error:
        result |= {"status": "not run: data", "reason": str(error), "seeds": []}
        write_json(path, result)
        print(f"{cell.cell}: not run: data. {error}", flush=True)
        return result

    from stages.runs import prepare_process

    allocator = prepare_process(grid.run)  # with one thread: `Experiment.run` takes as many as the recipe says

    experiment = experiment_of(cell, recipe, grid, Store(store_root), data, allocator)
    result |= {"metric": experiment.task.metric, "direction": experiment.task.direction}
    header = experiment.header
    if header.derived:
        result["reduced"] = [*cuts, f"derived data: {header.derived}"]
    if header.pinned_remark:
        result["notes"] = [header.pinned_remark]
    described = {
        "name": header.name,
        "digest": experiment.packed.digest,
        "task": header.task,
        "metric": header.metric,
        "statistics": header.statistics,
    }
    gpu = experiment.device.type == "cuda"
    # what is stored needs no process; on a GPU nobody may ask before processes are forked, for it would touch the GPU
    missing = len(recipe.seeds) if gpu else sum(experiment.settled(seed) is None for seed in recipe.seeds)
    most = at_once(grid.run.parallel, missing, recipe.threads, gpu)
    with contextlib.ExitStack() as stack:
        crew = None
        if most > 1:
            crew = stack.enter_context(Crew(_work_of(experiment), most, memory=not gpu))
        live = Live(cell, result["recipe"], described, result["published"]) if grid.run.tracking else None
        progress = stack.enter_context(Progress(cell.cell, len(recipe.seeds) * recipe.reports, bar))
        watch = Watch(progress, live, recipe, notice)
        records = _seeds_side_by_side(experiment, watch, crew) if crew else _seeds_in_turn(experiment, watch)
    result["runs"] = [r["digest"] for r in records]
    failed = [r["deterministic"] for r in records if r["deterministic"]["status"] != "ok"]
    if failed:
        result |= {"status": failed[0]["status"], "reason": failed[0]["error"]}
    write_json(path, result)
    if live:
        live.close(result, records)
    return result


class Watch:
    """Shows a cell's runs as they go, and tracks them where `live` is given."""

    def __init__(self, progress: Any, live: Any, recipe: Recipe, notice: Callable[[], None]):
        self.progress, self.live, self.recipe, self.notice = progress, live, recipe, notice
        self.digests: dict[int, str] = {}

    def name(self, seed: int) -> str:
        return f"seed {seed} ({self.recipe.seeds.index(seed) + 1}/{len(self.recipe.seeds)})"

    def start(self, seed: int, digest: str) -> None:
        self.digests[seed] = digest
        self.progress.start_run(self.name(seed), self.recipe.reports)
        if self.live:
            self.live.start_seed(seed, digest)

    def epoch(self, seed: int, epoch: int, values: dict[str, float]) -> None:
        self.progress.epoch(epoch, values, self.name(seed))
        if self.live:
            self.live.log_epoch(self.digests[seed], epoch, values)
        self.notice()

    def finish(self, seed: int, record: dict[str, Any], computed: bool) -> None:
        if not computed:
            self.progress.start_run(self.name(seed), self.recipe.reports)
        elif self.live:
            self.live.finish_seed(record)
        self.progress.finish_run(record, computed, self.name(seed))


def _seeds_in_turn(experiment: Any, watch: Watch) -> list[dict[str, Any]]:
    records, errors = [], {}
    for seed in experiment.recipe.seeds:
        try:
            record, computed = experiment.run(
                seed, on_start=watch.start, on_epoch=lambda epoch, values, seed=seed: watch.epoch(seed, epoch, values)
            )
        except RecipeError as error:  # of this seed's split or start, perhaps: the others may be sound
            errors[seed] = Ending(error=error)
            continue
        watch.finish(seed, record, computed)
        records.append(record)
    _raise_lost(watch.progress.title, experiment.recipe.seeds, errors, len(records))
    return records


def _work_of(experiment: Any) -> Callable[..., str]:
    """What a worker does: one seed; returns the status of its run."""

    def work(task: tuple[int, bool], tell: Callable[..., None]) -> str:
        seed, alone = task
        record, _ = experiment.run(
            seed,
            on_start=lambda _, digest: tell("start", digest),
            on_epoch=lambda epoch, values: tell("epoch", epoch, values),
            shared=not alone,
        )
        return record["deterministic"]["status"]

    return work


def _seeds_side_by_side(experiment: Any, watch: Watch, crew: Crew) -> list[dict[str, Any]]:
    seeds, pace, computed, found = experiment.recipe.seeds, Pace(experiment.recipe.reports), set(), {}
    crew.say = watch.progress.say

    def finish(seed: int) -> None:
        found[seed] = experiment.settled(seed)
        watch.finish(seed, found[seed], seed in computed)

    def heard(task: tuple[int, bool], what: str, *content: Any) -> None:
        seed = task[0]
        if what == "start":
            computed.add(seed)
            pace.start(seed)
            watch.start(seed, *content)
        else:
            pace.epoch(seed)
            watch.epoch(seed, *content)

    def ended(task: tuple[int, bool], ending: Ending) -> None:
        seed, alone = task
        pace.end(seed)
        if ending.ok and (alone or ending.value != "oom"):
            finish(seed)
        elif ending.ok:
            watch.progress.say(f"{watch.name(seed)}: out of memory beside other seeds; it runs alone once they are finished")

    stored = [seed for seed in seeds if experiment.settled(seed) is not None]
    for seed in stored:
        finish(seed)
    tasks = [(seed, False) for seed in seeds if seed not in stored]
    endings = crew.run(tasks, heard, lambda waiting: pace.pays(len(waiting)), ended=ended)
    again = [(seed, True) for (seed, _), ending in endings.items() if ending.ok and ending.value == "oom"]
    crew.most = 1
    endings |= crew.run(again, heard, ended=ended)
    errors = {seed: ending for (seed, _), ending in endings.items() if not ending.ok}
    _raise_lost(watch.progress.title, seeds, errors, len(found))
    return [found[seed] for seed in seeds]


class Pace:
    """Whether another process pays: it warms up anew (kernels are compiled, for one), which takes longer than some runs."""

    LONG = 20.0  # seconds of a first epoch that is no warm-up to speak of
    GAIN = 1.25  # at least so many times sooner: what is paid twice is taken from whatever else runs here

    def __init__(self, reports: int):
        self.reports = reports
        self.times: dict[int, tuple[float, float, float, int]] = {}  # seed -> when it began, first and last epoch, epochs
        self.running: set[int] = set()

    def start(self, seed: int) -> None:
        now = time.monotonic()
        self.times[seed] = (now, now, now, 0)
        self.running.add(seed)

    def epoch(self, seed: int) -> None:
        (began, first, _, count), now = self.times[seed], time.monotonic()
        self.times[seed] = (began, first if count else now, now, count + 1)

    def end(self, seed: int) -> None:
        self.running.discard(seed)

    def pays(self, waiting: int) -> bool:
        """Whether another process would be done with one of `waiting` runs before the present ones are with all."""
        known = [(first - began, (last - first) / (count - 1)) for began, first, last, count in self.times.values() if count > 1]
        if not known:
            return any(count and first - began > self.LONG for began, first, _, count in self.times.values())
        warmup, each = (min(column) for column in zip(*known))
        left = sum(max(0, self.reports - self.times[seed][3]) for seed in self.running)
        return self.GAIN * (warmup + each * self.reports) < each * (left + waiting * self.reports) / max(1, len(self.running))


def _raise_lost(cell: str, seeds: list[int], errors: dict[int, Ending], kept: int) -> None:
    """Raises what kept seeds from giving a record: a bug as it is, all else in words."""
    rest = f"{kept} of {len(seeds)} seeds {'is' if kept == 1 else 'are'} kept, the same command goes on"
    died = [f"seed {seed}: {ending.died}" for seed, ending in errors.items() if ending.error is None]
    for ending in errors.values():
        if ending.error is not None and not isinstance(ending.error, RecipeError):
            raise ending.error
    said = list(dict.fromkeys(str(ending.error) for ending in errors.values() if ending.error is not None))
    if died or len(errors) + kept < len(seeds):
        raise Lost(f"{cell}: " + "\n".join([*said, *died]) + f"; {rest}")
    if said:
        raise RecipeError("\n".join(said) + (f"\n{rest}" if kept else ""))


def train_cells(cells: Sequence[Cell], grid: Grid, jobs: int = 1, **folders: Path) -> list[str]:
    """Trains several cells, each in a process of its own, `jobs` at once; one that starts from another comes after it. Returns the cells that could not be trained, having
    said why: the others are. Raises RecipeError for no job."""
    if jobs < 1:
        raise RecipeError(f"--jobs {jobs}: give how many cells train at once, 1 or more")
    cells = sorted(cells, key=lambda cell: cell.after is not None and cell.after in {c.cell for c in cells})
    most = at_once(jobs, len(cells))
    lost: list[str] = []

    def say(cell: str, error: Exception) -> None:
        lost.append(cell)
        print(f"error: {cell}: {error}", file=sys.stderr, flush=True)

    if sys.platform != "linux":  # no sound forks: one after the other, here
        for cell in cells:
            try:
                train_cell(cell, grid, **folders)
            except UserError as error:
                say(cell.cell, error)
        return lost
    import stages.runs  # noqa: F401 (what is imported before the forks is imported once)

    if grid.run.parallel == "auto":  # the cores are shared; a cell's seeds have what is left
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"parallel": max(1, cores() // most)})})
    by_name = {cell.cell: cell for cell in cells}
    begun: set[str] = set()

    def work(name: str, tell: Callable[..., None]) -> None:
        def notice() -> None:
            if name not in begun:  # in the process of the cell: once
                begun.add(name)
                tell()

        train_cell(by_name[name], grid, bar=most == 1, notice=notice, **folders)

    def ended(name: str, ending: Ending) -> None:
        begun.discard(name)
        if not ending.ok:
            say(name, ending.error or Lost(f"{ending.died}; its finished seeds are kept, the same command goes on"))
            if ending.error is not None and not isinstance(ending.error, UserError):
                print("\n".join(ending.error.__notes__), file=sys.stderr, flush=True)

    with Crew(work, most, fresh=True) as crew:
        # once the present cells have had an epoch, what they take is known
        crew.run(
            list(by_name),
            heard=lambda name: begun.add(name),
            more=lambda _: begun.issuperset(crew.tasks),
            ready=lambda name, unfinished: by_name[name].after not in unfinished,
            ended=ended,
        )
    return lost


def _search_summary(cell: Cell) -> dict[str, Any] | None:
    from stages.tune import search_summary

    return search_summary(cell) if cell.settings == "tuned" else None


if __name__ == "__main__":
    sys.exit(cell_stage(__doc__, train_cell))
