"""Seeds of a cell in parallel: when another process saves time, and seeds that are killed."""

import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.experiment import train_seeds
from gt_bench.experiment.run import Experiment
from gt_bench.experiment.train_seeds import Pace
from gt_bench.pipeline.train import train_cell
from gt_bench.runtime.environment import GPU_CONTEXT, gpu_fraction, share_gpu
from gt_bench.store.run_store import Store


def test_a_process_is_started_if_it_finishes_before_the_running_ones(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def pace(first, each, epochs, reports):
        clock[0] = 0.0
        found = Pace(reports)
        found.start(0)
        for number in range(epochs):
            clock[0] += each if number else first
            found.epoch(0)
        return found

    assert not pace(2.0, 0.1, 1, 100).pays(9), "one epoch does not show the time per epoch"
    assert pace(30.0, 0.1, 1, 100).pays(9), "a first epoch of 30 s is not warm-up"
    assert pace(2.0, 0.1, 2, 100).pays(1)  # 12 s with it, 20 s without
    assert not pace(2.0, 0.1, 2, 10).pays(1)  # 3 s with it, 2 s without
    assert not pace(2.0, 0.1, 90, 100).pays(1)  # the running process is almost finished


def no_memory():
    raise MemoryError("none is left")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "out of memory"])
def test_seeds_that_lack_memory_next_to_others_are_run_again_alone(project, monkeypatch, capsys, how):
    project.recipe(seeds=[0, 1], run={"parallel": 2})
    compute, grid = Experiment.run, load_grid()

    def lacks_memory(experiment, seed, shared=False, **others):
        if shared and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if shared:
            experiment.initial_model = lambda seed: no_memory
        return compute(experiment, seed, shared=shared, **others)

    monkeypatch.setattr(Experiment, "run", lacks_memory)
    monkeypatch.setattr(Pace, "pays", lambda *_: True)
    assert train_cell(grid.find("small/web/mlp"), grid).status == "ok"
    assert [record.run.status for record in project.records()] == ["ok"] * 2
    assert capsys.readouterr().out.count("run alone") == 2


@pytest.mark.parametrize("error", [None, MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_a_seed_without_memory_is_a_result_of_that_seed_alone(project, monkeypatch, error):
    """`None`: the kernel kills it."""
    project.recipe(seeds=[0, 1], run={"parallel": 2})
    compute, grid, cell = Experiment.run, load_grid(), "small/web/mlp"
    kills = Path("kills")
    kills.touch()

    def lacks_memory(experiment, seed, **options):
        if seed == 1:
            if error is not None:
                raise error
            kills.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(experiment, seed, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "run", lacks_memory)
        patch.setattr(train_seeds, "oom_kills", lambda: len(kills.read_text()))
        assert train_cell(grid.find(cell), grid).status == "oom"
    assert {record.run.seed: record.run.status for record in project.records()} == {0: "ok", 1: "oom"}
    assert train_cell(grid.find(cell), grid).status == "oom"  # it is not computed again


@pytest.mark.slow
def test_seeds_side_by_side_on_a_gpu_have_the_numbers_of_one_by_one(project, monkeypatch):
    """What a GPU uses, on a CPU: new interpreters next to each other, each with its share of the memory."""
    project.recipe("many", batch={"graphs": 4})  # with dropout, and batches in random order
    grid = load_grid()
    cell = grid.find("small/many/mlp")

    def train(store, parallel):
        run = grid.run.model_copy(update={"parallel": parallel})
        result = train_cell(cell, grid.model_copy(update={"run": run}), store_root=Path(store))
        assert result.status == "ok"
        records = Store(store).records()
        return {record.digest: record.run for record in records}

    alone = train("alone", 1)
    assert len(alone) == 2
    launch, create = train_seeds.compute_in_new_process, Experiment.__post_init__

    def launched(compute, *others):
        with open("launched", "a", encoding="utf-8") as file:
            _, seed, processes = compute.args
            file.write(f"{seed} of {processes}\n")
        return launch(compute, *others)

    def on_gpu(experiment):
        create(experiment)
        experiment.device = SimpleNamespace(type="cuda")  # of this process: the new ones choose their own

    monkeypatch.setattr(train_seeds, "compute_in_new_process", launched)
    monkeypatch.setattr(Pace, "pays", lambda *_: True)
    monkeypatch.setattr(Experiment, "__post_init__", on_gpu)
    monkeypatch.setattr(Experiment, "_settled", lambda experiment, digest: experiment.store.get(digest))
    assert train("together", 2) == alone
    assert sorted(Path("launched").read_text().splitlines()) == ["0 of 2", "1 of 2"]


def test_shares_of_a_gpu():
    gib = 2**30
    assert gpu_fraction(80 * gib, 4) == pytest.approx(0.25 - 0.75 / 80)
    assert 4 * gpu_fraction(80 * gib, 4) * 80 * gib + 4 * GPU_CONTEXT == pytest.approx(80 * gib)
    with pytest.raises(ValueError, match=r"100 processes do not fit on a GPU with 81920 MiB, .* to 53 or less"):
        gpu_fraction(80 * gib, 100)
    assert gpu_fraction(80 * gib, 53) > 0
    share_gpu(torch.device("cpu"), 100)  # the CPU has its own limits
