"""What each fast form gains: a training step with all fast forms, and with one of them switched off, in alternation.

    python benchmarks/fast_paths.py [CELL ...] [--rounds 15] [--together OPERATION,OPERATION ...] [--graphs 256]

A step is that of `benchmarks/cells.py`: the recipe's dropout, batch and optimizer, on packed data or a miniature. All
cases of a cell take turns in one process of one thread. The gain is the median over the rounds, each compared within
itself; the milliseconds of processor time are the smallest. A form that is switched off gives way to the operation's
next form, or to the definition. --together switches off all forms of several operations at once. Memory is the peak of
a step above what it starts with.

Prints: a table with a row for each form and cell, the largest gain of each form, and the forms that no cell used.
Takes: seconds to some minutes for a cell, about an hour for all.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import cells
from benchmarks.command import parser_of

# together they use every form for the CPU that has a part in training steps
CELLS = (
    "ppgt/zinc/ppgt", "ppgt/zinc/ppgt-as-printed", "tokengt/pcqm4mv2/tokengt-lap",
    "tokengt/chameleon/tokengt-lap-performer", "tokengt/ba-equivariant-basis-dense/tokengt-attention-lap-type",
    "edge-transformer/zinc/edge-transformer", "edge-transformer/sr25/edge-transformer-brec",
    "hot/chains/hot-sparse-kernel", "hot/chains/hot-sparse", "polynormer/photo/polynormer",
    "polynormer/roman-empire/polynormer", "edge-transformer/zinc/grit",
    "edge-transformer/zinc/gps", "ppgt/zinc/graphormer", "polynormer/roman-empire/nodeformer",
    "polynormer/roman-empire/graphgps", "hot/chains/gat",
)  # fmt: skip
KEEP = 0.15  # of a step: a form that gains less on every model is deleted, unless it saves a quarter of the memory


@contextlib.contextmanager
def without(names: tuple[str, ...]) -> Iterator[None]:
    """Switch off forms, each named as OPERATION or OPERATION: FORM."""
    from gt_models.kernels.dispatch import OPERATIONS

    before = {}
    for name in names:
        operation, _, form = name.partition(": ")
        found = OPERATIONS[operation]
        before.setdefault(operation, found.forms)
        found.forms = tuple(f for f in found.forms if form and f.name != form)
    try:
        yield
    finally:
        for operation, forms in before.items():
            OPERATIONS[operation].forms = forms


def taken_by(step: Any) -> list[str]:
    """OPERATION: FORM of every fast form that a step uses."""
    from gt_models.kernels import forms_taken

    with forms_taken(training=True) as taken:
        step()
    return sorted(f"{name}: {form}" for name, forms in taken.items() for form in forms if form != "reference")


def measure(cell: str, data: Path, rounds: int, together: list[str]) -> dict[str, Any]:
    """Seconds and MiB of a step by case; the case "" has all forms."""
    from gt_bench.runtime.environment import PeakMemory

    with tempfile.TemporaryDirectory() as store:
        bench = cells.Bench(cell, data, Path(store))
        run, step = bench.stepper()
        names = taken_by(step)
        cases = [(), *((name,) for name in names)]
        cases += [group for text in together if used(group := tuple(text.split(",")), names)]
        seconds: dict[str, list[float]] = {",".join(case): [] for case in cases}
        for case in cases:  # compiles
            with without(case):
                step()
        for number in range(rounds):
            for case in cases[number % len(cases) :] + cases[: number % len(cases)]:
                start = time.process_time()
                with without(case):
                    step()
                seconds[",".join(case)].append(time.process_time() - start)
        return {
            "cell": cell,
            "model": bench.recipe.model.name,
            "seconds": {case: min(taken) for case, taken in seconds.items()},
            "gain": {case: gain(seconds[""], taken) for case, taken in seconds.items()},
            "mib": memory(step, cases, PeakMemory(next(run.model.parameters()).device)),
        }


def gain(full: list[float], without: list[float]) -> float:
    """The share of the step without a form that the form saves, the median over the rounds."""
    return 1 - statistics.median(a / b for a, b in zip(full, without, strict=True))


def used(group: tuple[str, ...], names: list[str]) -> bool:
    return any(name.partition(": ")[0] in group for name in names)


def memory(step: Any, cases: list[tuple[str, ...]], meter: Any) -> dict[str, float]:
    """Largest resident MiB of a step by case, above what is there before it."""
    cells.free_at_once()
    step()
    found = {}
    for case in cases:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        meter.start()
        before = meter.read()
        with without(case):
            step()
        found[",".join(case)] = meter.read() - before
    return found


def rows(found: list[dict[str, Any]]) -> list[tuple[str, str, float, float, float, float, float]]:
    """(case, model and cell, ms without, ms with, gain, MiB without, MiB with), by case, largest gain first."""
    all_rows = []
    for one in found:
        full, mib = one["seconds"][""], one["mib"][""]
        for case, seconds in one["seconds"].items():
            if case:
                name = f"{one['model']} ({one['cell']})"
                all_rows.append((case, name, 1e3 * seconds, 1e3 * full, one["gain"][case], one["mib"][case], mib))
    return sorted(all_rows, key=lambda row: (row[0], -row[4]))


def never_used(found: list[dict[str, Any]]) -> list[str]:
    """OPERATION: FORM (devices) of all forms that no step used."""
    from gt_models.kernels.dispatch import all_operations

    used = {case for one in found for case in one["seconds"]}
    return [
        f"{name}: {form.name} ({', '.join(form.devices)})"
        for name, operation in sorted(all_operations().items())
        for form in operation.forms
        if f"{name}: {form.name}" not in used
    ]


def report(found: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        f"{cells.processor()}, one thread.",
        "",
        "| operation: form | model (cell) | ms without | ms with | gain | MiB without | MiB with |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, name, slow, fast, gain, more, less in rows(found):
        numbers = (
            cells.number(slow),
            cells.number(fast),
            f"{100 * gain:.0f} %",
            cells.number(more),
            cells.number(less),
        )
        lines.append(f"| {case} | {name} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def summary(found: list[dict[str, Any]]) -> str:
    """The largest gain of each form, and the forms that no cell used."""
    best: dict[str, float] = {}
    for case, _, _, _, gain, _, _ in rows(found):
        best[case] = max(gain, best.get(case, gain))
    lines = [
        f"{case}: at most {100 * gain:.0f} %{'' if gain >= KEEP else ', too little'}" for case, gain in best.items()
    ]
    return "\n".join([*lines, *(f"{name}: not measured" for name in never_used(found))])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="those of CELLS where none is named")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each case")
    parser.add_argument("--together", nargs="*", default=[], metavar="OPERATION,OPERATION", help="a case for each")
    parser.add_argument("--graphs", type=int, default=cells.GRAPHS, help="graphs of a miniature")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.cells[0], given.data, given.rounds, given.together)))
        return
    cells.GRAPHS = given.graphs
    options, found = ["--rounds", str(given.rounds), "--together", *given.together], []
    for cell in given.cells or CELLS:
        with tempfile.TemporaryDirectory(prefix="gt-forms-") as folder:
            data, _ = cells.prepare(cell, given.data.resolve(), Path(folder))
            found.append(cells.ask(cell, "forms", data, *options, script=__file__))
        print(report(found[-1:]) + "\n", flush=True)
    print(summary(found))


if __name__ == "__main__":
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    main()
