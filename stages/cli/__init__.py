"""`gt-bench`, the command line for the DVC stages: what exists, what was found, and whether all of it fits together."""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from stages.cli import check, judge, look, run
from stages.command import status_of
from stages.stop import handled
from stages.threads import settle_environment

Commands = Mapping[str, Callable[..., None]]
# the groups of `gt-bench --help`, a module each; a command is its function's signature, and its docstring the help
GROUPS: dict[str, Commands] = {
    "See what is there": {
        "list": look.list_cells,
        "show": look.show,
        "board": look.board,
        "table": look.table,
        "page": look.page,
        "history": look.history,
    },
    "Run": {"train": run.train, "try": run.try_, "work": run.work, "sweep": run.sweep, "tune": run.tune, "forecast": run.forecast},
    "Compare and judge": {"compare": judge.compare, "claims": judge.claims, "diff": judge.diff, "score": judge.score},
    "Check and carry": {"doctor": check.doctor},
}
STORE: Commands = {
    "export": check.store_export,
    "import": check.store_import,
    "prune": check.store_prune,
    "verify": check.store_verify,
}


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from stages.measurements import commit

        print(f"gt-bench {version('graph-transformer-benchmark')} (commit {commit() or 'unknown'})")
        raise typer.Exit


def _every_command(
    version: Annotated[bool, typer.Option("--version", help="version and commit", callback=_version, is_eager=True)] = False,
) -> None:
    pass


def _register(app: typer.Typer, commands: Commands, group: str | None = None) -> None:
    for name, command in commands.items():
        # typer keeps a docstring's lines as they are broken in the file
        paragraphs = (command.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        # `gt-bench diff CELL -1`: a number, no option
        settings = {"ignore_unknown_options": name == "diff"}
        app.command(name, help=text, rich_help_panel=group, context_settings=settings)(command)


app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
app.callback()(_every_command)
for group, commands in GROUPS.items():
    _register(app, commands, group)
store = typer.Typer(no_args_is_help=True, help="Records that travel: what was run here or elsewhere, as files of the repository.")
_register(store, STORE)
app.add_typer(store, name="store", rich_help_panel="Check and carry")


def main() -> None:
    """Runs the command and exits with its status: a UserError is one line on stderr, a signal stops between two steps."""
    settle_environment()

    def work() -> None:
        with handled():
            app()

    sys.exit(status_of(work))
