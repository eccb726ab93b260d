"""The benchmark of graph transformers: see results, run and compare models, check everything."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from gt_bench.cli import analyse, compare, data, records, run, show, suite
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.signals import handled
from gt_bench.runtime.threads import settle_environment

Commands = Mapping[str, Callable[..., None]]
# groups of `gt-bench --help`; a command is a function, its help the docstring
GROUPS: dict[str, Commands] = {
    "See what is there": {
        "board": show.board,
        "list": show.list_cells,
        "describe": data.describe,
        "page": show.page,
        "history": show.history,
        "ui": show.ui,
    },
    "Run": {
        "train": run.train,
        "try": run.try_,
        "work": run.work,
        "sweep": run.sweep,
        "tune": run.tune,
        "forecast": run.forecast,
        "match": analyse.match,
        "reproduce": run.reproduce,
    },
    "Compare and judge": {
        "compare": compare.compare,
        "claims": compare.claims,
        "diff": compare.diff,
        "score": compare.score,
        "rank": analyse.rank,
        "ablate": analyse.ablate,
    },
    "Check and carry": {
        "doctor": records.doctor,
        "check": records.check,
        "export": records.export,
        "submit": records.submit,
        "verify-submission": records.verify_submission,
    },
}
STORE: Commands = {
    "export": records.store_export,
    "import": records.store_import,
    "prune": records.store_prune,
    "verify": records.store_verify,
}
# examples at the end of each help text, on one line of 80 columns; `store export` is under "store export"
EXAMPLES = {
    "board": "gt-bench board edge-transformer --table 3",
    "list": "gt-bench list edge-transformer",
    "describe": "gt-bench describe path/to/csv --write path/to/csv/data.yaml",
    "page": "gt-bench page --out results.html",
    "history": "gt-bench history edge-transformer/cornell/gcn",
    "ui": "gt-bench ui --port 5001",
    "train": "gt-bench train edge-transformer/cornell/gcn",
    "try": "gt-bench try my_model.py:MyModel texas --seeds 0-4 --against gcn",
    "work": "gt-bench work edge-transformer --hours 8",
    "sweep": "gt-bench sweep polynormer --at-most 64",
    "tune": "gt-bench tune edge-transformer/cornell/gcn",
    "forecast": "gt-bench forecast edge-transformer/cornell/gcn",
    "reproduce": "gt-bench reproduce edge-transformer",
    "compare": "gt-bench compare edge-transformer/gcn edge-transformer/gin",
    "claims": "gt-bench claims edge-transformer",
    "diff": "gt-bench diff edge-transformer/cornell/gcn -1",
    "score": "gt-bench score edge-transformer/cornell/gcn --metric f1-macro",
    "match": "gt-bench match gcn cornell --parameters 100k",
    "ablate": "gt-bench ablate model.dropout edge-transformer --plot dropout.png",
    "rank": "gt-bench rank polynormer --source published",
    "doctor": "gt-bench doctor",
    "check": "gt-bench check edge-transformer",
    "export": "gt-bench export exported --format every_eval_ever",
    "submit": "gt-bench submit contribution.json.gz --by 'Jane Doe'",
    "verify-submission": "gt-bench verify-submission contribution.json.gz --runs 1",
    "store export": "gt-bench store export edge-transformer/cornell/gcn",
    "store import": "gt-bench store import edge-transformer",
    "store prune": "gt-bench store prune",
    "store verify": "gt-bench store verify edge-transformer",
    "suite list": "gt-bench suite list",
    "suite new": "gt-bench suite new my-paper --title 'My paper' --authors Doe",
    "suite check": "gt-bench suite check hot",
}


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from gt_bench.runtime.checkout import commit

        print(f"gt-bench {version('graph-transformer-benchmark')} (commit {commit() or 'unknown'})")
        raise typer.Exit


def _every_command(
    version: Annotated[
        bool, typer.Option("--version", help="version and commit", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _register(app: typer.Typer, commands: Commands, group: str | None = None, prefix: str = "") -> None:
    for name, command in commands.items():
        # typer keeps the line breaks of a docstring
        paragraphs = (command.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        # -1 in `gt-bench diff CELL -1` is a number, not an option
        settings = {"ignore_unknown_options": name == "diff"}
        example = f"Example: {EXAMPLES[prefix + name]}"
        app.command(name, help=text, epilog=example, rich_help_panel=group, context_settings=settings)(command)


app = typer.Typer(no_args_is_help=True, help=__doc__, epilog=run.WHICH, pretty_exceptions_enable=False)
app.callback()(_every_command)
for group, commands in GROUPS.items():
    _register(app, commands, group)
store = typer.Typer(no_args_is_help=True, help="Export, import and check records of runs.")
_register(store, STORE, prefix="store ")
app.add_typer(store, name="store", rich_help_panel="Check and carry")
suites = typer.Typer(
    no_args_is_help=True, help="Make, check and list suites: papers and other sets of cells in suites/NAME/."
)
_register(suites, suite.SUITE, prefix="suite ")
app.add_typer(suites, name="suite", rich_help_panel="Check and carry")


def main() -> None:
    """Run the command and exit with its status. A UserError is one line on stderr; a signal stops between two steps."""
    settle_environment()

    def work() -> None:
        with handled():
            app()

    sys.exit(status_of(work))
