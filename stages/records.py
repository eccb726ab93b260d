"""Records that travel: what real cells left behind, one compressed file per cell, shipped with the repository.

    records/<suite>/<dataset>/<row>.json.gz    {"schema", "result", "records", "trials", "origins"}; equal records give equal bytes

`trials` are the runs of a cell's search: where they were imported, the search finds its way again without training.
`origins` are digests that can be compared where the data are not at hand: of the dataset's spec and of each encoding's algorithm.
"""

import gzip
import hashlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.files import write_bytes
from stages.params import Cell, Grid, Limits
from stages.recipe import Choice, Recipe, digest_of, load_recipe
from stages.schema import RecipeError
from stages.store import FINAL, SCHEMA, Store, StoreError, run_digest

ROOT = Path("records")
ABSENT = "no shipped record"  # status of a row of the board
STATUSES = (*FINAL, "oom", "timed-out")
RESULT_KEYS = ("cell", "suite", "dataset", "model", "status", "runs", "seeds", "recipe", "reduced")
RUN_KEYS = (
    "status", "error", "seed", "split", "recipe", "digests", "dataset", "metric", "direction", "parameters", "epochs", "best_epoch",
    "val", "test", "test_metrics",
)  # fmt: skip
MEASURED_KEYS = (
    "started",
    "finished",
    "seconds",
    "train_seconds_per_epoch",
    "eval_seconds_per_epoch",
    "peak_memory_mib",
    "device",
    "environment",
)


class Conflict(StoreError):
    """Two records claim the same run and differ."""


@dataclass(frozen=True)
class Shipped:
    """One file: a cell's result, its records in the order of `result["runs"]`, those of its search, and where data and encodings came from."""

    path: Path
    result: dict[str, Any]
    records: list[dict[str, Any]]
    origins: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cell(self) -> str:
        return self.result["cell"]


def chosen_cells(grid: Grid, names: Sequence[str]) -> list[Cell]:
    """The cells that names of suites and cells mean; all for no name. Raises RecipeError with the nearest name."""
    if not names:
        return list(grid.cells.values())
    found: dict[str, Cell] = {}
    for name in names:
        whole_suite = name in grid.suites or ("/" not in name and name not in grid.cells)
        found |= {cell.key: cell for cell in (grid.suite(name) if whole_suite else [grid.find(name)])}
    return list(found.values())


# -- export ------------------------------------------------------------------------------------------------------------------------------


def export_cell(
    cell: Cell,
    root: Path = ROOT,
    store: Store | None = None,
    results: Path = Path("results"),
    data: Path = Path("data"),
    replace: bool = False,
) -> Path | None:
    """Writes records/<cell>.json.gz; None where the cell has no run. Raises StoreError where a record is missing or not sound, and where a
    reduced cell would take the place of a full one (unless `replace`)."""
    store = store or Store()
    source = results / f"{cell.cell}.json"
    try:
        result = json.loads(source.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{source}: not a result ({error}); delete it and run: python -m stages.train {cell.cell}") from None
    if not result.get("runs"):
        return None
    records = []
    for digest in result["runs"]:
        record = store.get(digest)
        if record is None:
            raise StoreError(f"{store.folder(digest)}/record.json is missing; `python -m stages.train {cell.cell}` makes it again")
        records.append(record)
    path = root / f"{cell.cell}.json.gz"
    shipped = Shipped(path, result, records, _origins(cell, result, records, data), _trials(cell, records, store))
    wrong = problems_of(shipped, root)
    if wrong:
        raise StoreError("\n".join([f"{cell.cell} is not exported:", *wrong]))
    if path.exists() and not replace and result["reduced"] and not (old := read(path)).result["reduced"]:
        raise StoreError(
            f"{path} holds {len(old.records)} runs at full settings, and this cell is reduced ({', '.join(result['reduced'])}): --replace puts it in its place"
        )
    content = {"schema": SCHEMA, "result": result, "origins": shipped.origins, "records": records, "trials": shipped.trials}
    return write_bytes(path, _pack(content))


def _trials(cell: Cell, records: list[dict[str, Any]], store: Store) -> list[dict[str, Any]]:
    """The store's runs of the search that this cell's recipe asks for, on the data and with the code of its records, by digest."""
    recipe, ran = load_recipe(cell.recipe_path), records[0]["deterministic"]
    if recipe.search is None:
        return []
    found = []
    for path in sorted(store.root.glob("??/*/record.json")):
        trial = store.get(path.parent.name)
        run = trial["deterministic"]
        if not is_trial(trial) or any(run["digests"][k] != ran["digests"][k] for k in ("data", "code")):
            continue
        try:
            asked = recipe.with_values(_searched_values(recipe, run["recipe"])).decisive()
        except (RecipeError, KeyError):
            continue
        if asked | {k: ran["recipe"][k] for k in ("epochs", "phases") if k in ran["recipe"]} == run["recipe"]:
            found.append(trial)
    return found


def is_trial(record: dict[str, Any]) -> bool:
    """Whether a record is a search's run, which never read the test split."""
    run = record["deterministic"]
    digests = run["digests"]
    return record["digest"] == run_digest(
        run["recipe"], run["seed"], run["split"], digests["data"], digests["encodings"], digests["code"], test=False
    )


def _pack(content: Any) -> bytes:
    # GzipFile without name and time: the same bytes from every Python, whatever the clock says
    file = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
        packed.write((json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=True) + "\n").encode())
    return file.getvalue()


def read(path: Path) -> Shipped:
    """Raises StoreError for a file that cannot be read."""
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this code reads {SCHEMA}")
        return Shipped(path, dict(content["result"]), list(content["records"]), dict(content["origins"]), list(content["trials"]))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not an export of records ({error}); get the file again (`git checkout {path}`)") from None


def shipped_cells(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> Iterator[Shipped]:
    """The files of these suites and cells (all files for no name), in order of the path."""
    if not names:
        yield from (read(path) for path in sorted(root.glob("*/*/*.json.gz")))
        return
    for cell in chosen_cells(grid, names):
        path = root / f"{cell.cell}.json.gz"
        if path.exists():
            yield read(path)


# -- import ------------------------------------------------------------------------------------------------------------------------------


def import_records(shipped: Sequence[Shipped], store: Store | None = None, root: Path = ROOT) -> tuple[int, int]:
    """Puts records into the store; returns (new, there already). All are checked first: where one is unsound or contradicts the store,
    nothing is written. A record that differs only in what was measured is there already, and the store's own stays.

    Raises StoreError, Conflict.
    """
    store = store or Store()
    wrong = [line for one in shipped for line in problems_of(one, root)]
    if wrong:
        raise StoreError("\n".join(["nothing is imported:", *wrong]))
    new, conflicts, there = {}, [], set()
    for one in shipped:
        for record in (*one.records, *one.trials):
            digest, held = record["digest"], store.get(record["digest"])
            if held is None:
                new[digest] = record
                continue
            there.add(digest)
            differing = differences(held, record)
            if differing:
                conflicts.append(
                    f"{store.folder(digest)}/record.json and {one.path} (seed {record['deterministic']['seed']}) are of the same run and differ in {differing}"
                )
    if conflicts:
        remedy = "Nothing is imported. Keep one: delete the store's record (then import again) or leave that cell out."
        raise Conflict("\n".join([*conflicts, remedy]))
    for digest, record in new.items():
        with store.lock(digest):
            store.put(record)
    return len(new), len(there)


def differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Keys of the deterministic part in which two records differ, as text; empty where they agree (NaN equals NaN)."""
    a, b = one["deterministic"], other["deterministic"]
    return ", ".join(k for k in sorted({*a, *b}) if json.dumps(a.get(k), sort_keys=True) != json.dumps(b.get(k), sort_keys=True))


# -- verify ------------------------------------------------------------------------------------------------------------------------------


def record_problems(record: Any) -> list[str]:
    """What is wrong with one record by itself: shape, completeness, and whether its digest is the one its contents give."""
    if not isinstance(record, dict):
        return ["is no record"]
    run, measured = record.get("deterministic"), record.get("measured")
    lacking = [k for k in ("digest", "deterministic", "measured") if k not in record]
    for part, keys in ((run, RUN_KEYS), (measured, MEASURED_KEYS)):
        lacking += [k for k in keys if not isinstance(part, dict) or k not in part]
    if record.get("schema") != SCHEMA:
        return [f"schema {record.get('schema')!r}, this code reads {SCHEMA}"]
    if lacking:
        return [f"lacks {', '.join(dict.fromkeys(lacking))}"]
    wrong, digests = [], run["digests"]
    absent = [k for k in ("recipe", "data", "encodings", "code") if k not in digests]
    if absent:
        return [f"lacks the digest of {', '.join(absent)}"]
    key = (run["recipe"], run["seed"], run["split"], digests["data"], digests["encodings"], digests["code"])
    trial = is_trial(record)
    if not trial and run_digest(*key) != record["digest"]:
        wrong.append(f"its contents give the digest {run_digest(*key)}, not {record['digest']}")
    if digest_of(run["recipe"]) != digests["recipe"]:
        wrong.append("its recipe does not have the digest that it names")
    if run["status"] not in STATUSES:
        wrong.append(f"unknown status {run['status']!r}")
    lengths = {len(curve) for curve in run["epochs"].values()}
    if len(lengths) > 1:
        wrong.append(f"its curves have {', '.join(map(str, sorted(lengths)))} epochs")
    if run["status"] == "ok" and not trial and not isinstance(run["test"], int | float):
        wrong.append("status ok without a test value")
    if trial and run["test"] is not None:
        wrong.append("a search trial with a test value")
    return wrong


def problems_of(shipped: Shipped, root: Path = ROOT) -> list[str]:
    """What is wrong with one file: its records, their order and number, its name; one line each."""
    result, where = shipped.result, shipped.path
    lacking = [k for k in RESULT_KEYS if k not in result]
    if lacking:
        return [f"{where}: its result lacks {', '.join(lacking)}"]
    parts = (("record", shipped.records), ("trial", shipped.trials))
    wrong = [f"{where}: {what} {n}: {line}" for what, held in parts for n, record in enumerate(held) for line in record_problems(record)]
    if wrong:
        return wrong
    wrong = [f"{where}: record {n}: is a search trial" for n, record in enumerate(shipped.records) if is_trial(record)]
    wrong += [f"{where}: trial {n}: is no search trial" for n, record in enumerate(shipped.trials) if not is_trial(record)]
    digests = [r["digest"] for r in shipped.records]
    seeds = [r["deterministic"]["seed"] for r in shipped.records]
    if where != root / f"{result['cell']}.json.gz":
        wrong.append(f"{where}: is the file of {result['cell']}")
    if digests != list(result["runs"]):
        wrong.append(f"{where}: its records are not the runs that its result names")
    repeated = sorted({s for s in seeds if seeds.count(s) > 1})
    if repeated or len(set(digests)) < len(digests):
        wrong.append(f"{where}: seed {', '.join(map(str, repeated))} stands twice")
    if any(r["deterministic"]["dataset"] != result["dataset"] for r in (*shipped.records, *shipped.trials)):
        wrong.append(f"{where}: a record is of another dataset")
    return wrong


def verify(shipped: Sequence[Shipped], store: Store | None = None, root: Path = ROOT) -> list[str]:
    """Checks every shipped file and every record of the store again; one line for each thing that is wrong."""
    wrong, seen = [], {}
    for one in shipped:
        found = problems_of(one, root)
        wrong += found
        for record in (*one.records, *one.trials) if not found else ():
            # two cells may share a run, but not disagree on it
            other = seen.setdefault(record["digest"], (one.path, record))
            if differing := differences(other[1], record):
                wrong.append(f"{one.path} and {other[0]} hold different records of one run (they differ in {differing})")
    store = store or Store()
    for path in sorted(store.root.glob("??/*/record.json")):
        try:
            record = store.get(path.parent.name)
        except StoreError as error:
            wrong.append(str(error))
            continue
        wrong += [f"{path}: {line}" for line in record_problems(record)]
    return wrong


# -- stale -------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How a shipped cell stands to the present tree: `stale` names what would be computed differently now, `unknown` what cannot be told."""

    stale: list[str]
    unknown: list[str]

    @property
    def text(self) -> str:
        parts = [f"stale: {', '.join(self.stale)}"] if self.stale else []
        return (
            "; ".join(parts + ([f"cannot be told: {', '.join(self.unknown)}"] if self.unknown else [])) or "as the present tree computes it"
        )


def standing(shipped: Shipped, grid: Grid, data: Path = Path("data")) -> Standing:
    """Compares recipe, code, data and encodings of the shipped records with the present tree. Code needs no data; data and encodings are
    compared with what is on disk, else with the spec and the algorithms they were made by."""
    from stages.datasets.catalog import get_spec
    from stages.datasets.inspection import DatasetError
    from stages.fingerprint import code_digest, run_modules

    try:
        cell = grid.find(shipped.cell)
        spec = get_spec(cell.dataset)
    except (RecipeError, DatasetError):
        return Standing(["no such cell any more"], [])
    recipe = load_recipe(cell.recipe_path)
    stale, unknown = [], []
    runs = [r["deterministic"] for r in shipped.records]
    if _recipe_changed(shipped, recipe, grid, cell):
        stale.append("recipe")
    try:
        ran = runs[0]["recipe"]
        code = code_digest(run_modules(ran["model"]["name"], spec.task, ran))
    except (KeyError, ModuleNotFoundError):
        code = None
    if {r["digests"]["code"] for r in runs} != {code}:
        stale.append("code")
    if "start" in runs[0]["recipe"]:
        unknown.append("the run that it starts from")
    on_disk = (data / "packed" / cell.dataset / "header.json").exists()
    for what, now in (("data", _data_now(cell, shipped, spec, data)), ("encodings", _encodings_now(cell, shipped, data))):
        if now is None:
            unknown.append(f"{what} ({'made by other code' if on_disk else 'not at hand'})")
        elif {r["digests"][what] for r in runs} != {now}:
            stale.append(what)
    return Standing(stale, unknown)


def _recipe_changed(shipped: Shipped, recipe: Recipe, grid: Grid, cell: Cell) -> bool:
    from stages.train import limited

    result, ran = shipped.result, shipped.records[0]["deterministic"]["recipe"]
    cuts = [re.fullmatch(r"(\d+) of \d+ (epochs|seeds|pairs)", line) for line in result["reduced"]]
    cut = {m[2]: int(m[1]) for m in cuts if m}
    limits = {cell.key: Limits(**cut)} if cut else {}
    if recipe.search is not None:
        try:
            recipe = recipe.with_values(_searched_values(recipe, ran))
        except (RecipeError, KeyError):
            return True
    now, _ = limited(recipe, grid.model_copy(update={"limits": limits}), cell)
    return _without_source(now.decisive()) != _without_source(ran) or list(now.seeds) != list(result["seeds"])


def _without_source(decisive: dict[str, Any]) -> dict[str, Any]:
    """A run names the run that it starts from, a recipe the cell: what both say is how its weights are taken."""
    start = decisive.get("start")
    return decisive if start is None else decisive | {"start": start["load"]}


def _searched_values(recipe: Recipe, ran: dict[str, Any]) -> dict[str, Any]:
    """What the search chose, read from the recipe that ran. Raises KeyError for a value that the space no longer holds."""
    values = {}
    for key, space in recipe.search.space.items():
        value: Any = ran
        for part in key.split("."):
            value = value[part]
        if (value not in space.choices) if isinstance(space, Choice) else not space.low <= value <= space.high:
            raise KeyError(key)
        values[key] = value
    return values


def _data_now(cell: Cell, shipped: Shipped, spec: Any, data: Path) -> str | None:
    """Digest of the dataset as this tree would have it; None where that cannot be told."""
    from stages.datasets.prepare import valid

    header = valid(spec, data / "packed" / cell.dataset)
    if header is not None:
        return header.digest
    return shipped.origins.get("data") if shipped.origins.get("spec") == spec.digest else None


def _encodings_now(cell: Cell, shipped: Shipped, data: Path) -> str | None:
    from stages.datasets.inspection import DatasetError

    requests = shipped.records[0]["deterministic"]["recipe"].get("encodings") or {}
    if not requests:
        return hashlib.sha256(b"{}").hexdigest()
    from stages.datasets.encoded import EncodedDataset
    from stages.datasets.packed import PackedDataset

    try:
        return EncodedDataset(PackedDataset.open(data / "packed" / cell.dataset), data / "encodings" / cell.dataset, requests).digest
    except (DatasetError, ValueError):
        pass
    return shipped.origins.get("encodings") if shipped.origins.get("algorithms") == _algorithms(requests) else None


def _algorithms(requests: dict[str, dict[str, Any]]) -> dict[str, str] | None:
    from gt_models.encodings import EncodingError
    from stages.datasets.encoded import algorithm_digest

    try:
        return {name: algorithm_digest(name, arguments or {}) for name, arguments in requests.items()}
    except EncodingError:
        return None


def _origins(cell: Cell, result: dict[str, Any], records: list[dict[str, Any]], data: Path) -> dict[str, Any]:
    """What the records' data and encodings were made from, noted only where what is on disk now is what the records name."""
    from stages.datasets.catalog import get_spec
    from stages.datasets.prepare import valid

    origins: dict[str, Any] = {}
    digests = [r["deterministic"]["digests"] for r in records]
    bare = Shipped(Path(), result, records)
    spec = get_spec(cell.dataset)
    header = valid(spec, data / "packed" / cell.dataset)
    if header is not None and {d["data"] for d in digests} == {header.digest}:
        origins |= {"data": header.digest, "spec": spec.digest}
        requests = records[0]["deterministic"]["recipe"].get("encodings") or {}
        encodings = _encodings_now(cell, bare, data)
        if requests and {d["encodings"] for d in digests} == {encodings}:
            origins |= {"encodings": encodings, "algorithms": _algorithms(requests)}
    return origins


# -- the board ---------------------------------------------------------------------------------------------------------------------------


def board(suite: str, grid: Grid, root: Path = ROOT, data: Path = Path("data")) -> list[dict[str, Any]]:
    """The leaderboard's rows of a suite from shipped records alone; a stale row says what changed since. Raises StoreError, RecipeError."""
    from stages.leaderboard import collect

    cells = grid.suite(suite)
    shipped = {one.cell: one for one in shipped_cells(grid, [suite], root)}
    wrong = [line for one in shipped.values() for line in problems_of(one, root)]
    if wrong:
        raise StoreError("\n".join(wrong))
    folder = Path(tempfile.mkdtemp(prefix="gt-board-"))
    try:
        for one in shipped.values():
            _unpack(one, folder)
        rows, _, _ = collect(cells, folder / "results", Store(folder / "store"), grid.run.margin_std)
    finally:
        shutil.rmtree(folder)
    for row in rows:
        one = shipped.get(row["cell"])
        if one is None:
            row["status"] = ABSENT
            continue
        where, state = one.records[0]["measured"]["environment"], standing(one, grid, data)
        if state.stale:
            row["status"] += f", stale: {', '.join(state.stale)}"
        row["notes"] = [*row["notes"], f"shipped record of commit {(where.get('commit') or 'unknown')[:12]}: {state.text}"]
    return rows


def _unpack(shipped: Shipped, folder: Path) -> None:
    contents = {folder / "results" / f"{shipped.cell}.json": shipped.result}
    contents |= {Store(folder / "store").folder(r["digest"]) / "record.json": r for r in shipped.records}
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
