"""BREC: which of 400 pairs of non-isomorphic graphs a model learns to tell apart (Wang and Zhang, An Empirical Study of Realized GNN
Expressiveness, ICML 2024, Section 4 and Appendix; PPGT, Appendix A.2; Edge Transformer, Section 6).

For every pair a new model is trained on 32 relabellings of each side to make the two embeddings point apart. It distinguishes the pair if a
paired Hotelling T^2 test on the 32 differences is significant, is not so by the same amount on the pair's control, and the control, which
holds 64 relabellings of one graph, is not significant. A pair is one entry of a record's curves.
"""

# mypy: disable-error-code="assignment"

import copy
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_bench.tasks.base import Task
from gt_bench.training.failures import TimedOut, WrongOutput
from gt_bench.training.interfaces import Batches, Packed
from gt_bench.training.loader import seed_of
from gt_bench.training.optim import create_optimizer, lr_factor
from gt_bench.training.trainer import Run
from gt_models.batch import GraphBatch

# family -> its first pair; Table 1 of PPGT counts the four regular families together
FAMILIES = {
    "basic": 0,
    "simple-regular": 60,
    "strongly-regular": 110,
    "extension": 160,
    "cfi": 260,
    "4-vertex-condition": 360,
    "distance-regular": 380,
}
PAIRS = 400
REGULAR = ("simple-regular", "strongly-regular", "4-vertex-condition", "distance-regular")
# T^2 of pair and control closer than this (absolutely, and 1e-5 of the control's) are taken for the same
SAME = 1e-6
CURVES = ("pair", "trained_epochs", "t_squared", "control", "distinguished", "unchecked", "reliable")


class BrecRun(Run):
    """All pairs of one seed, in the place of "train, choose on validation, test".

    Every pair draws from a random stream of its own, so that a run may stop between any two pairs, and a run over some of the pairs gives
    for them what a run over all does. Curves besides the loop's: `pair` (its number), `trained_epochs`, `t_squared`, `control` (the T^2 of the
    reliability control), `distinguished`, `unchecked` (the same, whatever the control says), `reliable`; the last three 1 or 0. A run that
    meets its time limit within a pair begins that pair again.

    Raises ValueError for a recipe without a `brec` section, with an odd number of graphs in a batch, or pairs that the dataset lacks.
    """

    stops_between_epochs = False

    def __init__(self, recipe: Any, task: Task, loader: Batches, *others: Any, **named: Any):
        super().__init__(recipe, task, loader, *others, **named)
        if recipe.brec is None:
            raise ValueError("the task brec needs a section `brec:` in the recipe ({}: the reference protocol)")
        if recipe.batch.graphs is None or recipe.batch.graphs % 2:
            raise ValueError(
                f"batch.graphs is {recipe.batch.graphs}: a batch of BREC holds both sides of its pairs, so give an even number"
            )
        self.protocol = recipe.brec
        self.graphs = _graphs_of_pairs(loader.packed)
        self.pairs = [pair for pair in recipe.brec.numbers() if pair in self.graphs]
        if not self.pairs:
            raise ValueError("brec.pairs: the dataset holds none of these pairs")
        self.outcome.curves |= {name: [] for name in CURVES}

    @staticmethod
    def seconds(recipe: Any, stretches: Mapping[str, Sequence[float]]) -> float:
        """See `Task.runner`. `stretches` are of pairs with two epochs each: its model and batches, two epochs, its test. Pairs differ widely in
        size, so there should be many; the first warms up."""
        train = stretches["train"][3:]
        made, trained = train[::3], [t for i, t in enumerate(train) if i % 3]
        each = fmean(made) + recipe.total_epochs * fmean(trained) + fmean(stretches["eval"][1:])
        return recipe.brec.parts * each

    def _train(self) -> None:
        torch.manual_seed(seed_of("init", self.seed))
        self.outcome.parameters = sum(p.numel() for p in self.build().parameters())
        self._resume()
        total = len(self.pairs)
        while self.epoch < total:
            pair = self.pairs[self.epoch]
            values = self._pair(pair, *self.graphs[pair])
            for name, value in values.items():
                self.outcome.curves[name].append(value)
            if self.on_epoch:
                self.on_epoch(self.epoch, {k: v for k, v in values.items() if v is not None and k != "epoch"})
            self._save()
            if self.epoch < total:
                self._check_time()

    def _check_time(self) -> None:
        spent = self.meter.totals["train"] + self.meter.totals["eval"]
        if self.time_limit is not None and spent > self.time_limit:
            raise TimedOut(
                f"{self.epoch} of {len(self.pairs)} pairs took longer than the limit of {self.time_limit:.0f} s"
            )

    def _pair(self, pair: int, graphs: Tensor, control: Tensor) -> dict[str, float | None]:
        # deviates: the reference seeds once, and a pair's weights then depend on all pairs before it
        torch.manual_seed(seed_of("pair", self.seed, pair))
        with self.meter.timing("train"):
            model = self.build().to(self.device, self.loader.dtype)
            batches = self._batches(graphs)
        epochs, lr, loss = self._fit(model, batches)
        with self.meter.timing("eval"):
            t_squared = self._t_squared(model, batches)
            reference = self._t_squared(model, self._batches(control))
        verdict = judge(t_squared, reference, self.protocol.threshold)
        finite = {"train_loss": loss, "t_squared": t_squared, "control": reference}
        return {
            "epoch": self.epoch + 1, "lr": lr, "val_loss": None, "val": None, "pair": pair, "trained_epochs": epochs,
            "distinguished": int(verdict.distinguished), "unchecked": int(verdict.unchecked), "reliable": int(verdict.reliable),
            **{name: value if math.isfinite(value) else None for name, value in finite.items()},
        }  # fmt: skip

    def _batches(self, graphs: Tensor) -> list[GraphBatch]:
        """A pair's 64 graphs in stored order, sides interleaved; made once, since their order is fixed."""
        return [self.loader.load(part) for part in graphs.split(self.recipe.batch.graphs)]

    def _fit(self, model: nn.Module, batches: Sequence[GraphBatch]) -> tuple[int, float, float]:
        """Trains on one pair; returns (epochs, last learning rate, last mean loss)."""
        section, schedule, total = self.recipe.optimizer, self.recipe.schedule, self.recipe.total_epochs
        optimizer = create_optimizer(section, model.parameters())
        plateau = None
        if schedule.name == "plateau":  # the reference steps it on the training loss
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, factor=schedule.factor, patience=schedule.patience
            )
        steps = len(batches) if schedule.unit == "step" else 1
        best, kept = math.inf, None
        model.train()
        for epoch in range(total):
            mean = 0.0
            with self.meter.timing("train"):
                for step, batch in enumerate(batches):
                    if plateau is None:
                        position = epoch * steps + (step if schedule.unit == "step" else 0)
                        for group in optimizer.param_groups:
                            group["lr"] = section.lr * lr_factor(schedule, position, total * steps, [], "min")
                    output = self._embed(model, batch)
                    loss = contrast(output[0::2], output[1::2], self.protocol.margin)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    if section.clip_norm is not None:
                        nn.utils.clip_grad_norm_(model.parameters(), section.clip_norm)
                    optimizer.step()
                    mean = mean + loss.detach() * batch.num_graphs
                mean, lr = float(mean) / sum(batch.num_graphs for batch in batches), optimizer.param_groups[0]["lr"]
            if not math.isfinite(mean):  # this pair is not distinguished; the others may be
                return epoch + 1, lr, mean
            if self.recipe.select == "best" and mean < best:
                best, kept = mean, copy.deepcopy(model.state_dict())
            if mean < self.protocol.stop_below:
                break
            if plateau is not None:
                plateau.step(mean)
            if epoch + 1 < total:
                self._check_time()
        if kept is not None:
            model.load_state_dict(kept)
        return epoch + 1, lr, mean

    def _embed(self, model: nn.Module, batch: GraphBatch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            output = model(batch)
        if output.dim() != 2 or len(output) != batch.num_graphs:
            raise WrongOutput(
                f"model {type(model).__name__} ({type(model).__module__}): its output has shape {list(output.shape)}, where brec asks for an "
                f"embedding per graph: [{batch.num_graphs}, any]"
            )
        return output.float() if output.dtype == torch.bfloat16 else output

    @torch.no_grad()
    def _t_squared(self, model: nn.Module, batches: Sequence[GraphBatch]) -> float:
        model.eval()
        output = torch.cat([self._embed(model, batch) for batch in batches])  # [64, d]
        return hotelling(output[0::2], output[1::2])

    def _test(self) -> None:
        self.outcome.test_metrics = scores(self.outcome.curves)
        self.outcome.test = self.outcome.test_metrics[self.task.metric]

    def _save(self) -> None:
        if self.checkpoint.path is not None:
            self.checkpoint.write({"curves": self.outcome.curves, "totals": self.meter.totals}, {})

    def _begin(self) -> None:
        """Every pair has a model of its own."""

    def _restore(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        curves = {name: list(header["curves"][name]) for name in self.outcome.curves}
        if len({len(curve) for curve in curves.values()}) != 1:
            raise ValueError("its curves differ in length")
        self.meter.totals.update({what: float(header["totals"][what]) for what in self.meter.totals})
        self.outcome.curves = curves


class Verdict(NamedTuple):
    """`distinguished`: significant, other than the control, and reliable. `unchecked`: the same whatever the control says of reliability."""

    distinguished: bool
    unchecked: bool
    reliable: bool


def judge(t_squared: float, control: float, threshold: float) -> Verdict:
    """The decision on one pair from its T^2 and its control's."""
    same = abs(t_squared - control) <= SAME + 1e-5 * abs(control)
    unchecked = t_squared > threshold and not same
    # not `control >= threshold`: a control that is no number is not reliable
    reliable = control < threshold
    # deviates: the reference subtracts every unreliable pair from the count, PPGT's authors none; here such a pair is not distinguished
    return Verdict(unchecked and reliable, unchecked, reliable)


def contrast(first: Tensor, second: Tensor, margin: float) -> Tensor:
    """Mean of max(0, cos(x, y) - margin) over the pairs of rows."""
    return F.cosine_embedding_loss(first, second, first.new_full((len(first),), -1.0), margin=margin)


def hotelling(first: Tensor, second: Tensor) -> float:
    """T^2 = m^T S^+ m of the differences of the rows [n, d]: m their mean, S their covariance, S^+ its pseudo-inverse. NaN where an
    output is not finite.

    Without the factor n of the textbook: the reference's threshold belongs to this form. Outputs that do not vary at all give 0.
    """
    difference = (first - second).double()  # [n, d]
    if not bool(difference.isfinite().all()):
        return math.nan
    mean, covariance = difference.mean(0), torch.cov(difference.T)  # [d], [d, d]
    # deviates: in float64; what the reference's float32 takes for rank (singular values above d eps of the largest) is kept
    inverse = torch.linalg.pinv(covariance, rtol=difference.size(1) * torch.finfo(first.dtype).eps)
    return float(mean @ inverse @ mean)


def scores(curves: dict[str, list[Any]]) -> dict[str, float]:
    """Counts of distinguished pairs, in all and by category and family (those of which a pair was run), from a run's curves."""
    starts = [*FAMILIES.values(), PAIRS]
    families = {name: range(a, b) for name, a, b in zip(FAMILIES, starts[:-1], starts[1:], strict=True)}
    found = dict(zip(curves["pair"], curves["distinguished"], strict=True))
    count = {name: sum(found[p] for p in members if p in found) for name, members in families.items()}
    run = {name: sum(p in found for p in members) for name, members in families.items()}
    count["regular"], run["regular"] = sum(count[f] for f in REGULAR), sum(run[f] for f in REGULAR)
    return {
        "pairs-distinguished": sum(found.values()),
        "accuracy": sum(found.values()) / len(found),
        **{name: count[name] for name in count if run[name]},
        "pairs": len(found),
        # as PPGT's authors count
        "pairs-distinguished-unchecked": sum(curves["unchecked"]),
        "unreliable-pairs": curves["reliable"].count(0),
    }


def _graphs_of_pairs(packed: Packed) -> dict[int, tuple[Tensor, Tensor]]:
    """Pair -> (its graphs, its control's graphs): ids in stored order, two successive ones belong together."""
    pair, control, side = (packed.array(name).long() for name in ("pair", "control", "side"))
    graphs = {}
    for number in pair.unique().tolist():
        mine = pair == number
        parts = tuple((mine & (control == which)).nonzero().squeeze(1) for which in (0, 1))
        if any(len(part) < 4 or not torch.equal(side[part], torch.arange(len(part)) % 2) for part in parts):
            raise ValueError(f"brec: the graphs of pair {number} are not stored side by side")
        graphs[number] = parts
    return graphs


class Brec(Task):
    """Metric pairs-distinguished. Its own protocol throughout; nothing validates."""

    default_loss = "cosine-embedding"
    losses: Mapping[str, Any] = {"cosine-embedding": contrast}
    directions: Mapping[str, str] = {"pairs-distinguished": "max"}
    runner = BrecRun


TASK = Brec
