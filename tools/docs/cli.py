"""Writes docs/cli.md, the reference of the command line: python -m tools.docs.cli."""

import html
from pathlib import Path

import click
from typer.cli import get_docs_for_click
from typer.main import get_command

from gt_bench.cli.app import app

PATH = Path(__file__).parents[2] / "docs" / "cli.md"
FIRST = "<!-- generated: python -m tools.docs.cli -->"


def page() -> str:
    """The text of docs/cli.md."""
    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=click.Context(command, info_name="gt-bench"), name="gt-bench")
    usage = html.unescape(text).replace("```console\n$ ", "```text\n")
    return f"{FIRST}\n\n{usage.replace('# `gt-bench`', '# Commands of gt-bench', 1).rstrip()}\n"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
