"""One run in several processes: the results of one process on every task, and checkpoints that all can read."""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from gt_bench.config.recipe import load_recipe
from gt_bench.config.recipe_sections import BatchSection
from gt_bench.data.packed import PackedDataset
from gt_bench.data.packed_writer import pack
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import miniature
from gt_bench.experiment import compute, launch_ddp
from gt_bench.experiment.launch_ddp import RankProcesses
from gt_bench.experiment.pretrained import agree, score
from gt_bench.experiment.run import Experiment
from gt_bench.records.run import RunRecord
from gt_bench.runtime.environment import Clock
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.ddp import SharedBatches
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader
from gt_bench.training.trainer import Run
from gt_bench.utils.paths import recipe_file
from tests.conftest import ROOT
from tests.gt_bench import runs
from tests.gt_bench.conftest import header_of, pack_many, pack_web
from tests.gt_bench.training.small_run import NODE2SUBGRAPH, NOTHING_ENCODED

pytestmark = pytest.mark.slow

# relative tolerance of curves and metrics after a few epochs, for another order of summation. Adam normalises
# gradients, so the rounding of a zero gradient (a bias before BatchNorm) becomes a step
TOLERANCE = {"sgd": 1e-11, "adam": 1e-7, "float32": 2e-4}
SGD = {"name": "sgd", "lr": 0.01, "momentum": 0.9}
# one cell of each task, without random numbers in the forward pass, and with small widths
NARROW, SMALL = {"num_layers": 2, "hidden_dim": 8}, {"num_layers": 2, "hidden_dim": 16, "attn_dropout": 0.0}
CELLS = {
    "graph-classification": ("edge-transformer/csl/gcn", NARROW),
    "graph-regression": ("ppgt/zinc/gps", SMALL | {"pe_dim": 4, "dropout": 0.0}),
    "graph-multilabel": ("ppgt/peptides-func/grit", SMALL),
    "set-to-graph": ("hot/delaunay-50/s2g", {"set_dims": [16, 16, 8], "pair_dims": [16]}),
    "node-classification": ("ppgt/pattern/gatedgcn", NARROW),
}
# without random numbers, so that the results do not depend on the number of processes
MLP = {"name": "mlp", "hidden_dim": 8, "num_layers": 2}
PLAIN = {"model": MLP, "batch": {"graphs": 4}, "optimizer": SGD, "epochs": 5, "eval_every": 2}


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Forks processes, which is faster than spawning. tests/gt_bench/experiment/test_launch_ddp.py tests spawning."""
    import torch._dynamo  # slow to import: once, before the forks

    monkeypatch.setattr(launch_ddp, "START", "fork")
    # a forked process would wait forever for OpenMP threads, which only its parent has
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def experiment(root: Path, dataset: str = "many", **changes: Any) -> Experiment:
    if not (root / "packed" / dataset).exists():
        (pack_web if dataset == "web" else pack_many)(root)
    return runs.experiment(root, dataset, **PLAIN | {"precision": "float64"} | changes)


def of_cell(root: Path, task: str, **changes: Any) -> Experiment:
    name, arguments = CELLS[task]
    dataset, recipe = name.split("/")[1], load_recipe(recipe_file(name, ROOT / "suites"))
    if not (root / "packed" / dataset).exists():
        miniature(get_spec(dataset), root / "packed" / dataset)
    content = recipe.model_dump(exclude_unset=True, exclude={"origin", "published", "parameters", "patience"})
    content["model"] |= arguments
    content["optimizer"] = SGD | {
        key: value for key, value in content["optimizer"].items() if key in ("clip_norm", "weight_decay")
    }
    return experiment(
        root, dataset, **content | {"epochs": 3, "eval_every": 1, "seeds": [0], "batch": {"graphs": 3}, **changes}
    )


def numbers(record: RunRecord) -> dict[str, Any]:
    run = record.run
    assert run.status == "ok", run.error
    single = {key: getattr(run, key) for key in ("best_epoch", "parameters", "val", "test")}
    found = single | run.epochs | run.test_metrics
    return {key: np.array(value, np.float64) for key, value in found.items()}


def assert_same(one: RunRecord, other: RunRecord, tolerance: float = TOLERANCE["sgd"]) -> None:
    expected, found = numbers(one), numbers(other)
    assert expected.keys() == found.keys()
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("task", CELLS)
def test_two_processes_find_the_numbers_of_one(tmp_path, task):
    """Four validation graphs in batches of three: in the last batch, one process has only a placeholder graph."""
    one, two = (of_cell(tmp_path, task, processes=count) for count in (1, 2))
    assert one.header.task == task
    assert_same(one.run(0)[0], two.run(0)[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"processes": 3},
        {"processes": 2, "batch": {"nodes": 20}},
        {"processes": 2, "batch": {}},
        {"processes": 2, "optimizer": {"name": "adamw", "lr": 0.001}},
        {"processes": 2, "precision": "float32"},
    ],
    ids=["three processes", "steps of nodes", "one step", "adam", "float32"],
)
def test_the_tolerance_holds_for_batch_norm_and_any_step(tmp_path, changes):
    """GPS on the miniature of ZINC has BatchNorm, whose statistics must be those of all processes."""
    one, several = (of_cell(tmp_path, "graph-regression", **changes | more) for more in ({"processes": 1}, {}))
    kind = one.recipe.precision if one.recipe.precision == "float32" else one.recipe.optimizer.name.removesuffix("w")
    tolerance = TOLERANCE[kind]
    assert_same(one.run(0)[0], several.run(0)[0], tolerance)
    weights = [load_file(e.store.folder(e.digest(0)) / "weights.safetensors") for e in (one, several)]
    assert weights[0].keys() == weights[1].keys()
    assert any("running_var" in name for name in weights[0])
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=tolerance, atol=10 * tolerance)
    assert agree(*score(several, 0), several.recipe.processes)
    now, then = score(several, 0)
    assert not agree(now, {name: value * 1.001 for name, value in then.items()}, several.recipe.processes)


def test_labels_that_are_unknown_count_nowhere(tmp_path):
    """The loss is the mean over known labels, and processes have different numbers of them."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 9, 24)
    y = rng.integers(0, 2, (24, 3)).astype(np.float32)
    y[::2, :2] = np.nan
    y[:6, 2] = [0, 1, 0, 1, 0, 1]
    edges = np.concatenate([np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes], 1)
    header = header_of("labels", "graph-multilabel", in_dim=4, out_dim=3)
    x = rng.normal(size=(sizes.sum(), 4)).astype(np.float32)
    split = (np.arange(24) // 2 % 3 + 1)[None]
    arrays = {"num_nodes": sizes, "num_edges": sizes, "edge_index": edges, "x": x, "y": y, "split": split}
    pack(tmp_path / "packed" / "labels", header, arrays)
    one, two = (experiment(tmp_path, "labels", processes=count) for count in (1, 2))
    assert_same(one.run(0)[0], two.run(0)[0])


def test_subgraphs_are_shared_as_graphs_are(tmp_path):
    changes = {
        "model": NODE2SUBGRAPH | {"node_mask_rate": 0.0},
        "encodings": {"rrwp": {"steps": 2, "dual": True}},
        "subgraphs": {"hops": 2, "max_nodes": 7},
        "batch": {"graphs": 8},
        "epochs": 2,
    }
    one, two = (experiment(tmp_path, "web", processes=count, **changes) for count in (1, 2))
    assert_same(one.run(0)[0], two.run(0)[0])


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2)])
def test_a_run_continues_with_another_number_of_processes(tmp_path, before, after):
    """A checkpoint holds nothing of a single process: random numbers are seeded in each epoch."""
    changes = {"model": {"name": "gin", "hidden_dim": 8, "num_layers": 2, "dropout": 0.3 if before == after else 0.0}}
    killed = experiment(tmp_path, store="killed", processes=before, **changes)
    with pytest.raises(runs.Killed):
        killed.run(0, on_epoch=runs.kill_at(3))
    checkpoint = killed.store.folder(killed.digest(0)) / "checkpoint.safetensors"
    whole, _ = experiment(tmp_path, store="whole", processes=after, **changes).run(0)
    other = experiment(tmp_path, store="resumed", processes=after, **changes)
    place = other.store.folder(other.digest(0)) / checkpoint.name
    place.parent.mkdir(parents=True)
    place.write_bytes(checkpoint.read_bytes())
    epochs: list[int] = []
    resumed, _ = other.run(0, on_epoch=lambda epoch, _: epochs.append(epoch))
    assert epochs == list(range(epochs[0], 6))
    assert epochs[0] > 2, "it started over"
    if before == after:  # random numbers are also those of an uninterrupted run
        assert resumed.run == whole.run
    else:
        assert_same(whole, resumed)


def test_two_runs_agree_bit_for_bit_and_a_process_draws_for_itself(tmp_path):
    """Dropout differs between processes: results differ from those of one process, but are reproducible."""
    changes = {"model": MLP | {"dropout": 0.5}}
    first, second = (
        experiment(tmp_path, store=store, processes=2, **changes).run(0)[0] for store in ("first", "second")
    )
    assert first.run == second.run
    one, _ = experiment(tmp_path, store="one", **changes).run(0)
    loss = [record.run.epochs["train_loss"] for record in (one, first)]
    assert abs(loss[0][0] - loss[1][0]) > 1e-6


def _evaluated(share: Any, tell: Any) -> tuple[list[float], list[int], list[float]]:
    """Returns outputs on the test part, the graphs that this process computed, and its random numbers in two epochs."""
    computed = []

    class Sums(nn.Module):
        """Returns the sum of the first feature of each graph."""

        def __init__(self):
            super().__init__()
            self.register_buffer("drawn", torch.tensor(float(share.rank)))

        def forward(self, batch):
            computed.append(batch.num_graphs)
            return self.drawn + batch.x.new_zeros(batch.num_graphs).index_add(0, batch.batch, batch.x[:, 0])[:, None]

    packed = PackedDataset.open(Path(os.environ["MANY"]))
    loader = SharedBatches(
        Loader(SplitData(packed, NOTHING_ENCODED, 0, BatchSection(graphs=4), 0, share.device, torch.float64)), share
    )
    model, drawn = share.model(Sums)().eval(), []
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch, _ in loader.evaluation("test")])
    for seed in (1, 1):
        torch.manual_seed(seed)
        next(iter(loader.training(0)))
        drawn.append(torch.rand(1).item())
    return outputs.flatten().tolist(), computed, drawn


def test_each_graph_is_evaluated_once_and_in_its_order(tmp_path, monkeypatch):
    pack_many(tmp_path)
    packed = PackedDataset.open(tmp_path / "packed" / "many")
    monkeypatch.setenv("MANY", str(packed.folder))
    with RankProcesses(_evaluated, 3) as found:
        values = found.values()
    sums = [packed.batch(graph[None]).x[:, 0].double().sum().item() for graph in packed.split("test")]
    for outputs, _, drawn in values:
        np.testing.assert_allclose(outputs, sums, rtol=1e-12)
        assert drawn[0] == drawn[1]
    # 4, 4 and 2 graphs on three processes; in the last batch, the last process has a placeholder
    assert [computed for _, computed, _ in values] == [[2, 2, 1], [1, 1, 1], [1, 1, 1]]
    assert len({drawn[0] for *_, drawn in values}) == 3


def out_of_memory(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Rank 1 runs out of memory in its second epoch. `again`: also with activation checkpointing."""
    original = Run._train_epoch

    def epoch(self):
        if self.epoch == 1 and self.loader._share.rank == 1 and (again or not self.recomputed):
            self.model.train()
            raise MemoryError
        return original(self)

    monkeypatch.setattr(Run, "_train_epoch", epoch)


def test_out_of_memory_of_one_rank_checkpoints_all(tmp_path, monkeypatch):
    whole, _ = of_cell(tmp_path, "graph-regression", processes=2, store="whole").run(0)
    out_of_memory(monkeypatch, again=False)
    kept, _ = of_cell(tmp_path, "graph-regression", processes=2).run(0)
    assert kept.measured.forms["training"]["layers"] == ["recomputed"]
    assert kept.run == whole.run


def test_out_of_memory_with_checkpointing_is_the_result(tmp_path, monkeypatch):
    out_of_memory(monkeypatch, again=True)
    record, _ = of_cell(tmp_path, "graph-regression", processes=2).run(0)
    assert record.run.status == "oom"
    assert record.run.epochs["epoch"] == [1]


def test_the_first_decides_by_its_clock_and_writes_alone(tmp_path, monkeypatch):
    """In rank 1, every epoch takes a year, and files cannot be written."""
    timing = Clock.timing
    places = [(Checkpoint, "write", Checkpoint.write), (compute, "save_trained", compute.save_trained)]

    @contextlib.contextmanager
    def slow(self, what):
        with timing(self, what):
            yield
        self.totals[what] += 3e7 * dist.get_rank()

    def of_the_first(write):
        def writes(*arguments, **named):
            return write(*arguments, **named) if dist.get_rank() == 0 else pytest.fail("process 1 writes")

        return writes

    monkeypatch.setattr(Clock, "timing", slow)
    for owner, name, write in places:
        monkeypatch.setattr(owner, name, of_the_first(write))
    record, _ = experiment(tmp_path, processes=2, settings={"time_limit_hours": 1.0}).run(0)
    assert record.run.status == "ok"
    assert record.measured.seconds < 3600


def test_all_ranks_end_together_at_a_time_limit_or_divergence(tmp_path):
    limited = experiment(tmp_path, processes=2, settings={"time_limit_hours": 1e-9})
    record, _ = limited.run(0)
    assert record.run.status == "timed-out"
    assert record.measured.processes == 2
    assert (limited.store.folder(limited.digest(0)) / "checkpoint.safetensors").exists()
    diverged, _ = experiment(tmp_path, processes=2, optimizer={"name": "sgd", "lr": 1e300}).run(0)
    assert diverged.run.status == "diverged"
