"""Ctrl-C ends what has only begun to import without a traceback."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest

from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.signals import accept_interrupts, interrupts_blocked
from tests.conftest import ROOT


def test_a_process_that_has_only_been_started_ends_without_a_word(capfd):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=accept_interrupts) as pool:
        with interrupts_blocked():
            waiting = pool.submit(time.sleep, 60)
        (process,) = pool._processes.values()
        os.kill(process.pid, signal.SIGINT)
        with pytest.raises(BrokenProcessPool):
            waiting.result(60)
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_stage_that_is_being_imported_ends_without_a_word(tmp_path):
    (tmp_path / "yaml.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # a shell has what it starts in the background ignore Ctrl-C, these tests too
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    command = [sys.executable, "-m", "stages.leaderboard", "x"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, **heard)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_from_its_command_on_it_is_said(capsys):
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert status_of(lambda: signal.raise_signal(signal.SIGINT)) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "stopped; run the same command again to resume\n"
