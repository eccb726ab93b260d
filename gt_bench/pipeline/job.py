"""The process of a job: it reads the job, does it, and writes its lines.

    python -m gt_bench.pipeline.job < JOB.json

gt_bench/scheduling/job.py starts it and defines the job and its lines.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator

from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.signals import die_with_parent, handled
from gt_bench.runtime.startup import collect_garbage_rarely
from gt_bench.runtime.threads import settle_environment


@contextlib.contextmanager
def _output() -> Iterator[Callable[..., None]]:
    """Yield a `tell` that writes JSON lines to stdout; everything else that is written to stdout goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as lines:
        os.dup2(2, 1)
        yield lambda **line: print(json.dumps(line), file=lines, flush=True)


def main() -> int:
    """Read one job from stdin, do it, and write its lines to stdout."""
    collect_garbage_rarely()
    settle_environment()
    from gt_bench.pipeline.do_job import do  # loads torch, which reads the environment

    # Slurm warns all processes of a job before its time limit; the parent of this one reacts for both.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def work() -> None:
        with handled(say=False), _output() as tell:
            die_with_parent(os.getppid())
            do(json.loads(sys.stdin.read()), tell)

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())
