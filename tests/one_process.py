"""Several commands in one new Python process, which imports torch once."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PROGRAM = """
import runpy, sys

for words in {commands!r}:
    sys.argv = words.split()
    try:
        runpy.run_module(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
"""


def in_one_process(commands: Sequence[str], environment: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """Runs each command as `python -m` does, until one fails.

    Args:
        commands: a module and its arguments each.
        environment: variables of the process.
        folder: its working directory.

    Returns:
        The exit status of the last command that was run, and the standard output and standard error of all.
    """
    program = [sys.executable, "-c", PROGRAM.format(commands=list(commands))]
    done = subprocess.run(program, env=environment, cwd=folder, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout, done.stderr
