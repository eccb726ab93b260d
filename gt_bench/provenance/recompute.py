"""Recomputation of runs of a contributed file: `gt-bench verify-submission`.

A seed is computed again from recipe, data and code of this checkout, in store/recomputed/, never from a stored record.
On the same kind of processor, with the same libraries, all numbers must be equal bit for bit. Otherwise rounding
differs, and training amplifies it. Then these rules hold:

- What does not depend on rounding is equal: status, number of parameters, recipe, split, versions, digests.
- On the same kind of device, the training losses of the first epoch differ by at most FIRST_LOSS.
- The mean difference of the test metrics lies within the interval for two means of as many seeds, at the level of
  `run.verdict`: Student's t with the standard deviation over the seeds of the file.
"""

import hashlib
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.prepare import prepared_dataset
from gt_bench.encodings.requests import encode_for
from gt_bench.experiment.cell import experiment_of
from gt_bench.experiment.run import Experiment
from gt_bench.provenance.staleness import recipe_now
from gt_bench.provenance.submission import marked
from gt_bench.provenance.transfer import differences, kind_differences
from gt_bench.records.run import RunRecord, Verification
from gt_bench.runtime.startup import prepare_process
from gt_bench.store.predictions import same_value
from gt_bench.store.run_store import FINAL, Store, StoreError
from gt_bench.store.shipped_files import Shipped, content_problems, read, write
from gt_bench.utils.io import read_bytes

FOLDER = Path("store/recomputed")
DATA = Path("data")
FIRST_LOSS = 0.01  # relative difference of the training losses of the first epoch on another processor
ROUNDED = ("epochs", "best_epoch", "val", "test", "test_metrics")  # parts of a record that depend on rounding
EQUAL, CLOSE, DIFFERENT, UNDECIDED = "equal", "within tolerance", "different", "undecided"


@dataclass(frozen=True)
class Verified:
    """One seed that was computed again.

    Attributes:
        seed: the seed.
        outcome: EQUAL, CLOSE, DIFFERENT or UNDECIDED.
        why: what was compared.
        recorded: test metric in the file.
        recomputed: test metric here.
    """

    seed: int
    outcome: str
    why: str
    recorded: float | None
    recomputed: float | None

    @property
    def is_verified(self) -> bool:
        """Whether the recomputed run confirms the record."""
        return self.outcome in (EQUAL, CLOSE)


def chosen_seeds(shipped: Shipped, runs: int, seeds: Sequence[int] = ()) -> list[int]:
    """Returns the seeds to compute again: `seeds`, or else `runs` seeds drawn by the digest of the file.

    Raises:
        OptionError: the file has no such seed, or fewer runs.
    """
    known = [r.run.seed for r in shipped.records if r.run.status in FINAL]
    if unknown := [seed for seed in seeds if seed not in known]:
        problem = f"{shipped.path} has no finished run with this seed; expected one of {', '.join(map(str, known))}"
        raise OptionError(problem, place="--seed", value=unknown[0])
    if seeds:
        return list(dict.fromkeys(seeds))
    if runs > len(known):
        problem, remedy = f"{shipped.path} has {len(known)} finished runs", f"use --runs {len(known)} or less"
        raise OptionError(problem, place="--runs", value=runs, remedy=remedy)
    draw = random.Random(hashlib.sha256(read_bytes(shipped.path)).digest())
    return sorted(draw.sample(known, runs))


def verify(path: Path, grid: Grid, runs: int = 1, seeds: Sequence[int] = (), mark: bool = False) -> list[Verified]:
    """Computes runs of a contributed file again and compares them with its records.

    Args:
        path: the file.
        grid: the grid, with the cell of the file.
        runs: number of seeds, drawn by the digest of the file.
        seeds: these seeds instead.
        mark: whether to mark the seeds as recomputed in the file, if all are confirmed.

    Returns:
        A comparison per seed.

    Raises:
        StoreError: the file is damaged, or its records are invalid.
        RecipeError: the cell does not exist, or its runs would have other keys here.
        DatasetError: the dataset is not available here, or is damaged. Otherwise missing data are prepared.
    """
    shipped = read(path)
    if problems := content_problems(shipped):
        lines = [f"{path}: {line}" for line in problems]
        raise StoreError("\n".join(["nothing is computed:", *lines]), remedy=f"see `gt-bench submit {path}`")
    wanted, experiment = chosen_seeds(shipped, runs, seeds), _experiment(shipped, grid)
    theirs = {record.run.seed: record for record in shipped.records}
    for seed in wanted:
        _check_key(experiment, theirs[seed], path)
    pairs = []
    for seed in wanted:
        _tell(f"{shipped.cell}: seed {seed} is computed again")
        if experiment.source:
            experiment.source.run(seed)
        pairs.append((theirs[seed], experiment.run(seed, on_epoch=_progress(seed, experiment.recipe.reports))[0]))
    outcomes = compare(pairs, shipped.records, grid.run.verdict.level)
    if mark and all(verified.is_verified for verified in outcomes):
        earlier = [r.run.seed for r in shipped.records if r.verified == Verification.RECOMPUTED]
        write(marked(shipped, None, [*earlier, *wanted]))
    return outcomes


def _experiment(shipped: Shipped, grid: Grid) -> Experiment:
    cell = grid.find(shipped.cell)
    try:
        recipe = recipe_now(shipped, shipped.records[0].run.recipe, load_recipe(cell.recipe_path), grid, cell)
    except KeyError as error:
        problem = f"the value of {error.args[0]} is not in the search space of {cell.recipe_path}"
        raise RecipeError(problem, file=shipped.path, remedy=f"see `gt-bench submit {shipped.path}`") from None
    packed = prepared_dataset(cell.dataset, DATA, grid.run.mirrors, _tell)
    encode_for(recipe, packed, DATA)
    if recipe.start:
        encode_for(load_recipe(grid.find(recipe.start.cell).recipe_path), packed, DATA)
    allocator = prepare_process(grid.run)
    return experiment_of(cell, recipe, grid, Store(FOLDER), DATA, allocator)


def _check_key(experiment: Experiment, record: RunRecord, path: Path) -> None:
    """Raises RecipeError if the run of a record would have another key here."""
    run = record.run
    if experiment.digest(run.seed) == record.digest:
        return
    here = {**experiment.digests.to_disk(), **experiment.versions, "recipe": experiment.decisive(run.seed)}
    there = {**run.digests.to_disk(), **run.versions, "recipe": run.recipe}
    keys = sorted(key for key in {*here, *there} if here.get(key) != there.get(key))
    raise RecipeError(
        f"{', '.join(keys or ['split'])} of its run is not the one of this checkout, so nothing is computed",
        file=path,
        place=f"seed {run.seed}",
        value=keys,
        remedy=f"`gt-bench submit {path}` reports what differs",
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress(seed: int, epochs: int) -> Callable[[int, dict[str, float]], None]:
    def tell(epoch: int, _: dict[str, float]) -> None:
        if epoch % max(1, epochs // 10) == 0:
            _tell(f"seed {seed}: {epoch} of {epochs}")

    return tell


def compare(pairs: Sequence[tuple[RunRecord, RunRecord]], records: Sequence[RunRecord], level: float) -> list[Verified]:
    """Compares records with recomputed ones.

    Args:
        pairs: (record of the file, recomputed record) per seed.
        records: all records of the file, for the deviation over seeds.
        level: level of the interval.
    """
    alike = [pair for pair in pairs if not kind_differences(*pair)]
    others = [pair for pair in pairs if pair not in alike]
    outcomes = [_bitwise(*pair) for pair in alike]
    if others:
        outcome, why = _tolerance(others, records, level)
        outcomes += [_elsewhere(*pair, outcome, why) for pair in others]
    return sorted(outcomes, key=lambda seed: seed.seed)


def _bitwise(theirs: RunRecord, ours: RunRecord) -> Verified:
    keys = differences(theirs, ours)
    why = f"differs in {', '.join(keys)}" if keys else "equal bit for bit"
    return _verified(theirs, ours, DIFFERENT if keys else EQUAL, f"same kind of processor; {why}")


def _elsewhere(theirs: RunRecord, ours: RunRecord, outcome: str, why: str) -> Verified:
    other = f"differs: {', '.join(kind_differences(theirs, ours))}"
    keys = differences(theirs, ours)
    if not keys:
        return _verified(theirs, ours, EQUAL, f"equal bit for bit ({other})")
    if exact := [key for key in keys if key not in ROUNDED]:
        return _verified(theirs, ours, DIFFERENT, f"{', '.join(exact)} does not depend on the processor, but differs")
    if theirs.measured.device == ours.measured.device:
        a, b = (_first_loss(record) for record in (theirs, ours))
        if a is not None and b is not None and not math.isclose(a, b, rel_tol=FIRST_LOSS):
            return _verified(
                theirs, ours, DIFFERENT, f"training loss of the first epoch {a:.6g} and {b:.6g}: more than 1 % apart"
            )
    return _verified(theirs, ours, outcome, f"{why} ({other})")


def _first_loss(record: RunRecord) -> float | None:
    return next((loss for loss in record.run.epochs["train_loss"] if loss is not None), None)


def _tolerance(
    pairs: Sequence[tuple[RunRecord, RunRecord]], records: Sequence[RunRecord], level: float
) -> tuple[str, str]:
    """Returns (CLOSE, DIFFERENT or UNDECIDED, what was compared) of the mean difference of the test metrics."""
    tests = [(theirs.run.test, ours.run.test) for theirs, ours in pairs]
    known = [(a, b) for a, b in tests if a is not None and b is not None]
    if not known:
        return UNDECIDED, "no test metric to compare"
    difference = statistics.fmean(b - a for a, b in known)
    if all(same_value(b, a) for a, b in known):
        return CLOSE, "the test metric is equal up to rounding"
    every = [test for record in records if (test := record.run.test) is not None]
    if len(every) < 2:
        return UNDECIDED, (
            f"the test metric differs by {difference:.4g}, and one run has no deviation to compare it with; recompute "
            "on the same kind of processor"
        )
    from scipy.stats import t

    limit = float(t.ppf(1 - level / 2, len(every) - 1)) * statistics.stdev(every) * math.sqrt(2 / len(known))
    said = f"mean difference of the test metric {difference:.4g}, limit {limit:.4g}"
    return (CLOSE if abs(difference) <= limit else DIFFERENT), said


def _verified(theirs: RunRecord, ours: RunRecord, outcome: str, why: str) -> Verified:
    return Verified(theirs.run.seed, outcome, why, theirs.run.test, ours.run.test)


def as_json(path: Path, seeds: Sequence[Verified]) -> dict[str, object]:
    """Returns the comparison as documented in docs/json_output.md."""
    return {
        "file": str(path),
        "verified": all(seed.is_verified for seed in seeds),
        "seeds": [asdict(seed) for seed in seeds],
    }


def lines(path: Path, seeds: Sequence[Verified]) -> list[str]:
    """Returns the comparison as text."""
    good = sum(seed.is_verified for seed in seeds)
    each = [
        f"seed {seed.seed}: {seed.outcome}: test {seed.recorded} and {seed.recomputed}; {seed.why}" for seed in seeds
    ]
    return [*each, f"{path}: {good} of {len(seeds)} recomputed seeds confirm the records"]
