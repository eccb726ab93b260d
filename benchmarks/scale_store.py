"""Cost of the run store and of MLflow as they grow: records made from shipped ones, in a new folder (docs/scale.md).

    python benchmarks/scale_store.py store --records 1000 10000 [--before CHECKOUT] [--keep]
    python benchmarks/scale_store.py tracking --runs 1000 10000 [--uri postgresql+psycopg://user@host/name] [--before
    CHECKOUT] [--keep]

Store: the shipped cells with RUNS runs of the present attempt between them (about what the grid has); the rest is half
earlier attempts at the same cells, half trials. Seconds are of the processor, of a command in a process that has
imported what it needs. Tracking: one suite's runs as the leaderboard writes them, and copies of their rows under other
cells. With --before the code of another checkout is measured too, in turn. --keep adds what was found to
docs/scale.json.

Prints: a line for each command and size: seconds, MiB and bytes.
Takes: a minute for 1,000 records or runs, more as they grow.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.cells import ROOT, number
from benchmarks.command import parser_of
from gt_bench.config.grid import load_grid
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import Shipped, shipped_cells
from gt_bench.utils.io import write_json

KEPT = ROOT / "docs" / "scale.json"
RUNS = 2_000  # of present attempts
SEED = 918273645  # placeholder in a template record: each copy has a seed of its own
SUITE, CELL = "edge-transformer", "edge-transformer/texas/gcn"
TRACKED_SUITE, TRACKED_CELL = "hot", "hot/chains/gcn"
COMMANDS = {
    "gt-bench list": ("list",),
    "gt-bench history CELL": ("history", CELL),
    "gt-bench board texas": ("board", "texas"),
    "gt-bench page": ("page",),
    "gt-bench store export, all cells": ("store", "export", "--records", "out", "--replace", "--dirty"),
    "gt-bench store verify": ("store", "verify"),
}
LISTED = "the digests of all records"
LINEAR = (
    "gt-bench store verify",
    "gt-bench store export, all cells",
    LISTED,
)  # look at every record; the others at those of present attempts
MENDED, MOST_BEFORE = ("gt-bench store export, all cells", "gt-bench store verify"), 10_000  # what --before measures
# run by a process of its own, with the code of a checkout: each command's seconds of the processor, without the import
# of what it needs
WORKER = """
import json, os, resource, sys, time
code, commands = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, code)
from typer.testing import CliRunner
from gt_bench.cli import app
import gt_bench.experiment.run, gt_bench.reports.html.build, gt_bench.provenance.transfer  # what several of them import
runner = CliRunner()
for name, arguments in commands.items():
    start, began = time.process_time(), time.monotonic()
    result = runner.invoke(app, arguments)
    took, clock = time.process_time() - start, time.monotonic() - began
    if result.exit_code:
        raise SystemExit(f"{arguments}: {result.exception} {result.output[-2000:]}")
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"command": name, "seconds": took, "clock": clock, "mib": mib}), flush=True)
"""


# -- records -----------------------------------------------------------------------------------------------------------


class Form:
    """A record as text that gets another seed, with the digests and the checksum that this gives it."""

    def __init__(self, record: dict[str, Any], trial: bool = False):
        run = record["deterministic"] | {"seed": SEED}
        if trial:
            run |= {"test": None, "test_metrics": {}}
        digests = {key: value for key, value in run["digests"].items() if key != "recipe"}
        key = {"recipe": run["recipe"], "seed": SEED, "split": run["split"], "versions": run["versions"], **digests}
        key |= {"test": False} if trial else {}
        self.key, self.content = (_canonical(what) for what in (key, run))
        self.text = (
            json.dumps({**record, "digest": "the digest", "deterministic": run, "checksum": "the checksum"}, indent=1)
            + "\n"
        )

    def made(self, seed: int) -> tuple[str, str]:
        """(digest, the file)."""
        digest, checksum = (
            hashlib.sha256(text.replace(str(SEED), str(seed)).encode()).hexdigest() for text in (self.key, self.content)
        )
        text = (
            self.text.replace(str(SEED), str(seed))
            .replace("the digest", digest, 1)
            .replace("the checksum", checksum, 1)
        )
        return digest, text


def _canonical(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def put(store: Path, form: Form, seed: int) -> str:
    digest, text = form.made(seed)
    folder = store / digest[:2] / digest
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(text)
    (folder / "lock").touch()
    return digest


def make(root: Path, total: int, current: int) -> int:
    """A project below `root` whose store has `total` records, `current` of current attempts; returns their number."""
    for name in ("suites", "params.yaml", "grid.yaml"):
        if not (root / name).exists():
            (root / name).symlink_to(ROOT / name)
    shipped = list(shipped_cells(load_grid(ROOT / "params.yaml"), root=ROOT / "suites"))
    runs = {one.cell: [Form(record.to_disk()) for record in one.records] for one in shipped}
    trials = {
        one.cell: [Form(record.to_disk(), trial=True) for record in one.records if record.run.status == "ok"]
        for one in shipped
    }
    store, made, seed = root / "store", 0, 1000

    def attempt(one: Shipped, size: int) -> dict[str, Any]:
        nonlocal made, seed
        forms = runs[one.cell]
        digests = [put(store, forms[index % len(forms)], seed + index) for index in range(size)]
        made, seed = made + size, seed + size
        return one.result.to_disk() | {"runs": digests, "seeds": list(range(seed - size, seed)), "reduced": []}

    each = max(1, current // len(shipped))
    present = [attempt(one, each) for one in shipped]
    older: dict[str, list[str]] = {one.cell: [] for one in shipped}
    while made < total:
        for one in shipped:
            older[one.cell].append(json.dumps(attempt(one, len(runs[one.cell]))))
            for index, form in enumerate(trials[one.cell]):
                put(store, form, 10**7 + seed + index)
                made += 1
            if made >= total:
                break
    for result in present:
        write_json(root / "results" / f"{result['cell']}.json", result)
        path = store / "cells" / f"{result['cell']}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*older[result["cell"]], json.dumps(result)]) + "\n")
    return made


# -- commands ----------------------------------------------------------------------------------------------------------


def timed(commands: dict[str, Sequence[str]], root: Path, code: Path = ROOT) -> Iterator[dict[str, Any]]:
    """Seconds and MiB of commands in the project at `root`, in one process that runs the code of a checkout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", WORKER, str(code), json.dumps(commands)]
    with subprocess.Popen(arguments, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(process.returncode)


def stores(counts: Sequence[int], before: Path | None, folder: Path) -> Iterator[dict[str, Any]]:
    for total in counts:
        root = folder / str(total)
        root.mkdir(parents=True)
        start = time.monotonic()
        made = make(root, total, min(total, RUNS))
        print(f"{made:,} records in {time.monotonic() - start:.0f} s", flush=True)
        older = {}
        if before is not None and total <= MOST_BEFORE:
            older = {
                row["command"]: row["seconds"] for row in timed({name: COMMANDS[name] for name in MENDED}, root, before)
            }
        for row in timed(COMMANDS, root):
            more = {"before": older[row["command"]]} if row["command"] in older else {}
            if row["command"] == "gt-bench page":
                more["megabytes"] = (root / "reports" / "index.html").stat().st_size / 1e6
            yield {"records": total} | row | more
        yield {"records": total} | listed(root / "store")
        shutil.rmtree(root)


def listed(store: Path) -> dict[str, Any]:
    """Seconds until the digests are known, and those of a sorted glob."""
    start = time.process_time()
    count = sum(1 for _ in Store(store).digests())
    took = time.process_time() - start
    start = time.process_time()
    assert len(sorted(store.glob("??/*/record.json"))) == count
    return {"command": LISTED, "seconds": took, "clock": took, "mib": None, "before": time.process_time() - start}


def store_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line per command: processor time by the number of records, extrapolated."""
    counts = sorted({row["records"] for row in rows})
    columns = (
        "command",
        *(f"{n:,} records" for n in counts),
        "10^6, extrapolated in a straight line",
        "largest memory",
        "before / after",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for command in dict.fromkeys(row["command"] for row in rows):
        by = {row["records"]: row for row in rows if row["command"] == command}
        first, last = by[min(by)], by[max(by)]
        each = (last["seconds"] - first["seconds"]) / max(1, last["records"] - first["records"])
        million = (
            number(last["seconds"] + each * (10**6 - last["records"]))
            if command in LINEAR and last is not first
            else ""
        )
        memory = (
            ""
            if last["mib"] is None
            else f"{last['mib']:,.0f} MiB" + (f", {last['megabytes']:.0f} MB written" if "megabytes" in last else "")
        )
        compared = next((by[n] for n in sorted(by, reverse=True) if by[n].get("before")), None)
        ratio = f"{number(compared['before'] / compared['seconds'])} at {compared['records']:,}" if compared else ""
        lines.append(
            f"| {command} | {' | '.join(number(by[n]['seconds']) if n in by else '' for n in counts)} | {million} | "
            f"{memory} | {ratio} |"
        )
    return lines


# -- MLflow ------------------------------------------------------------------------------------------------------------

TRACKER = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1])
from gt_bench.store.shipped_files import shipped_cells
from gt_bench.config.grid import load_grid
from gt_bench.tracking.uri import tracking_uri
from gt_bench.tracking.sync import complete
from gt_bench.tracking.mirror import Mirror
from mlflow import MlflowClient
shipped = list(shipped_cells(load_grid(), ["SUITE"]))
results, records = [one.result for one in shipped], {r.digest: r for one in shipped for r in one.records}
state = {}
def fill():
    complete("SUITE", results, records, only=True)
def open_():
    state["mirror"] = Mirror(tracking_uri(), "SUITE")
def look():
    for number in range(200):
        state["mirror"].find("run", "CELL", str(number))
def first_page():
    client = MlflowClient(tracking_uri=tracking_uri())
    ids = [client.get_experiment_by_name("SUITE").experiment_id]
    client.search_runs(ids, max_results=100, order_by=["attributes.start_time DESC"])
def of_cell():
    client = MlflowClient(tracking_uri=tracking_uri())
    wanted = "tags.`gt.cell` = 'CELL' and tags.`gt.current` = 'true'"
    client.search_runs([client.get_experiment_by_name("SUITE").experiment_id], wanted, max_results=100)
for name in json.loads(sys.argv[2]):
    start, began = time.process_time(), time.monotonic()
    globals()[name]()
    took, clock = time.process_time() - start, time.monotonic() - began
    mib, tracked = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(records) + len(results)
    print(json.dumps({"command": name, "seconds": took, "clock": clock, "mib": mib, "tracked": tracked}), flush=True)
"""
TRACKED = {
    "open_": "open the experiment, as every completion does",
    "look": "look for 200 runs in it",
    "fill": "complete a suite that is complete",
    "first_page": "the first 100 runs by start, as the UI asks",
    "of_cell": "the runs of one cell",
}


def trackings(counts: Sequence[int], uri: str | None, before: Path | None, folder: Path) -> Iterator[dict[str, Any]]:
    root = folder / "tracking"
    root.mkdir(parents=True)
    for name in ("suites", "params.yaml", "grid.yaml"):
        (root / name).symlink_to(ROOT / name)
    uri = uri or f"sqlite:///{root}/mlflow.db"
    kind = uri.partition(":")[0].partition("+")[0]

    def asked(names: Sequence[str], code: Path = ROOT) -> Iterator[dict[str, Any]]:
        script = TRACKER.replace("SUITE", TRACKED_SUITE).replace("CELL", TRACKED_CELL)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "OMP_NUM_THREADS": "1",
            "MLFLOW_TRACKING_URI": uri,
        }
        arguments = [sys.executable, "-c", script, str(code), json.dumps(names)]
        with subprocess.Popen(arguments, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
            yield from map(json.loads, process.stdout)
        if process.returncode:
            raise SystemExit(process.returncode)

    (filled,) = asked(["fill"])
    yield (
        {"kind": kind, "runs": clone(uri, 0)}
        | filled
        | {"command": f"fill an empty experiment with {filled['tracked']} runs"}
    )
    for total in counts:
        held = clone(uri, total)
        older = {} if before is None else {row["command"]: row["seconds"] for row in asked(["open_", "look"], before)}
        for row in asked(list(TRACKED)):
            more = {"before": older[row["command"]]} if row["command"] == "look" and older else {}
            yield {"kind": kind, "runs": held} | row | {"command": TRACKED[row["command"]]} | more


def clone(uri: str, total: int) -> int:
    """Copies rows of the first runs, under other ids and cells, until there are `total`; returns their number."""
    from sqlalchemy import create_engine, inspect, text

    engine = create_engine(uri)
    columns = {
        table: [c["name"] for c in inspect(engine).get_columns(table)]
        for table in ("runs", "params", "tags", "metrics", "latest_metrics")
    }
    with engine.begin() as connection:
        held = connection.execute(text("SELECT count(*) FROM runs")).scalar()
        connection.execute(text("CREATE TABLE IF NOT EXISTS first_runs AS SELECT run_uuid FROM runs"))
        first = connection.execute(text("SELECT count(*) FROM first_runs")).scalar()
        copies = held // max(1, first)
        while held < total:
            ident = f"'c{copies:05d}' || substr(run_uuid, 7)"
            for table, names in columns.items():
                chosen = [ident if name == "run_uuid" else name for name in names]
                if table == "tags":
                    chosen[names.index("value")] = (
                        f"CASE WHEN key = 'gt.cell' THEN value || '-{copies}' WHEN key = 'mlflow.parentRunId' THEN "
                        f"'c{copies:05d}' || substr(value, 7) ELSE value END"
                    )
                quoted = ", ".join(names)
                connection.execute(
                    text(
                        f"INSERT INTO {table} ({quoted}) SELECT {', '.join(chosen)} FROM {table} WHERE run_uuid IN "
                        "(SELECT run_uuid FROM first_runs)"
                    )
                )
            copies += 1
            held += first
    engine.dispose()
    return held


def tracking_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        counts = sorted({row["runs"] for row in mine})
        lines += [
            f"On {kind}, runs in one experiment:",
            "",
            f"| processor time in s | {' | '.join(f'{n:,}' for n in counts)} | largest memory | before / after |",
        ]
        lines.append("|---" * (len(counts) + 3) + "|")
        for command in dict.fromkeys(row["command"] for row in mine):
            by = {row["runs"]: row for row in mine if row["command"] == command}
            last = by[max(by)]
            ratio = f"{number(last['before'] / last['seconds'])} at {last['runs']:,}" if last.get("before") else ""
            lines.append(
                f"| {command} | {' | '.join(number(by[n]['seconds']) if n in by else '' for n in counts)} | "
                f"{last['mib']:,.0f} MiB | {ratio} |"
            )
        lines.append("")
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="?", choices=("store", "tracking"), default="store")
    parser.add_argument("--records", type=int, nargs="+", default=[1_000])
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--uri")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gt-scale-") as folder:
        what = given.what
        found = (
            stores(given.records, given.before, Path(folder))
            if what == "store"
            else trackings(given.runs, given.uri, given.before, Path(folder))
        )
        for row in found:
            if given.keep:
                kept = json.loads(KEPT.read_text())
                same = ("records", "command") if what == "store" else ("kind", "runs", "command")
                rows = [one for one in kept.get(what, []) if any(one[key] != row[key] for key in same)]
                write_json(KEPT, kept | {what: [*rows, row]})
            print(row, flush=True)


if __name__ == "__main__":
    main()
