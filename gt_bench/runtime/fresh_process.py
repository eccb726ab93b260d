"""A run in a new interpreter: what a user-supplied model left in one process (counters, hooks, defaults of torch) decides no other run.

    python -m gt_bench.runtime.fresh_process < PICKLED_COMPUTE

multiprocessing's own way (spawn) would run the user's script again, which may have no `if __name__ == "__main__"`.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from gt_bench.runtime.signals import GRACE
from gt_bench.runtime.worker_pool import Ending, Killed, Lost, die_with_parent, portable
from gt_bench.schemas import Record

OnEpoch = Callable[[int, dict[str, float]], None]


def compute_in_new_process(compute: Callable[[OnEpoch], Record], run: str, on_epoch: OnEpoch | None) -> Record:
    """What `compute`, which must pickle, returns in a new interpreter. `run`: its name in messages. Whatever ends this ends the run, which keeps
    a checkpoint. Raises what `compute` raises, and Lost where the process dies."""
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), *sys.path])
    )  # it imports what this process can
    command = [sys.executable, "-m", "gt_bench.runtime.fresh_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    ) as process:
        assert process.stdin is not None  # pipes, as requested
        assert process.stdout is not None
        try:
            with process.stdin as pipe:
                pickle.dump((os.getpid(), compute), pipe)
            ending = None
            while ending is None:
                kind, content = pickle.load(process.stdout)
                if kind == "ended":
                    ending = cast(Ending, content)
                elif on_epoch:
                    on_epoch(*content)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            ending = Ending(status=process.wait())
        except BaseException:
            process.terminate()  # the run ends its epoch and keeps a checkpoint
            try:
                process.wait(GRACE + 0.5)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if ending.error is not None:
        raise ending.error
    if ending.status is not None:
        raise (Killed if ending.killed else Lost)(
            f"{run}: {ending.died}; the run is kept up to its last checkpoint, run the same command again"
        )
    return cast(Record, ending.value)


def main() -> None:
    """Reads what to compute from stdin, and writes pickled messages to stdout; whatever else writes there goes to stderr."""
    import signal

    from gt_bench.runtime.signals import handled
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    with handled(say=False), os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone at a terminal; the parent decides

        def tell(kind: str, content: object) -> None:
            pickle.dump((kind, content), out)
            out.flush()

        try:
            parent, compute = pickle.load(sys.stdin.buffer)
            die_with_parent(parent)
            ending = Ending(compute(lambda epoch, values: tell("epoch", (epoch, values))))
        except Exception as error:
            ending = Ending(error=portable(error))
        tell("ended", ending)


if __name__ == "__main__":
    main()
