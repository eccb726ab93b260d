"""How long `dvc repro` takes over a grid of 400 cells that do nothing: the first time, and when nothing changed.

    python benchmarks/grid.py [CELLS]

Builds a project in a temporary folder with this repository's dvc.yaml and its state stage; the other stages are a
stand-in `python` that only writes the files they owe. The no-op time is the bill for asking "is everything up to
date?", to be paid on every call.

Prints: seconds of the first `dvc repro`, of one without a change, and of the state stage in it.
Takes: half a second a cell and ten seconds more on a quiet disk: 400 cells are some minutes.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gt_bench.utils.paths import recipe_file

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of

ROOT = Path(__file__).parent.parent
DATASETS = ("chains", "sbm-cluster")
STAND_IN = """#!/bin/sh
case "$2" in
stages.state) exec {python} "$@" ;;
stages.download) mkdir -p data/packed/$3; echo 1 > data/packed/$3/header.json ;;
stages.encode) mkdir -p data/encodings/$3/cells
  for c in $(cat cells-of-$3); do echo 1 > data/encodings/$3/cells/$c.json; done ;;
stages.train) mkdir -p results/$(dirname $3) metrics/$(dirname $3)
  echo 1 > results/$3.json; echo '{{"test": 1}}' > metrics/$3.json ;;
stages.leaderboard) mkdir -p reports/published; for k in json csv md; do echo 1 > reports/$3.$k; done
  echo a,b > reports/published/$3.csv
    (cd results; find $3 -type d) | while read d; do mkdir -p reports/metrics/$d; done
    (cd results; find $3 -type f) | while read f; do echo 1 > reports/metrics/$f; done ;;
esac
"""


def build(folder: Path, count: int) -> None:
    """A project of `count` cells in ten suites."""
    suites = [f"suite-{i}" for i in range(10)]
    lines = [
        f"suites: [{', '.join(suites)}]",
        f"datasets: [{', '.join(DATASETS)}]",
        "searches: {}",
        "finetunes: {}",
        "cells:",
    ]
    of = {name: [] for name in DATASETS}
    for i in range(count):
        suite, dataset, row = suites[i % 10], DATASETS[i % 2], f"row-{i}"
        cell = f"{suite}/{dataset}/{row}"
        lines.append(
            f"  {suite}-{dataset}-{row}: {{cell: {cell}, dataset: {dataset}, model: {row}, settings: recipes, "
            f"values: {recipe_file(cell)}}}"
        )
        recipe = recipe_file(cell, folder / "suites")
        recipe.parent.mkdir(parents=True, exist_ok=True)
        recipe.write_text(f"model: {{name: mlp}}\noptimizer: {{lr: 0.1}}\nepochs: {i + 1}\nseeds: [0]\n")
        of[dataset].append(f"{suite}-{dataset}-{row}")
    (folder / "params.yaml").write_text("limits: {}\n")
    (folder / "grid.yaml").write_text("\n".join(lines) + "\n")
    for name, cells in of.items():
        (folder / f"cells-of-{name}").write_text("\n".join(cells))
    for name in ("dvc.yaml", "stages/dvc.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    for command in (
        ["git", "init", "-q"],
        [sys.executable, "-m", "dvc", "init", "-q"],
        [sys.executable, "-m", "dvc", "config", "core.analytics", "false"],
    ):
        subprocess.run(command, cwd=folder, check=True)


def repro(folder: Path) -> tuple[float, float]:
    """Seconds of one `dvc repro`, by the clock and of the processor: the latter hold on a busy machine too."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=folder, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("cells", type=int, nargs="?", default=400, metavar="CELLS", help="how many")
    count = parser.parse_args().cells
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder, count)
        first, _ = repro(folder)
        again = sorted(repro(folder) for _ in range(5))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "stages.state"], cwd=folder, env=environment, check=True)
        state = time.perf_counter() - start
        (folder / ".dvc" / "tmp" / "rwlock").resolve().unlink()  # in memory, not in this folder
    print(
        f"{count} cells: first dvc repro {first:.1f} s ({first / count:.2f} s a cell); no-op {again[2][0]:.2f} s "
        f"(median of 5, {again[0][0]:.2f} to {again[-1][0]:.2f}), {min(cpu for _, cpu in again):.2f} s of the processor"
    )
    print(f"of the no-op, the state stage takes {state:.2f} s")


if __name__ == "__main__":
    main()
