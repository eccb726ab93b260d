"""SIGTERM and SIGINT: a checkpoint, one line, status 143 or 130, and no change of a number."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import pytest

from gt_bench.runtime import signals
from gt_bench.runtime.exit_status import status_of
from gt_bench.training.checkpoint import Checkpoint
from tests.conftest import ROOT
from tests.gt_bench.training.small_run import REGRESSION, curves, make

CELL = "small/web/mlp"


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def stopped(run, at: int, number: int = signal.SIGTERM, times: int = 1) -> int:
    """Train, send the signal in epoch `at`, and return the status."""

    def on_epoch(epoch, values):
        if epoch == at:
            for _ in range(times):
                send(number)

    run.on_epoch = on_epoch
    with signals.handled(), pytest.raises(signals.Stopped) as caught:
        run.train()
    return caught.value.code


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_ends_with_a_checkpoint_and_continues_as_if_uninterrupted(tmp_path, capsys, number, status):
    before = signal.getsignal(number)
    whole = make(tmp_path).train()
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    assert stopped(make(tmp_path, checkpoint=checkpoint), 2, number) == status
    assert capsys.readouterr().err == f"stopped by {number.name}; run the same command again to resume\n"
    assert len(checkpoint.read()[0]["curves"]["epoch"]) == 2
    assert curves(make(tmp_path, checkpoint=checkpoint).train()) == curves(whole)
    assert signal.getsignal(number) is before


def test_in_its_last_epoch_a_run_is_finished(tmp_path):
    run = make(tmp_path)
    run.on_epoch = lambda epoch, values: epoch == 6 and send(signal.SIGTERM)
    with signals.handled():
        assert run.train().status == "ok"
        with pytest.raises(signals.Stopped):  # the next seed does not start
            make(tmp_path).train()


def test_patience_that_is_used_up_is_so_after_a_stop(tmp_path):
    case = {**REGRESSION, "epochs": 40, "patience": 1, "optimizer": {"name": "adam", "lr": 0.3}}
    whole = make(tmp_path, **case).train()
    last = len(whole.curves["epoch"])
    assert last < 40
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    stopped(make(tmp_path, checkpoint=checkpoint, **case), last)
    assert curves(make(tmp_path, checkpoint=checkpoint, **case).train()) == curves(whole)


def test_an_epoch_that_outlasts_the_grace_is_left(tmp_path, monkeypatch):
    """Only that epoch is lost: long epochs are saved one by one."""
    monkeypatch.setattr(signals, "GRACE", 0.0)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    run = make(tmp_path, checkpoint=checkpoint, **REGRESSION)
    checkpoint_costs(monkeypatch, 0.0)
    original, steps = run.evaluator.predict, []

    def predict(model, batch, rows):
        steps.append(None)
        if len(steps) == 8:  # during an epoch
            send(signal.SIGTERM)
            time.sleep(0.001)
        return original(model, batch, rows)

    run.evaluator.predict = predict
    with signals.handled(), pytest.raises(signals.Stopped):
        run.train()
    assert len(steps) == 8
    done = len(checkpoint.read()[0]["curves"]["epoch"])
    assert done == run.epoch > 0


def checkpoint_costs(monkeypatch, seconds: float) -> None:
    monkeypatch.setattr(Checkpoint, "cost", property(lambda self: seconds, lambda self, value: None), raising=False)


def test_long_epochs_are_not_stored_one_by_one_where_that_would_take_long(tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "GRACE", 0.0)
    checkpoint_costs(monkeypatch, 1e9)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    make(tmp_path, checkpoint=checkpoint).train()
    assert not checkpoint.path.exists()


def test_signals_at_the_same_time_are_one(tmp_path, capsys):
    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)  # does not interrupt the clean-up

    with signals.handled(), pytest.raises(signals.Stopped):
        work()
    assert capsys.readouterr().err.count("stopped by SIGTERM") == 1
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    stopped(make(tmp_path, checkpoint=checkpoint), 2, times=2)
    assert len(checkpoint.read()[0]["curves"]["epoch"]) == 2


def test_a_later_signal_and_one_outside_of_a_run_stop_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "TOGETHER", 0.0)
    with signals.handled(), pytest.raises(signals.Stopped):
        send(signal.SIGTERM)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", seconds=1e9)
    assert stopped(make(tmp_path, checkpoint=checkpoint), 2, times=2) == 143
    assert not checkpoint.path.exists()
    assert not signals.pending()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"),
    [(["-m", "stages.train", CELL], signal.SIGTERM), (["-m", "gt_bench.cli", "train", CELL], signal.SIGINT)],
)
def test_a_stage_that_is_told_to_stop(project, command, number):
    project.recipe(epochs=100_000, seeds=[3])
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(Path("store").rglob("checkpoint.safetensors")):
        assert time.monotonic() < deadline, "no checkpoint appeared"
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert said == f"stopped by {number.name}; run the same command again to resume\n"
    assert list(Path("store").rglob("checkpoint.safetensors"))


def test_a_process_that_has_only_been_started_ends_without_a_word(capfd):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=signals.accept_interrupts) as pool:
        with signals.interrupts_blocked():
            waiting = pool.submit(time.sleep, 60)
        (process,) = pool._processes.values()
        os.kill(process.pid, signal.SIGINT)
        with pytest.raises(BrokenProcessPool):
            waiting.result(60)
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_a_stage_that_is_being_imported_ends_without_a_word(tmp_path):
    (tmp_path / "yaml.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "stages.leaderboard", "x"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_is_reported_once_a_command_runs(capsys):
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert status_of(lambda: signal.raise_signal(signal.SIGINT)) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "stopped; run the same command again to resume\n"


@pytest.mark.slow
def test_a_worker_whose_parent_has_ended_exits_without_a_traceback():
    """A process pool would print the SystemExit of its initialiser."""
    code = (
        "from gt_bench.runtime.signals import die_with_parent\ntry: die_with_parent(1 << 22)\nfinally: print('unwound')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
