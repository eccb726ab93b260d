"""Basis approximation: training runs that select the last epoch, and the metric against explicit sums."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import get_spec
from gt_bench.tasks.registry import create_task
from tests.gt_bench.runs import assert_resumes, experiment
from tests.refusals import refused

MODEL = {
    "name": "tokengt-attention", "hidden_dim": 16, "head_dim": 4, "num_heads": 16, "input_linear": True,
    "pre_norm": True, "sign_flip": False,
}  # fmt: skip
LAST = {
    "select": "last", "epochs": 6, "eval_every": 2, "batch": {"graphs": 4},
    "optimizer": {"name": "adamw", "lr": 3e-3, "clip_norm": 5.0},
    "schedule": {"name": "linear", "unit": "step", "warmup": 3, "final_factor": 1e-5},
}  # fmt: skip
LAPLACIAN = {
    "model": MODEL | {"node_identifiers": "laplacian", "node_id_dim": 6}, "encodings": {"laplacian": {"k": 6}},
}  # fmt: skip
ORF = {"model": MODEL | {"node_identifiers": "orf", "node_id_dim": 16, "identifier_table": 12, "dense": True}}


def pack_graphs(root, high=12):
    spec = get_spec("ba-equivariant-basis-sparse")
    spec = replace(spec, arguments=dict(spec.arguments) | {"seeds": [12, 13], "max_nodes": high, "counts": [8, 4, 4]})
    spec.prepare(spec, {}, root / "packed" / spec.name)
    return spec.name


def pattern(*ids: int) -> tuple[int, ...]:
    """Which of four ids are equal: the number of distinct ids before the first one that equals each."""
    return tuple(len(set(ids[: ids.index(i)])) for i in ids)


def plain_errors(attention: torch.Tensor, tuples: list[tuple[int, int]]) -> list[float]:
    """Returns 15 sums of squares of one graph. Attention is [15, T, 1 + T] without padding."""
    # of (query, key), in the model's order: from all different to all equal
    order = sorted({pattern(*ids) for ids in product(range(4), repeat=4)}, reverse=True)
    assert len(order) == 15
    sums = []
    for mu in range(15):
        total = 0.0
        for q, query in enumerate(tuples):
            row = [float(order.index(pattern(*query, *key)) == mu) for key in tuples]
            wanted = [0.0, *(v / sum(row) for v in row)] if sum(row) else [1.0, *row]
            total += sum((attention[mu, q, c].item() - w) ** 2 for c, w in enumerate(wanted))
        sums.append(total)
    return sums


@pytest.mark.slow
@pytest.mark.parametrize("changes", [LAPLACIAN, ORF | {"epochs": 4}])
def test_a_run_keeps_its_last_epoch_and_resumes(changes, tmp_path):
    name = pack_graphs(tmp_path)
    record, _ = assert_resumes(tmp_path, name, **(LAST | changes))
    assert record.best_epoch == len(record.epochs["epoch"])
    assert record.val == record.epochs["val"][-1]
    assert record.epochs["train_loss"][-1] < record.epochs["train_loss"][0]
    assert record.epochs["lr"][:2] == pytest.approx([0.0, 3e-3 * 2 / 3])  # two steps an epoch, three of warm-up
    assert record.recipe["select"] == "last"
    assert {f"squared-error/{i}" for i in range(15)} < record.test_metrics.keys()


@pytest.mark.slow
def test_the_number_is_the_sum_of_squares_over_rows_and_columns(tmp_path):
    name = pack_graphs(tmp_path, high=11)
    record, run = assert_resumes(tmp_path, name, killed_at=1, **(LAST | LAPLACIAN | {"epochs": 2}))
    run.model.double().eval()
    errors = []
    for i in run.loader.ids["test"]:
        batch = run.loader.load(i[None]).to("cpu", torch.float64)
        tuples = [tuple(pair) for pair in run.model.tokens(batch)[0][0].tolist()]
        n = int(batch.sizes)
        assert tuples == [(v, v) for v in range(n)] + list(zip(*batch.edge_index.tolist(), strict=True))
        with torch.no_grad():
            errors.append(plain_errors(run.model(batch)[0], tuples))
    by_head = torch.tensor(errors, dtype=torch.float64).mean(0)
    assert record.test == pytest.approx(by_head.mean().item(), rel=1e-5)  # the run is in float32
    for i, value in enumerate(by_head.tolist()):
        assert record.test_metrics[f"squared-error/{i}"] == pytest.approx(value, rel=1e-4, abs=1e-5)


def test_every_seed_has_graphs_of_its_own(tmp_path):
    name = pack_graphs(tmp_path)
    model = MODEL | {"node_identifiers": "none", "type_identifiers": False}
    done = experiment(tmp_path, name, **(LAST | {"model": model, "seeds": [0, 1]}))
    assert [done.split_of(seed) for seed in (0, 1)] == [0, 1]
    graphs = [set(done.packed.split(part, split).tolist()) for split in (0, 1) for part in ("train", "val", "test")]
    assert sum(map(len, graphs)) == len(set().union(*graphs)) == 32


def test_errors_are_averaged_over_graphs_not_batches():
    task = create_task("basis-approximation", "squared-error")
    outputs = [torch.full((3, 15), 1.0), torch.full((1, 15), 5.0)]
    assert task.evaluate(outputs, outputs)["squared-error"] == 2.0


def test_the_stored_epoch_counts_in_a_digest_only_where_it_is_the_last():
    model = {"model": {"name": "mlp"}, "optimizer": {"lr": 0.1}, "epochs": 1, "seeds": [0]}
    assert Recipe(**model, select="best").decisive() == Recipe(**model).decisive()
    assert "select" not in Recipe(**model).decisive()
    assert Recipe(**model, select="last").decisive()["select"] == "last"
    with pytest.raises(ValueError, match="remove patience"):
        Recipe(**model, select="last", patience=3)


@pytest.mark.slow
def test_nothing_but_attention_fits(tmp_path):
    name = pack_graphs(tmp_path)
    with refused(RecipeError, place="model.name", remedy="models that support it: tokengt-attention"):
        experiment(tmp_path, name, model={"name": "s2g"})
