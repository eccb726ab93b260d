"""A change of global state by a user-supplied model is an error, or is undone before the next run."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as gnn

import gt_bench
import gt_models.layers.pooling
from gt_bench.api.evaluate import try_pair
from gt_bench.config.grid import load_grid
from gt_bench.plugins.models import is_importable
from gt_bench.runtime.global_state import ReplacedCode, global_state, standard_process, unchanged_process
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from tests.gt_bench.user_models import forgotten, forked, write  # noqa: F401 - fixtures

MODEL = """
    import os, random
    import numpy as np
    import torch
    {module}

    class M(torch.nn.Module):
        COUNT = 0

        def __init__(self, in_dim, out_dim):
            super().__init__()
            {init}
            self.a, self.b = torch.nn.Linear(in_dim, 8), torch.nn.Linear(8, out_dim)

        def forward(self, data):
            h = self.a(data.x).relu()
            {forward}
            return self.b(h)
"""


def model(module: str = "", init: str = "pass", forward: str = "pass") -> str:
    return write("lab/m.py", MODEL.format(module=module, init=init, forward=forward)) + ":M"


def losses(seeds: list[int]) -> dict[int, list[float]]:
    """Return the training losses of new runs, by seed."""
    shutil.rmtree("store", ignore_errors=True)
    runs = try_pair("lab/m.py:M", "web", {"epochs": 2}, seeds, grid=load_grid())
    assert runs.row["status"] == "ok"
    return {
        record["deterministic"]["seed"]: record["deterministic"]["epochs"]["train_loss"] for record in Store().records()
    }


@pytest.mark.slow
def test_a_seed_finds_the_same_number_whatever_ran_before_it(ours):
    factors = ("1 + 0.1 * M.COUNT", "torch.rand(1, generator=G)", "random.random()", "np.random.rand()")
    model("G = torch.Generator()", forward=f"M.COUNT += 1; h = h * ({') * ('.join(factors)}) if self.training else h")
    random.seed(1)
    both, alone = losses([0, 1]), losses([1])
    assert both[1] == alone[1]
    assert both[0] != both[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"init": "torch.set_default_dtype(torch.float64)"}, "default dtype of the whole process"),
        ({"forward": "torch.set_grad_enabled(False)"}, "gradient mode of the whole process"),
        ({"forward": "os.chdir('/')"}, "the working directory of the whole process"),
        ({"module": "os.chdir('/')"}, "changes the working directory"),
        (
            {"init": "torch.nn.modules.module.register_module_forward_hook(lambda *a: None)"},
            "global hooks of the whole process",
        ),
        ({"init": "relu = torch.relu; torch.relu = lambda x: relu(x) * 2"}, "functions of torch of the whole process"),
        ({"forward": "data.x.data.mul_(2)"}, "changes data.x in place"),
        ({"forward": "data.x.numpy()[0] = 7"}, "changes data.x in place"),
        ({"forward": "data.edge_index.numpy().sort()"}, "changes data.edge_index in place"),
    ],
)
def test_what_it_changes_outside_itself_is_an_error(ours, parts, words, forked):  # noqa: F811 - a fixture
    check_refused(parts, words)


@pytest.mark.slow
def test_a_changed_number_of_threads_is_an_error(ours):
    # not in a fork: the threads of OpenMP do not survive one, and the second thread would be waited for forever
    check_refused({"forward": "torch.set_num_threads(3)"}, "number of threads of the whole process")


def check_refused(parts: dict[str, str], words: str) -> None:
    folder, before = os.getcwd(), global_state()
    model(**parts)
    with pytest.raises(UserError, match=words) as error:
        try_pair("lab/m.py:M", "web", {"epochs": 2}, [0], grid=load_grid())
    assert "lab/m.py" in str(error.value)
    assert os.getcwd() == folder
    assert global_state() == before
    assert not list(Path("store").rglob("record.json"))


def test_what_can_be_changed_back_is():
    before = global_state()
    with unchanged_process() as changed:
        torch.set_default_dtype(torch.float64)
        torch.nn.functional.relu = torch.tanh
    assert sorted(changed) == ["functions of torch", "torch's default dtype"]
    assert global_state() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.nn.modules.module.register_module_forward_hook(lambda module, arguments, output: 2 * output),
    ],
)
def test_what_a_notebook_set_for_its_process_decides_no_number(ours, change):
    """A record of a model of the library would otherwise have other numbers under the same digest."""
    before = global_state()
    with unchanged_process(), torch.inference_mode(torch.is_inference_mode_enabled()):
        change()
        changed = global_state()
        try:
            with standard_process():
                assert global_state() == before
            assert global_state() == changed
        finally:
            torch.set_default_device(None)  # "cpu" would leave a mode that torch.compile cannot follow
            torch.set_float32_matmul_precision("highest")
    assert global_state() == before


def test_a_call_within_inference_mode_can_train():
    with torch.inference_mode(), standard_process():
        assert torch.ones(1, requires_grad=True).mul(2).requires_grad


def test_evaluate_uses_the_defaults_of_torch(ours, monkeypatch):
    seen = []
    monkeypatch.setattr("gt_bench.api.evaluate.try_pair", lambda *_, **__: seen.append(torch.get_default_dtype()))
    with unchanged_process():
        torch.set_default_dtype(torch.float64)
        gt_bench.evaluate("mlp", "web")
    assert seen == [torch.float32]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (torch.nn.functional, "torch.nn.functional.rms_norm"),
        (torch.nn.Linear, "torch.nn.modules.linear.Linear.forward"),
        (torch.Tensor, "torch.Tensor.mul"),
        (gt_models.layers.pooling, "gt_models.layers.pooling.pool"),
    ],
)
def test_a_function_that_a_program_replaced_is_refused(ours, monkeypatch, place, name):
    monkeypatch.setattr(place, name.rpartition(".")[2], lambda *arguments: arguments[0])
    with pytest.raises(ReplacedCode, match=f"{name}: this program has replaced it"):
        gt_bench.evaluate("mlp", "web")


def test_code_that_a_library_generates_is_not_the_program_s():
    """torch_geometric writes a part of each layer into a temporary folder."""
    gnn.GCNConv(2, 2)(torch.ones(2, 2), torch.tensor([[0], [1]]))
    assert "site-packages" not in gnn.GCNConv._jinja_propagate.__code__.co_filename
    with standard_process():
        pass


def test_which_models_a_new_process_finds(ours):
    assert is_importable(model())
    assert not is_importable("mlp")
    np.testing.assert_equal(torch.get_default_dtype(), torch.float32)
