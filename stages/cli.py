"""`gt-bench`, the command line for the DVC stages: what exists, what was found, and whether all of it fits together."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.models import CommandInfo, TyperInfo

from stages.addresses import without_credentials
from stages.bases import recipe_text
from stages.command import status_of
from stages.errors import DatasetError
from stages.home import place
from stages.params import load_grid
from stages.processes import check_processes
from stages.recipe import check_fit, check_model, load_recipe
from stages.schema import RecipeError
from stages.stop import handled
from stages.threads import settle_environment

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
# the groups of `gt-bench --help`; a command in none of them comes under "More"
GROUPS = {
    "See what is there": ("list", "show", "board", "table", "page", "history"),
    "Run": ("train", "try", "work", "sweep", "tune", "forecast"),
    "Compare and judge": ("compare", "claims", "diff", "score"),
    "Check and carry": ("doctor", "store"),
}
Names = Annotated[list[str] | None, typer.Argument(help="suites and cells (suite/dataset/row); all where none is named")]
Records = Annotated[Path, typer.Option(help="folder of shipped records", callback=place)]
AsJson = Annotated[bool, typer.Option("--json", help="the same as JSON, for programs")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from stages.measurements import commit

        print(f"gt-bench {version('graph-transformer-benchmark')} (commit {commit() or 'unknown'})")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[bool, typer.Option("--version", help="version and commit", callback=_version, is_eager=True)] = False,
) -> None:
    pass


class Form(StrEnum):
    """How `gt-bench table` prints a published table."""

    terminal = "terminal"
    md = "md"
    tex = "tex"
    html = "html"
    csv = "csv"


@app.command("list")
def list_cells(suite: Annotated[str | None, typer.Argument(help="only this suite")] = None, as_json: AsJson = False) -> None:
    """The cells of the grid with their state, and how many of their seeds the store has."""
    from stages.records.kept import seeds_kept
    from stages.records.shipped import read_result
    from stages.report.terminal import print_table
    from stages.store import StoreError

    grid, problems, found = load_grid(), [], []
    for cell in grid.suite(suite) if suite else grid.cells.values():
        seeds, state = "?", "unreadable"
        try:
            result = read_result(Path("results", f"{cell.cell}.json"), cell.cell)
            runs, asked = seeds_kept(cell, grid)
            seeds, state = f"{len(runs)}/{asked}", result["status"] if result else "begun" if runs else "not run"
        except (StoreError, RecipeError) as error:
            problems.append(str(error))
        found.append({"cell": cell.cell, "settings": str(cell.settings_path), "seeds": seeds, "state": state})
    if as_json:
        print(json.dumps({"cells": found, "problems": problems}, indent=1))
    else:
        texts = [list(row.values()) for row in found]
        print_table(("cell", "settings", "seeds", "state"), texts, "cell", "state", "seeds", wrapped=("state",))
        for problem in problems:
            print(problem)
    if problems:
        raise typer.Exit(1)


@app.command()
def show(name: Annotated[str, typer.Argument(metavar="SUITE|CELL")], as_json: AsJson = False) -> None:
    """The leaderboard of a suite as last written; or the recipe of a cell (suite/dataset/row), complete, with the origin of each value."""
    grid = load_grid()
    if name in grid.suites or ("/" not in name and name not in grid.cells):
        _show_leaderboard(name, as_json)
        return
    recipe = load_recipe(grid.find(name).recipe_path)
    print(json.dumps(recipe.model_dump(mode="json", exclude_unset=True), indent=1) if as_json else recipe_text(recipe).rstrip("\n"))


def _show_leaderboard(suite: str, as_json: bool) -> None:
    from stages.leaderboard import show as show_table
    from stages.mlflow.tracking import tracking_uri
    from stages.report.table import rows_in

    grid = load_grid()
    grid.suite(suite)
    path = Path("reports", f"{suite}.json")
    if not path.exists():
        raise RecipeError(f"{path} is not there yet: run `make reproduce SUITE={suite}`")
    if as_json:
        print(json.dumps(rows_in(path), indent=1))
        return
    show_table(suite, rows_in(path), [path.with_suffix(s) for s in (".json", ".csv", ".md")], grid.run.verdict)
    uri = without_credentials(tracking_uri())
    print(f"MLflow: open {uri}" if uri.startswith("http") else "MLflow: `make ui` serves it and prints the address of each suite")


@app.command()
def train(
    names: Annotated[list[str], typer.Argument(help="cells (suite/dataset/row) and suites")],
    jobs: Annotated[int, typer.Option(help="cells that train at once, each in a process of its own")] = 1,
) -> None:
    """Trains cells. Data and encodings must be there (`dvc repro train@CELL` sees to it)."""
    from stages.side_by_side.cells import train_cells
    from stages.train import train_cell

    grid = load_grid()
    cells = grid.chosen(names)
    lost = []
    if len(cells) == 1 and jobs == 1:
        train_cell(cells[0], grid)
    else:
        lost = train_cells(cells, grid, jobs)
    if grid.run.tracking:
        from stages.mlflow.tracking import track_cells

        track_cells(cells)
    if lost:
        print(f"{len(cells) - len(lost)} of {len(cells)} cells are trained; the same command goes on")
        raise typer.Exit(1)


@app.command("try")
def try_(
    model: Annotated[str, typer.Argument(help="a name, or path/to/file.py:MyModel")],
    dataset: Annotated[str, typer.Argument(help="a name, a folder of CSV, an npz file, path/to/file.py:load, or pyg:Planetoid/Cora")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a dotted key of a recipe: optimizer.lr=0.01")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="0-9, or 0,2,5; otherwise the defaults'")] = None,
    search: Annotated[int | None, typer.Option(min=1, metavar="TRIALS", help="search on validation first")] = None,
    task: Annotated[str | None, typer.Option(help="of data of your own: node-classification, graph-regression, ...")] = None,
    metric: Annotated[str | None, typer.Option(help="of data of your own: accuracy, mae, ...")] = None,
    save: Annotated[str | None, typer.Option(metavar="SUITE", help="write the recipe that was used into recipes/SUITE/")] = None,
) -> None:
    """Any model on any dataset without a recipe, by the defaults of stages/own/defaults.yaml; then a table of all that is known there."""
    from stages.own.defaults import seeds_in, settings
    from stages.own.table import shown
    from stages.own.tried import save as save_recipe
    from stages.own.tried import try_pair

    found = try_pair(model, dataset, settings(set_ or []), None if seeds is None else seeds_in(seeds), search, task=task, metric=metric)
    shown(found, [f"recipe: {found.recipe}"])
    if save:
        print(f"saved: {save_recipe(found.recipe, save)}")


@app.command()
def work(
    names: Names = None,
    hours: Annotated[float | None, typer.Option(help="work so long; without it until all is done")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="runs at once, each with the threads that its recipe says; as many as there are cores")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="YAML: what to run, entry after entry (stages/sweep/plan_file.py)")] = None,
    export: Annotated[Path, typer.Option(help="folder for the records of finished cells")] = Path("records"),
) -> None:
    """Computes missing runs, those of the highest value first (stages/sweep/planner.py), side by side, until the hours are over. Exits 1 where
    something is left that could not be done."""
    from stages.sweep.plan_file import entries_of
    from stages.sweep.work import work as run_queue

    grid = load_grid()
    if not run_queue(entries_of(names or [], plan, grid), grid, hours, jobs, export) and hours is None:
        raise typer.Exit(1)


@app.command()
def sweep(
    names: Annotated[list[str] | None, typer.Argument(metavar="SUITE|CELL...", help="suites and cells (suite/dataset/row)")] = None,
    cluster: Annotated[str, typer.Option(help="slurm, or local: side by side on this machine (as `gt-bench work`)")] = "slurm",
    at_most: Annotated[
        int | None, typer.Option(help="jobs that run at once; slurm: 16; local: as many as cores and memory hold", show_default=False)
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="YAML: what to run, entry after entry (stages/sweep/plan_file.py)")] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="show what would be submitted, and end")] = False,
) -> None:
    """Submits every missing run to a cluster and follows it (docs/cluster.md). Stopped and started again, it submits only what is still missing.
    Exits 1 where something is left."""
    from stages.sweep import sweep as room
    from stages.sweep.plan_file import entries_of
    from stages.sweep.slurm import Slurm
    from stages.sweep.work import work as run_queue

    if cluster not in ("slurm", "local"):
        raise RecipeError(f"--cluster {cluster}: expected slurm or local")
    if at_most is not None and at_most < 1:
        raise RecipeError(f"--at-most {at_most}: give how many jobs run at once, 1 or more")
    if not names and plan is None:
        raise RecipeError("a sweep of nothing: name suites or cells, or give --plan; `gt-bench list` shows all")
    grid = load_grid()
    entries = entries_of(names or [], plan, grid)
    if dry:
        from stages.report.terminal import print_table

        needs = room.dry_run(entries, grid, lambda line: print(line, file=sys.stderr))
        print_table(("need of a job", "jobs", "runs, trials", "in all", "cells"), needs, wrapped=("need of a job", "cells"))
    elif not (
        run_queue(entries, grid, jobs=at_most)
        if cluster == "local"
        else room.sweep(entries, grid, Slurm(Path("store/sweep")), at_most or room.AT_MOST)
    ):
        raise typer.Exit(1)


@app.command()
def tune(cell: str) -> None:
    """The search of one cell, continued where it was."""
    from stages.tune import tune_cell

    grid = load_grid()
    tune_cell(grid.find(cell), grid)


@app.command("history")
def show_history(cell: str) -> None:
    """The attempts at a cell: when, by which commit, which number, and what changed from each to the next."""
    from stages.history import changes, history
    from stages.records.shipped import read_result
    from stages.store import Store

    name = load_grid().find(cell).cell
    found = history(name, Store(), read_result(Path("results", f"{name}.json"), name))
    for before, one in zip([None, *found], found, strict=False):
        for change in changes(before, one) if before else ():
            print(f"    {change}")
        now = "  <- current" if one.current else ""
        print(f"{one.name}: {one.shown['mean ± std']} {one.shown['metric']}, {one.shown['runs']} runs, {one.shown['status']}{now}")


@app.command("diff")
def show_diff(
    cell: str,
    before: Annotated[int, typer.Argument(help="number of an attempt (`gt-bench history CELL`); -1 is the last but one")] = -1,
    after: Annotated[int, typer.Argument(help="number of another; 0 is the last")] = 0,
) -> None:
    """What changed between two attempts at a cell: in recipe, code, data and machine, and in the number."""
    from stages.history import NoAttempt, changes, chosen, history, number_lines
    from stages.records.shipped import read_result
    from stages.store import Store

    name = load_grid().find(cell).cell
    found = history(name, Store(), read_result(Path("results", f"{name}.json"), name))
    if len(found) == 1:
        raise NoAttempt(f"{name}: there is one attempt only, {found[0].name}: nothing to compare it with")
    first, second = (chosen(found, n if n > 0 else len(found) + n) for n in (before, after))
    for line in [*changes(first, second), *number_lines(first, second)]:
        print(line)


@app.command("score")
def score_cell(cell: str) -> None:
    """Loads the kept weights of a cell's best seed and tests them again; exits 1 where the numbers are not those of the record."""
    from stages.best import best_run
    from stages.cells import experiment_of, limited, settings_of
    from stages.runs import DATA, prepare_process
    from stages.store import Store
    from stages.trained import NotKept, agree, score

    grid = load_grid()
    found = grid.find(cell)
    experiment = experiment_of(found, limited(settings_of(found), grid, found)[0], grid, Store(), DATA, prepare_process(grid.run))
    best = best_run([record for seed in experiment.recipe.seeds if (record := experiment.settled(seed))])
    if best is None:
        raise NotKept(f"{found.cell}: no seed of it is in the store; `gt-bench train {found.cell}` comes first")
    now, then = score(experiment, best["deterministic"]["seed"])
    for name, value in then.items():
        print(f"{name}: {now[name]!r} now, {value!r} in the record of seed {best['deterministic']['seed']}")
    if not agree(now, then, experiment.recipe.processes):
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Checks params.yaml, every recipe against its model, dataset and printed number, and what is on disk; exits 1 with what is wrong."""
    from stages.datasets.catalog import get_spec
    from stages.records.transfer import stored_problems
    from stages.report.published import PublishedError, further
    from stages.space import check_space
    from stages.store import Store

    problems, grid = [], load_grid()
    for cell in grid.cells.values():
        try:
            recipe = load_recipe(cell.recipe_path)
            check_model(recipe, cell.recipe_path)
            spec = get_spec(cell.dataset)
            check_fit(recipe, spec.level, cell.dataset, cell.recipe_path)
            check_processes(recipe, spec.task, spec.split_kind, cell.dataset, cell.recipe_path)
            if recipe.search:
                check_space(recipe, cell)
            further(recipe.published.model_dump() if recipe.published else None, cell.dataset, spec.metric)
            if (recipe.search is None) == (cell.settings == "tuned"):
                problems.append(
                    f"grid.yaml: cell {cell.key}: `settings: tuned` goes with a `search:` section in {cell.recipe_path}, and only with it"
                )
        except PublishedError as error:
            problems.append(f"{cell.recipe_path}: published: {error}")
        except (RecipeError, DatasetError, KeyError) as error:
            problems.append(str(error.args[0]))
    wrong, count = stored_problems(Store())
    problems += wrong
    problems = list(dict.fromkeys(problems))  # a dataset's is met once per cell
    for problem in problems:
        print(problem)
    print(f"{len(grid.cells)} cells, {count} records, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


@app.command()
def board(
    suite: Annotated[str | None, typer.Argument(help="a suite; none with --dataset")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="all suites' rows of this dataset, own and shipped, and what the papers print of it")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="write SUITE.json, .csv and .md into this folder")] = None,
    records: Records = Path("records"),
    as_json: AsJson = False,
) -> None:
    """The leaderboard of a suite from the shipped records alone, or of a dataset from own and shipped ones: nothing is computed, and a stale row says
    what changed since."""
    from stages.records.board import board as rows_of
    from stages.records.board import dataset_rows, show_dataset, show_suite

    if suite is not None and dataset is None:
        if as_json:
            print(json.dumps(rows_of(suite, load_grid(), records), indent=1))
        else:
            show_suite(suite, load_grid(), records, write)
    elif dataset is not None and suite is None and write is None:
        if as_json:
            print(json.dumps(dataset_rows(dataset, load_grid(), records)[0], indent=1))
        else:
            show_dataset(dataset, load_grid(), records)
    else:
        raise RecipeError("say one of them: `gt-bench board SUITE [--write FOLDER]`, or `gt-bench board --dataset DATASET`")


@app.command()
def table(
    paper: Annotated[str | None, typer.Argument(help="tokengt, hot, ppgt, edge_transformer or polynormer; all where none is named")] = None,
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="as in `Table 3`, or 3; a list of them where none is named")] = None,
    form: Annotated[Form, typer.Option("--format")] = Form.terminal,
    records: Records = Path("records"),
) -> None:
    """A published table in the paper's own layout: the printed numbers, ours below them with their verdicts."""
    from stages.records.gathered import gather
    from stages.report.paper_table import show, show_list

    rows = gather(load_grid(), root=records).rows
    if paper is None or name is None:
        show_list(paper, rows)
    else:
        show(paper, name, rows, form.value)


@app.command()
def page(
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("reports/index.html"),
    records: Records = Path("records"),
) -> None:
    """Writes everything that was printed and run as one page for a browser, from this machine's and the shipped records; nothing is computed."""
    from stages.report.page import write_page

    print(f"written: {write_page(load_grid(), out, records=records)}")


@app.command()
def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="A B...", help="rows (gcn), SUITE/ROW or cells; @own, @shipped or @2 behind: that version or attempt"),
    ],
    dataset: Annotated[list[str] | None, typer.Option(help="only this dataset; may be given several times")] = None,
    bayes: Annotated[bool, typer.Option("--bayes", help="probabilities that the first is better, equal, worse")] = False,
    rope: Annotated[
        float, typer.Option(min=0, help="with --bayes: smaller differences count as equal, in raw units (0.01: one per cent)")
    ] = 0.01,
    records: Records = Path("records"),
) -> None:
    """Is a difference real? The others against the first, paired over common seeds and splits, and mean ranks over datasets; nothing is computed."""
    from stages.records.compared import show as show_comparison
    from stages.records.gathered import gather

    if len(set(names)) != len(names) or len(names) < 2:
        raise RecipeError("name two or more, and each once: gt-bench compare A B")
    grid = load_grid()
    show_comparison(names, grid, gather(grid, root=records), dataset or [], rope if bayes else None)


@app.command()
def claims(
    paper: Annotated[str | None, typer.Argument(help="tokengt, hot, ppgt, edge_transformer or polynormer; all where none is named")] = None,
    write: Annotated[Path | None, typer.Option(help="write all of them into this file, as Markdown")] = None,
    data: Annotated[Path, typer.Option(help="folder with packed/, for the claims that take data")] = Path("data"),
    records: Records = Path("records"),
    recompute: Annotated[
        str | None, typer.Option(help="compute this finding (published/findings) anew; exits 1 where it is not the kept one")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="with --recompute: this case alone; may be given several times")] = None,
) -> None:
    """What the papers say in words, each sentence with a verdict: computed from printed numbers, shipped records, data, and what was computed for them."""
    from stages import findings

    if recompute:
        if not findings.recompute(recompute, case or (), data):
            raise typer.Exit(1)
        return
    from stages.files import write_bytes
    from stages.records.board import every_row
    from stages.report.claims import load_claims, show, verdicts_of

    chosen = [claim for claim in load_claims() if paper in (None, claim.paper.replace("_", "-"), claim.paper)]
    if not chosen:
        raise RecipeError(f"no claim of a paper {paper!r} in published/claims.yaml")
    verdicts = verdicts_of(chosen, every_row(load_grid(), records), data)
    show(chosen, verdicts)
    stale = {name: len(findings.stale(name)) for name in findings.NAMES}
    if other := [f"{name} ({count} of {len(findings.load(name))} cases)" for name, count in stale.items() if count]:
        print(
            f"computed by other code than the present: {', '.join(other)}; `gt-bench claims --recompute NAME` computes one anew and compares"
        )
    if write:
        from stages.report.claims import page

        print(f"written: {write_bytes(write, page(chosen, verdicts).encode())}")


@app.command()
def forecast(
    names: Names = None,
    seconds: Annotated[float, typer.Option(help="spent on timed steps of each phase of a cell")] = 3.0,
    report: Annotated[bool, typer.Option(help="as Markdown, with the median error over cells that were run here")] = False,
) -> None:
    """Hours, memory and disk of cells on this device, from a few steps of each; beside what they took, where they were run here."""
    from stages.forecast import forecast as forecast_cells
    from stages.report.forecast import COLUMNS, markdown, row, summary
    from stages.report.terminal import print_table

    grid = load_grid()
    found = forecast_cells(grid.chosen(names or []), grid, budget=seconds, say=lambda line: print(line, file=sys.stderr, flush=True))
    if report:
        print(markdown(found), end="")
        return
    print_table(
        COLUMNS,
        [row(one) for one in found],
        "cell",
        "in all",
        "memory",
        "measured on",
        wrapped=("measured on",),
        title="Forecast on this device",
    )
    print(summary(found))


store_app = typer.Typer(no_args_is_help=True, help="Records that travel: what was run here or elsewhere, as files of the repository.")
app.add_typer(store_app, name="store")


@store_app.command("export")
def store_export(
    names: Names = None,
    records: Records = Path("records"),
    replace: Annotated[bool, typer.Option(help="let a reduced cell take the place of a full one")] = False,
    dirty: Annotated[bool, typer.Option("--dirty", help="also runs of code that is in no commit")] = False,
) -> None:
    """Writes the records of cells to records/<suite>/<dataset>/<row>.json.gz."""
    from stages.records.transfer import export_cell

    written, without = 0, []
    for cell in load_grid().chosen(names or []):
        path = export_cell(cell, records, replace=replace, dirty=dirty)
        if path is None:
            without.append(cell.cell)
        else:
            written += 1
            print(f"{path}: {path.stat().st_size:,} bytes")
    print(
        f"{written} cells exported; {len(without)} without a run{': ' + ', '.join(without[:5]) if without else ''}{' ...' if without[5:] else ''}"
    )


@store_app.command("import")
def store_import(names: Names = None, records: Records = Path("records")) -> None:
    """Puts shipped records into the store, and results/ where there is none; a record that contradicts the store's own stops it before anything
    is written."""
    from stages.records.shipped import shipped_cells
    from stages.records.transfer import import_records, import_results

    grid = load_grid()
    shipped = list(shipped_cells(grid, names or [], records))
    new, there = import_records(shipped, root=records)
    written = import_results(shipped, grid)
    print(f"{len(shipped)} cells: {new} records imported, {there} there already; {len(written)} results written")
    suites = " ".join(dict.fromkeys(cell.partition("/")[0] for cell in written))
    if suites:
        print(f"leaderboards of them, without computing: for s in {suites}; do python -m stages.leaderboard $s; done")


@store_app.command("attest")
def store_attest(
    names: Names = None,
    runs: Annotated[int, typer.Option(min=1, help="how many runs of each cell are computed again, the cheapest first")] = 1,
    records: Records = Path("records"),
    dirty: Annotated[bool, typer.Option("--dirty", help="also by code that is in no commit")] = False,
    beside: Annotated[
        Path | None, typer.Option(help="store of a checkout of the older code that computed the same runs on this machine: compare with it")
    ] = None,
) -> None:
    """Computes a few runs of each stale cell again; where every bit agrees, its records are marked as carried over to the present code.

    A cell that was carried over already is computed again where it is named. Exits 1 where a cell stays stale, a mark does not hold, or a file
    is unsound."""
    from stages.measurements import commit
    from stages.records.attest import StaysStale, attest
    from stages.records.carried import text_of
    from stages.records.shipped import problems_of, read, shipped_paths, write
    from stages.records.staleness import standing
    from stages.store import Store, StoreError

    grid, head = load_grid(), commit()
    if head is None or (head.endswith("-dirty") and not dirty):
        what = "there is no commit to name" if head is None else f"the code differs from commit {head[:12]}"
        raise StoreError(
            f"{what}: a mark says by which commit records were carried over; commit first{'' if head is None else ', or say --dirty'}"
        )
    counts = {"carried over": 0, "as the present tree computes it": 0, "not carried over": 0}
    for path in shipped_paths(grid, names or [], records):
        try:
            one = read(path)
            if wrong := problems_of(one, records):
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
            new = attest(one, grid, head, runs, beside=Store(beside) if beside else None, say=lambda line: print(line, flush=True))
        except StaysStale as error:
            print(f"{one.cell}: {'stays stale' if state.stale else 'its mark does not hold here'}: {error}", flush=True)
            counts["not carried over"] += 1
            continue
        if state.stale or len(new.recomputed) > len(one.recomputed):
            write(new)
        left = standing(new, grid).stale
        still = f"; still stale: {', '.join(left)}" if left else ""
        print(f"{one.cell}: {text_of(new.now().records)} by commit {head[:12]}{still}", flush=True)
        counts["carried over"] += 1
    print("; ".join(f"{count} {what}" for what, count in counts.items()))
    if counts["not carried over"]:
        raise typer.Exit(1)


@store_app.command("prune")
def store_prune() -> None:
    """Removes the temporary files that killed processes left in what the pipeline writes; those of the last hour stay."""
    from stages.leftovers import FOLDERS
    from stages.leftovers import sweep as remove

    removed = remove(*map(Path, FOLDERS), everywhere=True)
    for path in removed:
        print(path)
    print(f"{len(removed)} removed")


@store_app.command("verify")
def store_verify(names: Names = None, records: Records = Path("records")) -> None:
    """Checks every shipped and every stored record again, and says which shipped cells are stale; exits 1 where a record is unsound."""
    from stages.records.carried import note_of
    from stages.records.shipped import read, shipped_paths
    from stages.records.staleness import standing
    from stages.records.transfer import verify as verify_records
    from stages.store import StoreError

    grid = load_grid()
    shipped, problems, stale = [], [], 0
    for path in shipped_paths(grid, names or [], records):
        try:
            shipped.append(read(path))
        except StoreError as error:
            problems.append(str(error))
    problems += verify_records(shipped, root=records)
    for problem in problems:
        print(problem)
    for one in shipped:
        if any(problem.startswith((f"{one.path}:", f"{one.path} ")) for problem in problems):
            continue
        state = standing(one, grid)
        stale += bool(state.stale)
        reduced = f"; reduced: {', '.join(one.result['reduced'])}" if one.result["reduced"] else ""
        trials = f" and {len(one.trials)} of its search" if one.trials else ""
        carried = f"; {note_of(one.now().records)}" if one.carried else ""
        print(f"{one.cell}: {len(one.records)} runs{trials} on {one.records[0]['measured']['device']}; {state.text}{carried}{reduced}")
    print(f"{len(shipped)} shipped cells, {stale} stale, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


for command in (*app.registered_commands, *store_app.registered_commands):  # typer keeps a docstring's lines as they are broken in the file
    paragraphs = (getattr(command.callback, "__doc__", None) or "").split("\n\n")
    command.help = "\n\n".join(" ".join(part.split()) for part in paragraphs)
shown: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
for registered in shown:
    name = registered.name or getattr(registered.callback, "__name__", "")
    registered.rich_help_panel = next((group for group, names in GROUPS.items() if name in names), "More")


def main() -> None:
    """Runs the command and exits with its status: a UserError is one line on stderr, a signal stops between two steps."""
    settle_environment()

    def work() -> None:
        with handled():
            app()

    sys.exit(status_of(work))


if __name__ == "__main__":
    main()
