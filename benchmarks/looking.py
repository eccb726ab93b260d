"""Processor time of the commands that only look at results.

    python benchmarks/looking.py [--repeats 5] [WORD ...]

Each command runs in a process of its own, in the current folder, after one run that is not counted. The least of
several repeats is printed, user and system time of the process and its children. Other processes on the machine
lengthen it, so each command also has its ratio to `python -c "import typer"` of the same pass.

Prints: a line for each command whose text contains one of the WORDs: seconds, ratio, exit status, modules of torch.
Takes: about a minute.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of

UNIT = [sys.executable, "-c", "import typer"]
COMMANDS = (
    "--help",
    "board",
    "board hot",
    "board cornell",
    "board edge-transformer",
    "board edge-transformer/cornell/gcn",
    "board edge-transformer/cornell/gcn --recipe",
    "board edge-transformer --table 3",
    "board hto",
    "list",
    "list edge-transformer",
    "list edge-transfomer",
    "history edge-transformer/cornell/gcn",
    "diff edge-transformer/cornell/gcn",
    "compare gcn gin",
    "compare gcn gni",
    "compare polynormer/computer/polynormer polynormer/computer/polynormer-r",
    "compare edge-transformer/cornell/gcn edge-transformer/cornell/gin",
    "score edge-transformer/cornell/gin --metric accuracy",
    "score edge-transformer/cornell/gni --metric accuracy",
    "rank polynormer --source published",
    "ablate model.relu",
    "claims edge-transfomer",
    "claims edge-transformer",
    "claims",
    "suite list",
    "suite check hot",
    "doctor",
    "train edge-transformer/cornell/gnc",
    "try gnc cornell",
    "try gcn cornel",
    "match gnc cornell --parameters 10k",
    "page",
)


# a user has compiled modules
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: Sequence[str]) -> tuple[float, int]:
    """Return the processor time of a command and its exit status."""
    before = os.times()
    status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT).returncode
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, status


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("words", metavar="WORD", nargs="*")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for text in COMMANDS:
            if given.words and not any(word in text for word in given.words):
                continue
            command = [sys.executable, "-m", "gt_bench.cli", *shlex.split(text)]
            command += ["--out", f"{folder}/index.html"] if text == "page" else []
            found = subprocess.run(
                [command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True, env=ENVIRONMENT
            )
            torch = sum(line.rpartition("|")[2].strip().startswith("torch") for line in found.stderr.splitlines())
            passes = [(seconds(UNIT)[0], *seconds(command)) for _ in range(given.repeats)]
            unit, took = min(one[0] for one in passes), min(one[1] for one in passes)
            print(f"{took:6.2f} s  {took / unit:6.1f}  exit {passes[0][2]}  torch {torch:4}  {text}", flush=True)


if __name__ == "__main__":
    main()
