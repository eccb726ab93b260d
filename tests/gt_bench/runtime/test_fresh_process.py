"""A run in a new interpreter: its messages, its errors, and what happens when it is killed or stopped."""

import os
import signal

import psutil
import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.runtime.fresh_process import compute_in_new_process
from gt_bench.runtime.worker_pool import Killed, Lost
from tests.refusals import refused

pytestmark = pytest.mark.slow


class Tells:
    def __call__(self, on_epoch):
        print("this is no message")
        on_epoch(1, {"pid": os.getpid()})
        return {"pid": os.getpid()}


class Raises:
    def __call__(self, on_epoch):
        raise RecipeError("no", file="recipe.yaml")


class Dies:
    def __init__(self, number):
        self.number = number

    def __call__(self, on_epoch):
        os.kill(os.getpid(), self.number)


class Endless:
    def __call__(self, on_epoch):
        while True:
            on_epoch(1, {"pid": os.getpid()})


def test_epochs_and_the_result_reach_the_parent():
    told = []
    found = compute_in_new_process(Tells(), "run", lambda *what: told.append(what))
    assert found["pid"] != os.getpid()
    assert told == [(1, found)]


def test_errors_and_deaths_of_the_process_are_raised():
    with refused(RecipeError, file="recipe.yaml", problem="no"):
        compute_in_new_process(Raises(), "run", None)
    with pytest.raises(
        Killed, match="run: killed by signal 9: probably out of memory; the last checkpoint of the run is saved"
    ):
        compute_in_new_process(Dies(signal.SIGKILL), "run", None)
    with pytest.raises(Lost, match="killed by signal 6"):
        compute_in_new_process(Dies(signal.SIGABRT), "run", None)


def test_an_interrupt_of_the_parent_ends_the_process():
    pids = []

    def enough(_, values):
        pids.append(values["pid"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute_in_new_process(Endless(), "run", enough)
    assert not psutil.pid_exists(*pids)
