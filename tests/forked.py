"""A process forked from the test: it has imported everything already, and can be killed."""

import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gt_bench.pipeline.do_job import do
from gt_bench.runtime.exit_status import status_of
from gt_bench.scheduling.job import Job, as_json

fork = multiprocessing.get_context("fork")


def status(work: Callable[[], Any]) -> int:
    """Return the exit status of a process that does this: of a command 0, 1, ...; 99 after a traceback."""
    code = 99
    try:
        code = status_of(lambda: work() and None)  # the return value of a stage is not a status
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException as error:  # such as Exit of typer
        code = getattr(error, "exit_code", 99)
        if code == 99:
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def do_in_fork(most: int, alone: object, job: Job, tell: Callable[..., None]) -> int:
    """Do a job of the queue in its fork, in place of `local_queue._launch`, whose process imports everything again."""
    do(json.loads(as_json(job, shared=False)), lambda **line: tell(line))
    return 0


class Forked:
    """A forked process that does `work` in `folder`.

    Attributes:
        said: its output, which is in the file `log`.
        status: its exit status, as in `multiprocessing`.
    """

    def __init__(self, work: Callable[[], Any], folder: Path, log: Path):
        self.log = log
        self.process = fork.Process(target=self._do, args=(work, folder))
        self.process.start()

    def _do(self, work: Callable[[], Any], folder: Path) -> None:
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        # the parent may have replaced them
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        os.chdir(folder)
        os._exit(status(work))

    def end(self, seconds: float = 300.0) -> "Forked":
        self.process.join(seconds)
        if self.is_alive():
            self.kill()
            raise AssertionError(f"not ended within {seconds:g} s: {self.said}")
        return self

    def is_alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    @property
    def status(self) -> int:
        return self.process.exitcode

    @property
    def said(self) -> str:
        return self.log.read_text()
