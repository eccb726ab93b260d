"""The loop: bit-for-bit determinism, resuming, selection on validation, phases, and failures as results."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gt_bench.tasks.registry import create_task
from gt_bench.training.checkpoint import Checkpoint, OutsideState
from gt_bench.training.failures import StateError, WrongOutput
from gt_models.kernels import dispatch
from tests.gt_bench.runs import Killed
from tests.gt_bench.training.small_run import REGRESSION, Net, curves, make


@pytest.mark.parametrize(
    "case",
    [{}, {"batch": {"parts": 3}}, REGRESSION, {**REGRESSION, "batch": {"nodes": 20}}, {**REGRESSION, "batch": {}}],
)
def test_two_runs_agree_bit_for_bit_and_seeds_differ(tmp_path, case):
    first, second = make(tmp_path, **case).train(), make(tmp_path, **case).train()
    assert curves(first) == curves(second)
    assert make(tmp_path, seed=1, **case).train().curves["train_loss"] != first.curves["train_loss"]
    assert first.status == "ok"
    assert len(first.curves["val"]) == 6


def resumed(tmp_path, killed_at, **case):
    """A run that continues one that was killed in this epoch, after its checkpoint was written."""
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    run = make(tmp_path, checkpoint=checkpoint, **case)

    def kill(epoch, values):
        if epoch == killed_at:
            run._save()
            raise Killed

    run.on_epoch = kill
    with pytest.raises(Killed):
        run.train()
    return make(tmp_path, checkpoint=checkpoint, **case)


def evaluations(run):
    """The parts that the run will have evaluated."""
    asked, original = [], run.loader.evaluation
    run.loader.evaluation = lambda part: asked.append(part) or original(part)
    return asked


@pytest.mark.parametrize(
    "case",
    [
        {},
        REGRESSION,
        {"phases": [{"name": "a", "epochs": 3}, {"name": "b", "epochs": 3, "reload_best": True}], "epochs": None},
        {  # an optimiser without state
            "phases": [{"name": "a", "epochs": 3}, {"name": "b", "epochs": 3, "reload_best": True}],
            "epochs": None,
            "optimizer": {"name": "sgd", "lr": 0.1},
        },
    ],
)
@pytest.mark.parametrize("killed_at", [1, 3, 4])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, case, killed_at):
    run = resumed(tmp_path, killed_at, **case)
    assert curves(run.train()) == curves(make(tmp_path, **case).train())
    assert run.meter.totals["train"] > 0


@pytest.mark.parametrize("killed_at", [2, 6])
def test_a_resumed_run_knows_the_forms_that_it_trained_with(tmp_path, killed_at, monkeypatch):
    """Even if nothing was left to train."""
    monkeypatch.setattr(dispatch, "OPERATIONS", {})
    doubled = dispatch.Operation("doubled", lambda x: 2 * x)

    class OperationNet(Net):
        def forward(self, batch):
            return doubled(super().forward(batch))

    def build():
        return OperationNet(5, 3)

    whole, run = make(tmp_path, build=build), resumed(tmp_path, killed_at, build=build)
    whole.train()
    run.train()
    assert set(whole.forms["training"]["doubled"]) == {"reference"}
    assert run.forms == whole.forms


def test_the_epoch_is_chosen_on_validation_and_tested_once(tmp_path):
    run = make(tmp_path, epochs=15)
    asked, outcome = evaluations(run), run.train()
    best = max(outcome.curves["val"])
    assert outcome.best_epoch == outcome.curves["val"].index(best) + 1
    assert outcome.val == best
    assert asked == ["val"] * 15 + ["test"]
    # the weights are those of the best epoch
    run.model.load_state_dict(run.best["model"])
    run.model.eval()
    whole = run.loader.whole
    rows = run.loader.ids["test"]
    assert outcome.test == (run.model(whole)[rows].argmax(-1) == whole.y[rows]).double().mean().item()


class Annealed(Net):
    """A model whose outputs shrink with every training step, so that its first epoch is the best by accuracy."""

    def __init__(self, create):
        super().__init__(5, 3)
        create(self, torch.zeros(()))

    def forward(self, batch):
        """Returns outputs of `Net`, later the opposite."""
        if self.training:
            self.step += 1
        return super().forward(batch) * (2.5 - self.step)


@pytest.mark.parametrize(
    ("create", "is_saved"),
    [
        (lambda net, step: setattr(net, "step", step), False),
        (lambda net, step: net.register_buffer("step", step, persistent=False), False),
        (lambda net, step: net.register_buffer("step", step), True),
    ],
)
def test_state_that_a_checkpoint_does_not_hold_is_found(tmp_path, create, is_saved):
    """The test metrics would be of no epoch: weights of the best, other state of the last."""
    run = make(tmp_path, build=lambda: Annealed(create), epochs=6, optimizer={"name": "adam", "lr": 0.01})
    run.kept.limit = 2**20
    if is_saved:
        outcome = run.train()
        assert (outcome.status, outcome.best_epoch < 6) == ("ok", True)
        return
    with pytest.raises(StateError, match=r"with the weights of epoch [1-5], the loss on validation is .*buffer"):
        run.train()


class Counting(Net):
    """Draws and counts outside of its state_dict, in training only."""

    def __init__(self, kind=np.random.PCG64):
        super().__init__(5, 3)
        self.steps, self.losses, self.mean = 0, [1.0], torch.zeros(())
        self.draws, self.numbers = torch.Generator().manual_seed(1), np.random.Generator(kind(1))
        self.register_buffer("noise", torch.zeros(()), persistent=False)
        self.view, self.place = next(self.parameters()).detach(), "cpu"
        self.initial = next(self.parameters()).detach()

    def forward(self, batch):
        """Returns outputs that depend on the number of steps before."""
        out = super().forward(batch)
        if not self.training:
            return out
        self.steps += 1
        self.losses.append(float(self.losses[-1] / 2))
        self.mean = self.mean + 0.1
        self.noise += torch.rand((), generator=self.draws) + self.numbers.random()
        self.initial = 0.9 * self.initial
        return out * (1 + self.steps * self.losses[-1] + self.mean + self.noise + self.view.sum() + self.initial.sum())


@pytest.mark.parametrize(
    ("killed_at", "kind"), [(1, np.random.PCG64), (4, np.random.MT19937), (1, np.random.Philox), (4, np.random.SFC64)]
)
def test_a_resumed_run_continues_with_what_a_model_counts_and_draws(tmp_path, killed_at, kind):
    case = {"build": lambda: Counting(kind)}
    assert curves(resumed(tmp_path, killed_at, **case).train()) == curves(make(tmp_path, **case).train())


def test_only_what_has_changed_is_restored_and_views_stay_views():
    before, after = Counting(), Counting()
    state, restored = OutsideState(before), OutsideState(after)
    before.view.add_(1)  # with the parameter
    before.steps, before.initial = 7, before.initial * 0
    after.place = "cuda:1"
    after.load_state_dict(before.state_dict())
    restored.restore(*state.read())
    parameter = next(after.parameters())
    assert after.view.data_ptr() == parameter.data_ptr() != after.initial.data_ptr()
    assert torch.equal(parameter, before.view)
    assert (after.steps, float(after.initial.sum()), after.place) == (7, 0.0, "cuda:1")


class CreatedLate(Net):
    def forward(self, batch):
        """Creates a parameter that the optimiser does not know."""
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(()))
        return super().forward(batch) * self.scale


class Growing(Net):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.register_buffer("queue", torch.zeros(1))

    def forward(self, batch):
        """Appends to a buffer."""
        self.queue = torch.cat([self.queue, torch.ones(1)])
        return super().forward(batch)


class WithExtraState(Net):
    def get_extra_state(self):
        """Returns what is no tensor."""
        return {"calls": 1}

    def set_extra_state(self, state):
        """Does nothing."""


class Complex(Net):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.spectrum = nn.Parameter(torch.ones(8, dtype=torch.cfloat))


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (CreatedLate, "scale of its state_dict is missing after"),
        (Growing, r"queue .* is \[1\] after"),
        (WithExtraState, "_extra_state of its state_dict is a dict"),
        (Complex, "spectrum is complex"),
    ],
)
def test_state_that_cannot_be_saved_is_refused(tmp_path, net, says):
    with pytest.raises(StateError, match=f"model {net.__name__}: .*{says}"):
        make(tmp_path, build=lambda: net(5, 3)).train()


def test_select_test_chooses_the_epoch_on_the_test_split_and_trains_the_same(tmp_path):
    authors = {"select": "test", "origin": {"select": "authors: main.py"}}
    usual, run = make(tmp_path, epochs=15).train(), make(tmp_path, epochs=15, **authors)
    asked, outcome = evaluations(run), run.train()
    assert asked == ["test"] * 16
    assert outcome.curves["train_loss"] == usual.curves["train_loss"]
    assert outcome.test == outcome.val == max(outcome.curves["val"]) >= usual.test
    # the predictions are those of the tested weights, in both parts
    again = make(tmp_path, epochs=15, **authors)
    again.kept.limit = 10**6
    again.train()
    assert set(again.kept.parts) == {"val", "test"}


def test_a_search_trial_never_reads_the_test_split(tmp_path):
    run = make(tmp_path)
    asked, outcome = evaluations(run), run.train(test=False)
    assert (outcome.test, set(asked)) == (None, {"val"})


@pytest.mark.parametrize(
    ("changes", "validated"), [({"eval_every": 3}, [3, 6, 7]), ({"eval_every": 2, "eval_after": 3}, [4, 6, 7])]
)
def test_epochs_with_validation(tmp_path, changes, validated):
    outcome = make(tmp_path, epochs=7, **changes).train()
    assert [epoch for epoch, value in enumerate(outcome.curves["val"], 1) if value is not None] == validated


def test_patience_counts_from_the_first_validation(tmp_path):
    still = make(tmp_path, epochs=50, patience=2, optimizer={"name": "sgd", "lr": 1e-12}).train()
    assert len(still.curves["val"]) < 50
    assert len(make(tmp_path, eval_after=5, patience=3, epochs=7).train().curves["epoch"]) == 7


def test_evaluation_on_another_device_changes_no_number(tmp_path):
    here, there = make(tmp_path), make(tmp_path, eval_device="cpu")
    assert there.evaluator.loader is not there.loader
    assert curves(here.train()) == curves(there.train())
    assert next(there.model.parameters()).device == there.device
    elsewhere = there.loader.on(torch.device("meta"))
    assert elsewhere.whole.x.device.type == "meta"
    assert there.loader.whole.x.device.type == "cpu"


def test_phases_are_told_to_the_model_and_the_best_is_reloaded(tmp_path):
    nets = []

    def build():
        nets.append(Net(5, 3))
        return nets[-1]

    phases = [{"name": "local", "epochs": 2}, {"name": "global", "epochs": 3, "reload_best": True}]
    run = make(tmp_path, build=build, epochs=None, phases=phases)
    at_start = []
    original = run._train_epoch
    run._train_epoch = lambda: at_start.append({k: v.clone() for k, v in run.model.state_dict().items()}) or original()
    best_after = []
    run.on_epoch = lambda epoch, values: best_after.append({k: v.clone() for k, v in run.best["model"].items()})
    run.train()
    assert nets[0].phases[:5] == ["local"] * 2 + ["global"] * 3
    assert all(torch.equal(at_start[2][k], best_after[1][k]) for k in at_start[2])


def test_a_loss_that_is_not_a_number_is_a_record(tmp_path):
    class Bad(Net):
        calls = 0

        def forward(self, batch):
            self.calls += self.training
            return super().forward(batch) * (math.nan if self.training and self.calls > 2 else 1)

    outcome = make(tmp_path, build=lambda: Bad(5, 3)).train()
    assert (outcome.status, outcome.test, len(outcome.curves["val"])) == ("diverged", None, 2)
    assert "epoch 3" in outcome.error


def test_out_of_memory_is_a_record_and_a_bug_is_not(tmp_path):
    class Greedy(Net):
        def forward(self, batch):
            return super().forward(batch) + torch.empty(2**60)[:1]

    outcome = make(tmp_path, build=lambda: Greedy(5, 3)).train()
    assert outcome.status == "oom"
    assert "epoch 1" in outcome.error

    class Broken(Net):
        def forward(self, batch):
            raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        make(tmp_path, build=lambda: Broken(5, 3)).train()


class Hidden(Net):
    """A model with a parameter whose gradient is not finite, although all outputs are."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.root = nn.Parameter(torch.zeros(1))

    def forward(self, batch):
        return super().forward(batch) + 0 * self.root.sqrt().nan_to_num()


def on_validation(value):
    class Late(Net):
        def forward(self, batch):
            out = super().forward(batch)
            return out if self.training else out * value

    return Late


@pytest.mark.parametrize(
    ("build", "case", "error"),
    [
        (lambda: Hidden(5, 3), {}, "weights are not finite after epoch 1: root"),
        (lambda: on_validation(math.inf)(5, 3), {"eval_every": 2}, "outputs on val are not finite in epoch 2"),
        (lambda: on_validation(math.nan)(5, 3), {}, "outputs on val are not finite in epoch 1"),
        (
            lambda: on_validation(1e30)(4, 1, graph=True),
            REGRESSION | {"loss": "mse"},
            "the loss on val is inf in epoch 1",
        ),
    ],
)
def test_a_value_that_is_not_finite_ends_the_run_as_diverged(tmp_path, build, case, error):
    run = make(tmp_path, build=build, **case)
    if "loss" in case:
        run.task = run.evaluator.task = create_task("graph-regression", "mae", "mse")
    outcome = run.train()
    assert (outcome.status, outcome.error, outcome.test) == ("diverged", error, None)


def test_outputs_on_test_that_are_not_finite_name_the_best_epoch(tmp_path):
    run = make(tmp_path)
    original = run.loader.evaluation

    def evaluation(part):
        for batch, rows in original(part):
            yield replace(batch, x=batch.x * (math.nan if part == "test" else 1)), rows

    run.loader.evaluation = evaluation
    outcome = run.train()
    error = f"outputs on test are not finite in epoch {outcome.best_epoch}"
    assert (outcome.status, outcome.error) == ("diverged", error)


class Odd(nn.Module):
    """A model whose output is changed by `change` after `step` forward passes, evaluation included."""

    def __init__(self, net, change, step=0):
        super().__init__()
        self.net, self.change, self.step, self.calls = net, change, step, 0

    def forward(self, batch):
        self.calls += 1
        out = self.net(batch)
        return self.change(out) if self.calls > self.step else out


@pytest.mark.parametrize(
    ("case", "change", "got"),
    [
        ({}, lambda out: out.repeat(1, 3)[:, :8], r"shape \[60, 8\], but node-classification requires .* \[60, 3\]"),
        ({}, lambda out: out[:, :2], r"shape \[60, 2\]"),
        ({}, lambda out: out.repeat(60, 1), r"shape \[3600, 3\]"),
        ({}, lambda out: out.unsqueeze(0), r"shape \[1, 60, 3\]"),
        ({}, lambda out: out.argmax(1), r"torch.int64 of shape \[60\]"),
        ({}, lambda out: (out, out), "tuple"),
        (REGRESSION, lambda out: out.squeeze(1), r"shape \[4\], but graph-regression requires .* \[4, 1\]"),
        (REGRESSION, lambda out: out.expand(-1, 4), r"shape \[4, 4\]"),
        (REGRESSION, lambda out: out.mean(0, keepdim=True), r"shape \[1, 1\]"),
    ],
)
@pytest.mark.parametrize("step", [0, 1])
def test_an_output_of_another_shape_is_no_result(tmp_path, case, change, got, step):
    net = Net(4, 1, graph=True) if case else Net(5, 3)
    with pytest.raises(
        WrongOutput,
        match=rf"model Odd \(tests.gt_bench.training.test_trainer\) on dataset '(web|many)': its output is {got}",
    ):
        make(tmp_path, build=lambda: Odd(net, change, step), **case).train()


def test_a_time_limit_is_a_record_that_a_higher_limit_continues(tmp_path):
    whole = make(tmp_path).train()
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    run = make(tmp_path, checkpoint=checkpoint)
    run.time_limit = 0.0
    outcome = run.train()
    assert outcome.status == "timed-out"
    assert len(outcome.curves["epoch"]) == 1
    assert curves(make(tmp_path, checkpoint=checkpoint).train()) == curves(whole)
