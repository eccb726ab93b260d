"""Training steps of two checkouts of this repository in alternation, for ratios that a busy machine changes little.

    git worktree add /tmp/before HEAD~1
    python benchmarks/alternate.py /tmp/before benchmarks.polynormer:ours num_nodes=3000 hidden_dim=128

Each checkout runs the builder of its own benchmark script in a process of one thread, which takes a step whenever it is
told to. Processor time is compared step by step.

Prints: a table of the other checkout, this one, and this one in plain torch: median milliseconds and ratios.
Takes: as long as --rounds steps of all three, and their start.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import KEEP_MEMORY, ROOT, print_table

STEPS = """
import importlib, json, sys, time
import torch
from gt_models import kernels
torch.set_num_threads(1)
torch.manual_seed(0)
module, _, function = sys.argv[1].partition(":")
model, loss = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
optimiser = torch.optim.AdamW(model.parameters(), fused=True)
def step():
    start = time.process_time()
    optimiser.zero_grad()
    loss().backward()
    optimiser.step()
    return time.process_time() - start
with kernels.use(sys.argv[3] or None):
    step(), step()
    for _ in sys.stdin:
        print(step(), flush=True)
"""


def start(checkout: Path, builder: str, arguments: dict, form: str) -> subprocess.Popen:
    environment = os.environ | KEEP_MEMORY | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", STEPS, builder, json.dumps(arguments), form]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment
    )


def step(process: subprocess.Popen) -> float:
    """Seconds of processor time. Raises RuntimeError where the process has ended."""
    process.stdin.write("\n")
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise RuntimeError("the measured process has ended: its error is above")
    return float(line)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("builder", help="module:function of a benchmark script")
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE", help="of the builder; values as JSON")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each")
    given = parser.parse_args()
    arguments = {name: json.loads(value) for name, _, value in (text.partition("=") for text in given.arguments)}
    names = ("before", "after", "plain equations")
    cases = ((given.before.resolve(), ""), (ROOT, ""), (ROOT, "reference"))
    processes = [start(checkout, given.builder, arguments, form) for checkout, form in cases]
    rounds = [[step(process) for process in processes] for _ in range(given.rounds)]
    rows = []
    for name, times in zip(names, zip(*rounds, strict=True), strict=True):
        ratio = statistics.median(time / first[0] for time, first in zip(times, rounds, strict=True))
        rows.append((name, 1e3 * statistics.median(times), ratio))
    for process in processes:
        process.communicate()
    print_table(f"{given.builder} {' '.join(given.arguments)}", ["checkout", "cpu ms", "ratio"], rows)


if __name__ == "__main__":
    main()
