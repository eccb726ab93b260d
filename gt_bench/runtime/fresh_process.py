"""New Python interpreters as child processes, and one that computes a run.

    python -m gt_bench.runtime.fresh_process < PICKLED_COMPUTE

A user-supplied model may leave state in its process (counters, hooks, defaults of torch), which must not affect other
runs. The "spawn" method of multiprocessing would execute the user's script again, which may have no
`if __name__ == "__main__"`.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any, cast

from gt_bench.records.run import RunRecord
from gt_bench.runtime.signals import GRACE, die_with_parent, handled, ignore_interrupts
from gt_bench.runtime.startup import collect_garbage_rarely
from gt_bench.runtime.threads import settle_environment
from gt_bench.runtime.worker_pool import Killed, Lost, TaskResult, portable
from gt_bench.utils.code_digest import ROOT

OnEpoch = Callable[[int, dict[str, float]], None]


def child_environment(paths: Iterable[str] | None = None) -> dict[str, str]:
    """Return environment variables with which a child process imports the same code as this process.

    Another version of the code may be installed under the same name, and it would compute different runs.

    Args:
        paths: further entries of PYTHONPATH; by default those of this process.
    """
    paths = [os.environ.get("PYTHONPATH", "")] if paths is None else paths
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *paths]))}


def terminate(process: subprocess.Popen[Any]) -> None:
    """Send SIGTERM, so that a run finishes its epoch and saves a checkpoint; send SIGKILL after `GRACE`."""
    process.terminate()
    try:
        process.wait(GRACE + 0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def compute_in_new_process(compute: Callable[[OnEpoch], RunRecord], run: str, on_epoch: OnEpoch | None) -> RunRecord:
    """Call `compute(on_epoch)` in a new interpreter. An exception here terminates the run, which saves a checkpoint.

    Args:
        compute: must pickle.
        run: name of the run in messages.
        on_epoch: called in this process after each epoch.

    Returns:
        What `compute` returns.

    Raises:
        Lost: the process died. Otherwise an error of `compute` is raised.
    """
    command = [sys.executable, "-m", "gt_bench.runtime.fresh_process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(sys.path)
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin as pipe:
                pickle.dump((os.getpid(), compute), pipe)
            result = None
            while result is None:
                kind, content = pickle.load(process.stdout)
                if kind == "ended":
                    result = cast(TaskResult, content)
                elif on_epoch:
                    on_epoch(*content)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            result = TaskResult(status=process.wait())
        except BaseException:
            terminate(process)
            raise
    if result.error is not None:
        raise result.error
    if result.status is not None:
        raise (Killed if result.killed else Lost)(
            f"{run}: {result.died}; the last checkpoint of the run is saved, run the same command again to resume"
        )
    return cast(RunRecord, result.value)


def main() -> None:
    """Read what to compute from stdin and write pickled messages to stdout; other output goes to stderr."""
    collect_garbage_rarely()
    settle_environment()
    with handled(say=False), os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        ignore_interrupts()

        def tell(kind: str, content: object) -> None:
            pickle.dump((kind, content), out)
            out.flush()

        try:
            parent, compute = pickle.load(sys.stdin.buffer)
            die_with_parent(parent)
            result = TaskResult(compute(lambda epoch, values: tell("epoch", (epoch, values))))
        except Exception as error:
            result = TaskResult(error=portable(error))
        tell("ended", result)


if __name__ == "__main__":
    main()
