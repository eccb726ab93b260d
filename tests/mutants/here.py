"""`python -m gt_bench.testing.check_grid CELL ...` in one process, because a start takes longer than a golden run.

Runs as a script in a changed copy of the code, so it imports nothing from tests.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def compute_here(cells: Sequence[str], root: Path, workers: int, say: Callable, *others: object) -> None:
    """Golden runs of `cells` in this process; replaces `gt_bench.testing.golden_run.compute_all`."""
    from gt_bench.testing import golden_run

    golden_run._begin(os.getppid())
    with tempfile.TemporaryDirectory(prefix="gt-golden-") as folder:
        data = Path(folder)
        failed = golden_run.miniatures(cells, data, root)
        for cell in cells:
            if cell in failed:
                say(golden_run.Computed(cell, 0.0, error=failed[cell]))
            else:
                say(golden_run.compute(cell, data, root))


if __name__ == "__main__":
    from gt_bench.testing import check_grid

    check_grid.compute_all = compute_here  # type: ignore[assignment]
    sys.exit(check_grid.main(sys.argv[1:]))
