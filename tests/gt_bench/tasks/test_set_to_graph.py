"""Set-to-graph: losses and metrics against reference code, sets of different sizes, and training runs."""

import numpy as np
import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed_writer import pack
from gt_bench.tasks.registry import create_task
from gt_bench.tasks.set_to_graph import Pairs, edge_scores, partition_scores
from tests.gt_bench.conftest import header_of
from tests.gt_bench.runs import assert_resumes, experiment
from tests.gt_bench.tasks import reference_set_to_graph as plain
from tests.refusals import refused

SIZES = [5, 1, 8, 2, 6]


def drawn(partition: bool, seed: int = 0):
    """Returns logits, targets, and for each set (logits [n, n], truth [n, n], groups)."""
    rng = np.random.default_rng(seed)
    graphs = []
    for n in SIZES:
        groups = rng.integers(0, 1 + n // 2, n)
        truth = groups[:, None] == groups[None] if partition else np.triu(rng.random((n, n)) < 0.4, 1)
        truth = truth if partition else truth | truth.T
        graphs.append((rng.normal(size=(n, n)) - (1.5 if partition else 0), truth.astype(float), groups.tolist()))
    logits, truth = (torch.from_numpy(np.concatenate([g[i].ravel() for g in graphs])) for i in (0, 1))
    return logits, Pairs(truth, torch.tensor(SIZES), torch.tensor([5, 4, 5, 0, 4])), graphs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partition", [False, True])
def test_metrics_equal_a_plain_reading_per_graph(partition, seed):
    logits, target, graphs = drawn(partition, seed)
    scores = (partition_scores if partition else edge_scores)(logits, target)
    for b, (one, truth, groups) in enumerate(graphs):
        expected = plain.partition_scores(one, groups) if partition else plain.edge_scores(one, truth)
        assert {name: values[b].item() for name, values in scores.items()} == pytest.approx(expected, abs=1e-12)


def test_a_right_answer_without_pairs_scores_as_the_authors_count_it():
    apart = Pairs(torch.eye(3, dtype=torch.float64).ravel(), torch.tensor([3]))
    scores = partition_scores(torch.full((9,), -1.0, dtype=torch.float64), apart)
    assert [scores[name].item() for name in ("partition-f1", "rand-index", "adjusted-rand-index")] == [0.0, 1.0, 1.0]


def test_one_joined_pair_joins_whole_groups():
    """Two groups of two and one false edge between them: the connected component counts, not the edge."""
    truth = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).double()
    logits = torch.where(truth > 0, 1.0, -1.0)
    logits[1, 2] = 1.0  # the sum of both orders is exactly 0
    scores = partition_scores(logits.ravel(), Pairs(truth.ravel(), torch.tensor([4])))
    assert scores["rand-index"].item() == pytest.approx(2 / 6)
    logits[1, 2] = 0.99
    assert partition_scores(logits.ravel(), Pairs(truth.ravel(), torch.tensor([4])))["rand-index"].item() == 1.0


@pytest.mark.parametrize(
    ("name", "metric", "reference"), [("bce", "f1", plain.bce), ("bce-f1", "partition-f1", plain.bce_f1)]
)
def test_losses_equal_a_plain_reading(name, metric, reference):
    logits, target, graphs = drawn(True)
    logits.requires_grad_()
    loss = create_task("set-to-graph", metric, name).loss(logits, target)
    assert loss.item() == pytest.approx(reference([g[:2] for g in graphs]), abs=1e-12)
    loss.backward()
    # only in the partition loss, the diagonal counts as edges
    assert (logits.grad[target.diagonal] == 0).all() == (name == "bce-f1")


@pytest.mark.parametrize(("name", "metric", "soft"), [("bce", "f1", 0), ("bce-f1", "partition-f1", 1)])
def test_every_set_weighs_the_same_in_the_cross_entropy_whatever_its_size(name, metric, soft):
    """The loss of a batch is the mean of the losses of its sets, and soft F1 is a sum."""
    logits, target, _ = drawn(True)
    task = create_task("set-to-graph", metric, name)
    squares = [n * n for n in SIZES]
    parts = list(zip(logits.split(squares), target.labels.split(squares), SIZES, strict=True))
    alone = [(p, Pairs(labels, torch.tensor([n]))) for p, labels, n in parts]
    f1 = torch.stack([_soft_f1(*one) for one in alone]) * soft
    entropy = torch.stack([task.loss(*one) for one in alone]) + f1  # without its second term
    assert task.loss(logits, target).item() == pytest.approx((entropy.mean() - f1.sum()).item(), abs=1e-12)


def _soft_f1(output, target):
    p = output.sigmoid().masked_fill(target.diagonal, 1.0)
    return 2 * (p * target.labels).sum() / (p + target.labels).sum()


def test_on_sets_of_one_size_the_cross_entropy_is_the_mean_over_all_pairs():
    logits, target, _ = drawn(False)
    logits, target = logits[:100], Pairs(target.labels[:100], torch.tensor([5, 5, 5, 5]))
    symmetric = logits.view(4, 5, 5)
    symmetric = (symmetric + symmetric.transpose(1, 2)) / 2
    mean = torch.nn.functional.binary_cross_entropy_with_logits(symmetric.flatten(), target.labels)
    assert create_task("set-to-graph", "f1", "bce").loss(logits, target).item() == pytest.approx(mean.item(), abs=1e-12)


def test_the_loss_of_an_evaluation_does_not_depend_on_its_batches():
    logits, target, _ = drawn(True)
    task = create_task("set-to-graph", "f1", "bce")
    halves = [Pairs(target.labels[:26], target.sizes[:2]), Pairs(target.labels[26:], target.sizes[2:])]
    found = task.evaluate([logits[:26], logits[26:]], halves)
    assert found["loss"] == pytest.approx(task.loss(logits, target).item(), abs=1e-12)


def test_scores_are_means_over_graphs_and_per_flavour():
    logits, target, graphs = drawn(True)
    task = create_task("set-to-graph", "partition-f1", "bce-f1", ["rand-index"])
    cut = 25 + 1  # the first two sets are a separate batch
    halves = [
        Pairs(target.labels[:cut], target.sizes[:2], target.flavour[:2]),
        Pairs(target.labels[cut:], target.sizes[2:], target.flavour[2:]),
    ]
    found = task.evaluate([logits[:cut], logits[cut:]], halves)
    each = [plain.partition_scores(one, groups) for one, _, groups in graphs]
    assert found["partition-f1"] == pytest.approx(np.mean([e["partition-f1"] for e in each]))
    assert found["rand-index@jets-c"] == pytest.approx(np.mean([each[b]["rand-index"] for b in (1, 4)]))
    assert found["f1@jets-l"] == pytest.approx(each[3]["partition-f1"])
    assert found.keys() == {"loss", "partition-f1", "rand-index"} | {
        f"{m}@jets-{f}" for m in ("f1", "rand-index") for f in "bcl"
    }


def test_metrics_of_two_kinds_are_refused():
    with pytest.raises(KeyError, match="cannot be combined"):
        create_task("set-to-graph", "f1", None, ["rand-index"])


def pack_sets(folder, partition=False, graphs=24):
    """Points on a line: edges between near points, or two groups (with flavours)."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 7, graphs)
    points = [rng.normal(size=(n, 2)).astype(np.float32) for n in sizes]
    firsts = [p[:, :1] for p in points]
    groups, near = [(a > 0) == (a > 0).T for a in firsts], [(np.abs(a - a.T) < 0.7) & (a != a.T) for a in firsts]
    pairs = [np.stack(truth.nonzero()) for truth in (groups if partition else near)]
    kinds = {"metric": "partition-f1", "also": ["rand-index", "adjusted-rand-index"], "extras": {"flavour": "graph"}}
    kinds = kinds if partition else {"metric": "f1", "also": ["accuracy", "precision", "recall"]}
    header = header_of("sets", "set-to-graph", level="pair", in_dim=2, split_kind="graph", **kinds)
    arrays = {
        "num_nodes": sizes, "num_edges": np.zeros_like(sizes), "edge_index": np.zeros((2, 0), np.int64),
        "x": np.concatenate(points), "num_pairs": [p.shape[1] for p in pairs],
        "pair_index": np.concatenate(pairs, 1), "split": (np.arange(graphs) % 3 + 1)[None],
    }  # fmt: skip
    if partition:
        arrays["flavour"] = np.array([5, 4, 0])[np.arange(graphs) // 3 % 3]
    return pack(folder / "packed" / "sets", header, arrays)


HOT = {
    "name": "hot-released", "form": "dense", "attention": "softmax", "hidden_dim": 8, "num_layers": 1, "num_heads": 2,
    "head_dims": [8],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partition", "model"),
    [
        (False, HOT),
        (True, HOT | {"attention": "kernel"}),
        (False, {"name": "s2g", "set_dims": [8, 8], "pair_dims": [8]}),
    ],
)
def test_a_run_learns_resumes_and_tests_what_it_states(partition, model, tmp_path):
    pack_sets(tmp_path, partition)
    changes = {"model": model, "loss": "bce-f1" if partition else "bce", "batch": {"graphs": 4}, "epochs": 6}
    record, run = assert_resumes(tmp_path, "sets", **changes)
    curve = record.epochs["train_loss"]
    assert curve[-1] < curve[0]
    # test metrics computed set by set from the tested weights
    run.model.eval()
    scores = []
    with torch.no_grad():
        for i in run.loader.ids["test"]:
            batch = run.loader.packed.batch(i[None])
            n = int(batch.sizes)
            logits, truth = run.model(batch).view(n, n).double().numpy(), batch.y.view(n, n).numpy()
            groups = truth.argmax(1).tolist()
            scores.append(plain.partition_scores(logits, groups) if partition else plain.edge_scores(logits, truth))
    for name in scores[0]:
        assert record.test_metrics[name] == pytest.approx(np.mean([s[name] for s in scores]), abs=1e-9), name
    assert record.test == record.test_metrics[record.metric]
    assert ("f1@jets-b" in record.test_metrics) == partition


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "float64"])
@pytest.mark.parametrize("partition", [False, True])
def test_other_precisions_train(partition, precision, tmp_path):
    pack_sets(tmp_path, partition)
    changes = {"loss": "bce-f1" if partition else "bce", "batch": {"graphs": 4}, "epochs": 1, "precision": precision}
    record, _ = experiment(tmp_path, "sets", model={"name": "s2g", "set_dims": [8], "pair_dims": [8]}, **changes).run(0)
    assert record.run.status == "ok"


def test_a_loss_of_another_task_is_refused(tmp_path):
    pack_sets(tmp_path)
    with refused(RecipeError, place="dataset 'sets'"):
        experiment(tmp_path, "sets", model=HOT, loss="l1")
