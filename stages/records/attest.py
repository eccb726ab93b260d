"""Stale records held against the present code: a few of a cell's runs are computed again, and where every bit agrees the cell is carried over.

The digest of code is strict: a rename changes it. What a refactoring did not change is found out here, not assumed; carried.py says what is
written down. Runs are recomputed in `store/attest`, where a killed one goes on, and are not kept: on a machine with other last bits they would
contradict the shipped records. Of a run of many parts that train for themselves, a few may do (`parts`). Where only forms of operations changed
that no run of a cell took, `older` shows it, and nothing is computed.

Processors differ in the last bit (MKL takes other paths on Intel's and AMD's). On a machine of another kind the older code is run too, in a
checkout of its own, and `beside` is that checkout's store: what it holds under a record's digest is the same run, computed here.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stages.contents import Asked, Digests, Measured, Recomputed, Record, Section
from stages.errors import DatasetError
from stages.params import Cell, Grid
from stages.protocols import Protocol
from stages.recipe import digest_of, load_recipe
from stages.records.carried import BEFORE_PARTS, MARK, content_digest, part_of, text_of, with_checksum
from stages.records.shipped import ROOT, Shipped, problems_of, read, record_problems, shipped_paths, write
from stages.records.staleness import code_now, origins_of, recipe_now, standing
from stages.records.unreached import Reached, asked_with, unreached
from stages.schema import RecipeError
from stages.store import Store, StoreError

if TYPE_CHECKING:
    from stages.runs import Experiment

# of a record's environment: what may be behind other bits, said beside a difference
BEHIND = ("cpu_capability", "blas", "torch", "numpy", "llvmlite", "numba", "triton", "cpu")


class StaysStale(Exception):
    """The cell could not be carried over; the message says why."""


def attest(
    shipped: Shipped,
    grid: Grid,
    commit: str,
    runs: int = 1,
    beside: Store | None = None,
    say: Callable[[str], None] = lambda line: None,
    older: Path | None = None,
    parts: int | None = None,
) -> Shipped:
    """The file with its attestation: `runs` of its runs, the cheapest first, were computed again by the present code, recipe, data and encodings
    and found what the records hold, or what `beside` holds of the same runs. `commit`: of that code. `older`: a checkout of the code that the
    records are of; where its runs took nothing that changed since, none is computed. `parts`: how many parts of each run are computed, where its task
    has a protocol of several; None: all. Raises StaysStale where a bit differs or the runs cannot be computed here."""
    if older is not None:
        try:
            return _untouched(shipped, grid, commit, older)
        except Reached as error:
            say(f"{shipped.cell}: {error}")
    data, store, cell = Path("data"), Store(), grid.find(shipped.cell)
    try:
        present = _Present(cell, grid, shipped, shipped.now().records[0], data, store)
        held = _beside(shipped, beside) if beside else shipped.records
        chosen = sorted(held, key=lambda r: (r["deterministic"]["status"] != "ok", r["measured"]["seconds"], r["deterministic"]["seed"]))
        recomputed = [present.recompute(record, parts, say) for record in chosen[:runs]]
    except (RecipeError, DatasetError, KeyError, ValueError) as error:
        raise StaysStale(str(error.args[0]) if error.args else type(error).__name__) from None
    asked = present.asked(chosen[0]["deterministic"]["seed"])
    found: dict[str, Asked] = {
        r["digest"]: {**asked, "digest": present.experiment.digest(r["deterministic"]["seed"])} for r in shipped.records
    }
    behind = 0
    for before, trial in zip(shipped.trials, shipped.now().trials, strict=True):
        try:
            found[before["digest"]] = _Present(cell, grid, shipped, trial, data, store).asked(trial["deterministic"]["seed"], test=False)
        except (RecipeError, DatasetError, KeyError, ValueError):
            behind += 1
    if behind:
        say(
            f"{shipped.cell}: {behind} of {len(shipped.trials)} trials of its search stay behind: the present recipe would not ask for them"
        )
    moved = {digest: now for digest, now in found.items() if now["digest"] != digest}
    if not moved:
        raise StaysStale("its runs are up to date; the recipe asks for others besides, which are not run yet")
    section: Section = {"commit": commit, "recomputed": sorted(recomputed, key=lambda r: r["seed"]), "runs": moved}
    result = shipped.result
    if asked["recipe"] != shipped.now().records[0]["deterministic"]["recipe"]:
        result = {**result, "recipe": present.recipe.model_dump(mode="json", exclude_unset=True, exclude={"search"})}
    carried = replace(shipped, result=result, carried=with_checksum(section))
    return replace(carried, origins=origins_of(cell, carried.now().records, data))


def attest_cells(
    names: Sequence[str],
    grid: Grid,
    runs: int = 1,
    root: Path = ROOT,
    dirty: bool = False,
    beside: Path | None = None,
    older: Path | None = None,
    parts: int | None = None,
) -> bool:
    """`attest` of the stale ones among the named cells and suites, all for no name, each written as soon as it is carried over; a cell that was
    before is computed again where it is named. Says what became of each; whether none is left behind. Raises StoreError where the code is in no
    commit (unless `dirty`)."""
    from stages.measurements import commit

    head = commit()
    if head is None or (head.endswith("-dirty") and not dirty):
        what = "there is no commit to name" if head is None else f"the code differs from commit {head[:12]}"
        remedy = "commit first" if head is None else "commit first, or say --dirty"
        raise StoreError(f"{what}: a mark says by which commit records were carried over; {remedy}")
    counts = {"carried over": 0, "as the present tree computes it": 0, "not carried over": 0}
    for path in shipped_paths(grid, names, root):
        try:
            one = read(path)
            if wrong := problems_of(one, root):
                raise StoreError(wrong[0])
        except StoreError as error:
            print(error)
            counts["not carried over"] += 1
            continue
        state = standing(one, grid)
        if not state.stale and (one.carried is None or not names):
            counts["as the present tree computes it"] += 1
            continue
        try:
            new = attest(one, grid, head, runs, Store(beside) if beside else None, lambda line: print(line, flush=True), older, parts)
        except StaysStale as error:
            print(f"{one.cell}: {'stays stale' if state.stale else 'its mark does not hold here'}: {error}", flush=True)
            counts["not carried over"] += 1
            continue
        if state.stale or _evidence(new) > _evidence(one):
            write(replace(new, path=root / f"{one.cell}.json.gz"))
        left = standing(new, grid).stale
        still = f"; still stale: {', '.join(left)}" if left else ""
        print(f"{one.cell}: {text_of(new.now().records)} by commit {head[:12]}{still}", flush=True)
        counts["carried over"] += 1
    print("; ".join(f"{count} {what}" for what, count in counts.items()))
    return not counts["not carried over"]


def _evidence(shipped: Shipped) -> tuple[int, int]:
    """Of an attestation: runs that were recomputed whole, and all recomputed ones."""
    return sum("parts" not in run for run in shipped.recomputed), len(shipped.recomputed)


def _untouched(shipped: Shipped, grid: Grid, commit: str, older: Path) -> Shipped:
    """The file with an attestation of what its runs did not take. Raises Reached."""
    from stages.datasets.catalog import get_spec

    task = get_spec(grid.find(shipped.cell).dataset).task
    changed, code = unreached(shipped, task, older), code_now(shipped.records[0], task)
    if not changed or code is None or "recipe" in standing(shipped, grid).stale:
        raise Reached("more than code changed")
    now = shipped.now()
    runs = {before["digest"]: asked_with(r, code) for before, r in zip(shipped.records, now.records, strict=True)}
    runs |= {before["digest"]: asked_with(r, code, test=False) for before, r in zip(shipped.trials, now.trials, strict=True)}
    section: Section = {"commit": commit, "recomputed": shipped.recomputed, "unreached": changed, "runs": runs}
    return replace(shipped, carried=with_checksum(section))


def _beside(shipped: Shipped, beside: Store) -> list[Record]:
    """What another store holds of the shipped runs, by the digest under which they were computed or carried over before. Raises StaysStale where
    that is nothing, and where one is not sound."""
    held = {}
    for record, now in zip(shipped.records, shipped.now().records, strict=True):
        for digest in (record["digest"], now["digest"]):
            found = beside.get(digest)
            if found is None or MARK in found:  # carried over is not computed
                continue
            if wrong := record_problems(found):
                raise StaysStale(f"{beside.folder(digest)}/record.json: {wrong[0]}")
            held[record["deterministic"]["seed"]] = found
            break
    if not held:
        raise StaysStale(f"{beside.root} holds none of its runs: train the cell there, with the code that its records are of")
    return list(held.values())


class _Present:
    """What the present tree would run in place of a record. Raises RecipeError, DatasetError or KeyError where it would run nothing."""

    def __init__(self, cell: Cell, grid: Grid, shipped: Shipped, ran: Record, data: Path, store: Store):
        from stages.runs import Experiment, prepare_process

        recipe = recipe_now(shipped, ran["deterministic"]["recipe"], load_recipe(cell.recipe_path), grid, cell)
        if recipe.start:
            raise RecipeError(f"it starts from the weights of {recipe.start.cell}, which records do not hold: train it again")
        self.cell, self.shipped, self.recipe, self.work = cell, shipped, recipe, Store(store.root / "attest")
        path, allocator = str(cell.recipe_path), prepare_process(grid.run)
        self.experiment = Experiment(recipe, path, cell.dataset, grid.run, self.work, data, allocator)

    def recompute(self, before: Record, parts: int | None, say: Callable[[str], None]) -> Recomputed:
        """What the same seed found anew, in so many of its parts. Raises StaysStale, which says where the two first differ."""
        from stages.measurements import device_name

        seed, measured, protocol = before["deterministic"]["seed"], before["measured"], self.protocol
        here = device_name(self.experiment.device)
        if measured["device"] != here:
            raise StaysStale(f"it was computed on {measured['device']}, and here is {here}: no bits to compare")
        some = parts if protocol and parts and parts < protocol.parts else None
        what = f"{some} of its {protocol.parts} {protocol.UNIT}; all took " if protocol and some else ""
        say(f"{self.cell.cell}: seed {seed} is computed again ({what}{measured['seconds']:.1f} s when it was first computed)")
        now, _ = (self._of_parts(some) if some else self.experiment).run(seed)
        shutil.rmtree(self.work.folder(now["digest"]))
        places = _places(before, now, some) if some else None
        if places is None and content_digest(now) != content_digest(before):
            raise StaysStale(f"seed {seed}: {first_difference(before, now)}{_behind(measured, now['measured'])}")
        found: Recomputed = {"seed": seed, "sha256": content_digest(before, places)}
        if places is not None:
            found["parts"] = places
        if found["sha256"] != next(content_digest(r, places) for r in self.shipped.records if r["deterministic"]["seed"] == seed):
            found["cpu"] = now["measured"]["environment"]["cpu"]
        return found

    @property
    def protocol(self) -> Protocol | None:
        """Of its task, if that has one of several parts."""
        return self.recipe.protocol

    def _of_parts(self, count: int) -> "Experiment":
        """The same of so many of its parts."""
        assert self.protocol is not None
        return replace(self.experiment, recipe=self.recipe.with_protocol(self.protocol.only(count)))

    def asked(self, seed: int, test: bool = True) -> Asked:
        """Digest, recipe and digests of a run as the present tree would ask for it; of a search's trial, which is not tested, without `test`."""
        one = self.experiment
        recipe = one.decisive(seed)
        digests: Digests = {"recipe": digest_of(recipe), "data": one.packed.digest, "encodings": one.encoded.digest, "code": one.code}
        return {"digest": one.digest(seed, test=test), "recipe": recipe, "digests": digests}


def _places(before: Record, now: Record, count: int) -> list[int]:
    """The place in a run's curves of each part of `now`, a run of `count` of its parts. Raises StaysStale where it found a part otherwise, or not all."""
    seed, found = before["deterministic"]["seed"], now["deterministic"]
    if differ := _differs_before_parts(before, now):
        raise StaysStale(f"seed {seed}: {differ}")
    if found["status"] != "ok" or len(found["epochs"]["epoch"]) != count:
        raise StaysStale(f"seed {seed}: {found['status']} after {len(found['epochs']['epoch'])} of {count} parts: {found['error']}")
    held = {json.dumps(part_of(before, place)): place for place in range(len(before["deterministic"]["epochs"]["epoch"]))}
    places = []
    for n in range(count):
        part = part_of(now, n)
        place = held.get(json.dumps(part))  # bit for bit, and NaN equals NaN
        if place is None:
            nearest = max(held, key=lambda text: sum(json.loads(text)[name] == value for name, value in part.items()))
            differ = next(d for name, value in part.items() if (d := _differ(name, json.loads(nearest)[name], value)))
            at = held[nearest] + 1
            raise StaysStale(f"seed {seed}: part {at}: {differ}{_behind(before['measured'], now['measured'])}")
        places.append(place)
    return places


def _differs_before_parts(before: Record, now: Record) -> str | None:
    a, b = dict(before["deterministic"]), dict(now["deterministic"])
    return next((differ for key in BEFORE_PARTS if (differ := _differ(key, a[key], b[key]))), None)


def first_difference(before: Record, now: Record) -> str:
    """The first quantity in which two runs differ, in the order in which a run finds them, and by how much."""
    a, b = before["deterministic"], now["deterministic"]
    for key in ("dataset", "metric", "direction", "split", "parameters"):
        if differ := _differ(key, a[key], b[key]):
            return differ
    if a["epochs"].keys() != b["epochs"].keys():
        return _differ("its curves", sorted(a["epochs"]), sorted(b["epochs"])) or "its curves"
    for n in range(min(len(a["epochs"]["epoch"]), len(b["epochs"]["epoch"]))):
        for name, curve in a["epochs"].items():
            if differ := _differ(f"{name} of epoch {a['epochs']['epoch'][n]}", curve[n], b["epochs"][name][n]):
                return differ
    found: list[tuple[str, object, object]] = [("the number of epochs", len(a["epochs"]["epoch"]), len(b["epochs"]["epoch"]))]
    found += [(key, a[key], b[key]) for key in ("status", "error", "best_epoch", "val", "test")]
    names = sorted({*a["test_metrics"], *b["test_metrics"]})
    found += [(f"{name} on the test split", a["test_metrics"].get(name), b["test_metrics"].get(name)) for name in names]
    return next((differ for one in found if (differ := _differ(*one))), "what is recorded of a run")


def _differ(what: str, before: object, now: object) -> str | None:
    if json.dumps(before) == json.dumps(now):  # bit for bit, and NaN equals NaN
        return None
    by = f" (by {abs(now - before):.3g})" if isinstance(before, int | float) and isinstance(now, int | float) else ""
    return f"{what} differs first: {before} before, {now} now{by}"


def _behind(before: Measured, now: Measured) -> str:
    """What of the machine or its packages is another one, where both records say it."""
    was, there = ({"threads": m.get("threads"), **{k: m["environment"].get(k) for k in BEHIND}} for m in (before, now))
    changed = [f"{k} {was[k]} before, {there[k]} now" for k in was if None not in (was[k], there[k]) and was[k] != there[k]]
    return f" (also: {'; '.join(changed)})" if changed else ""
