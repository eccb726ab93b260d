"""Compare golden runs of a changed copy of the code with the saved golden values, outside the working tree."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("gt_bench", "gt_models", "stages")
LINKED = ("suites", "tests", "grid.yaml", "params.yaml")
FAMILIES = "tests.gt_bench.data.family_values"
SECONDS = 400
# "losses[3] was 0.51, now 0.52: if this is meant, ..." of gt_bench.experiment.golden_values.differs
DIFFERENCE = re.compile(r"(\w\S*) was .+?, now .+?: if this is meant")


@dataclass(frozen=True)
class Edit:
    """Replaces `old`, which occurs exactly `count` times in `file`, by `new`; an empty `old` appends `new`."""

    file: str
    old: str
    new: str
    count: int = 1


@dataclass(frozen=True)
class Checked:
    """Result of a check of cells.

    Attributes:
        status: exit status.
        quantities: of each cell that differs, the first quantity that does.
        output: the complete output.
    """

    status: int
    quantities: tuple[str, ...]
    output: str

    def said(self) -> str:
        """The first line about a cell that is not "ok", or the last line."""
        lines = self.output.splitlines() or ["nothing was printed"]
        return next((line for line in lines if line.startswith("[") and ": ok (" not in line), lines[-1])


def applied(text: str, edit: Edit) -> str:
    """`text` with the edit. Raises ValueError if `old` does not occur exactly `count` times."""
    if not edit.old:
        return text + edit.new
    if (found := text.count(edit.old)) != edit.count:
        wanted = f"{edit.count}: write the edit for the current code"
        raise ValueError(f"{edit.file}: {edit.old!r} occurs {found} times, expected {wanted}")
    return text.replace(edit.old, edit.new)


@contextmanager
def changed_copy(edits: Iterable[Edit]) -> Iterator[Path]:
    """A temporary folder with the code, changed by `edits`, and links to the files that it reads."""
    with tempfile.TemporaryDirectory(prefix="gt-mutant-") as name:
        root = Path(name)
        for folder in COPIED:  # with the byte code, so that unchanged modules are not compiled again
            shutil.copytree(ROOT / folder, root / folder)
        for path in LINKED:
            (root / path).symlink_to(ROOT / path)
        for edit in edits:
            path = root / edit.file
            path.write_text(applied(path.read_text(), edit))
        yield root


def check(edits: Iterable[Edit], cells: Sequence[str]) -> Checked:
    """Compares golden runs of `cells`, or the output for raw files of datasets, with the saved values."""
    script = [str(Path(__file__).with_name("here.py"))] if "/" in cells[0] else ["-m", FAMILIES]
    with changed_copy(edits) as root:
        environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *script, *cells],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    found = [match[1] for line in lines if (match := DIFFERENCE.search(line))]
    return Checked(done.returncode, tuple(found), done.stdout)


def check_all(jobs: Sequence[tuple[Sequence[Edit], Sequence[str]]], workers: int = 2) -> Iterator[Checked]:
    """`check` of each (edits, cells), in order, with `workers` at once."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda job: check(*job), jobs)
