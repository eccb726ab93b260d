"""Stage train@cell: every seed of one cell, side by side where the machine has room, each at most once in its life.

    python -m stages.train suite/dataset/model

Writes results/suite/dataset/model.json, which names the records. A dataset that cannot be had gives the status "not run: data".
"""

import contextlib
import errno
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stages.params import Cell, Grid, load_grid
from stages.recipe import Recipe, load_recipe
from stages.schema import RecipeError
from stages.side_by_side import Crew, Ending, Lost, at_once, cores
from stages.stop import handled
from stages.threads import settle_environment


def limited(recipe: Recipe, grid: Grid, cell: Cell) -> tuple[Recipe, list[str]]:
    """The recipe under the limits of its cell or suite in params.yaml, and what was cut."""
    limits, cuts = grid.limits_of(cell), list(recipe.reduced)
    if limits.seeds is not None and limits.seeds < len(recipe.seeds):
        cuts.append(f"{limits.seeds} of {len(recipe.seeds)} seeds")
        recipe = recipe.model_copy(update={"seeds": recipe.seeds[: limits.seeds]})
    if limits.epochs is not None and limits.epochs < recipe.total_epochs:
        cuts.append(f"{limits.epochs} of {recipe.total_epochs} epochs")
        if recipe.phases:  # each phase keeps its share, and at least one epoch
            shares = [max(1, phase.epochs * limits.epochs // recipe.total_epochs) for phase in recipe.phases]
            phases = [phase.model_copy(update={"epochs": epochs}) for phase, epochs in zip(recipe.phases, shares, strict=True)]
            recipe = recipe.model_copy(update={"phases": phases})
        else:
            recipe = recipe.model_copy(update={"epochs": limits.epochs})
    if limits.pairs is not None and recipe.brec and limits.pairs < len(recipe.brec.numbers()):
        cuts.append(f"{limits.pairs} of {len(recipe.brec.numbers())} pairs")
        recipe = recipe.model_copy(update={"brec": recipe.brec.only(limits.pairs)})
    return recipe, cuts


def settings_of(cell: Cell) -> Recipe:
    """What a cell trains with: its recipe, or what its search chose. Raises RecipeError where that is not there yet, or is of another recipe."""
    recipe = load_recipe(cell.recipe_path)
    if cell.settings != "tuned":
        return recipe
    if not cell.settings_path.exists():
        raise RecipeError(f"{cell.settings_path}: there is no such file yet: the cell is searched first, by `gt-bench tune {cell.cell}`")
    chosen = load_recipe(cell.settings_path)
    values = {key: chosen.value(key) for key in (recipe.search.space if recipe.search else ())}
    if (recipe.with_values(values).decisive(), recipe.seeds) != (chosen.decisive(), chosen.seeds):
        raise RecipeError(
            f"{cell.settings_path}: chosen for another state of {cell.recipe_path}; search again: `gt-bench tune {cell.cell}`"
        )
    return chosen


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

    from stages.runs import Experiment, prepare_process

    allocator = prepare_process(grid.run)  # with one thread: `Experiment.run` takes as many as the recipe says

    def experiment_of(cell: Cell, recipe: Recipe, later: tuple[str, ...] = ()) -> Experiment:
        source = None
        if cell.cell in later:
            raise RecipeError(f"{cell.recipe_path}: start.cell: these cells start from each other: {', '.join(later)}")
        if recipe.start:
            before = grid.find(recipe.start.cell)
            source = experiment_of(before, limited(settings_of(before), grid, before)[0], (*later, cell.cell))
        return Experiment(recipe, str(cell.settings_path), cell.dataset, grid.run, Store(store_root), data, allocator, source)

    experiment = experiment_of(cell, recipe)
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
            except _mendable() as error:
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
            if ending.error is not None and not isinstance(ending.error, _mendable()):
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


def _mendable() -> tuple[type[Exception], ...]:
    """What a user can mend."""
    from stages.datasets.inspection import DatasetError
    from stages.files import WriteError
    from stages.store import StoreError

    return RecipeError, StoreError, WriteError, DatasetError, Lost


def _search_summary(cell: Cell) -> dict[str, Any] | None:
    from stages.tune import search_summary

    return search_summary(cell) if cell.settings == "tuned" else None


def cell_stage(description: str, stage: Callable[[Cell, Grid], Any]) -> int:
    """The command line of a stage that takes one cell: what a user can mend ends in one message and status 1, a bug in its traceback."""
    settle_environment()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(description)
        return 2
    try:
        with handled():
            grid = load_grid()
            stage(grid.find(sys.argv[1]), grid)
    except _mendable() as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print("error: the disk is full; free some space and run the same command again: it continues where it was", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command continues where it was", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(cell_stage(__doc__, train_cell))
