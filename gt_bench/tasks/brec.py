"""BREC: the number of pairs of non-isomorphic graphs, out of 400, that a model learns to distinguish.

Sources: Wang and Zhang, An Empirical Study of Realized GNN Expressiveness, ICML 2024, Section 4 and Appendix; PPGT,
Appendix A.2; Edge Transformer, Section 6.

For every pair, a new model is trained on 32 relabellings of each graph to reduce the cosine similarity of the two
embeddings. It distinguishes the pair under three conditions. A paired Hotelling T^2 test on the 32 differences is
significant. The T^2 differs from that of the control of the pair, which consists of 64 relabellings of one graph. The
control is not significant. In the curves of a record, each entry is a pair.
"""

# mypy: disable-error-code="assignment"

import copy
import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_bench.config.protocols.brec import PAIRS
from gt_bench.config.schema import RecipeError
from gt_bench.tasks.base import Task
from gt_bench.training.checkpoint import with_plain_state
from gt_bench.training.failures import TimedOut, WrongOutput
from gt_bench.training.interfaces import Packed
from gt_bench.training.loader import seed_of
from gt_bench.training.optim import create_optimizer, lr_factor
from gt_bench.training.runner import Runner
from gt_models.batch import GraphBatch

if TYPE_CHECKING:
    from gt_bench.config.recipe import Recipe

# family -> number of its first pair; Table 1 of PPGT adds up the four regular families
FAMILIES = {
    "basic": 0,
    "simple-regular": 60,
    "strongly-regular": 110,
    "extension": 160,
    "cfi": 260,
    "4-vertex-condition": 360,
    "distance-regular": 380,
}
REGULAR = ("simple-regular", "strongly-regular", "4-vertex-condition", "distance-regular")
# T^2 of pair and control count as equal if they differ by less than this plus 1e-5 of the control's
SAME = 1e-6
CURVES = ("pair", "trained_epochs", "t_squared", "control", "distinguished", "unchecked", "reliable")


class BrecRun(Runner):
    """Trains and tests all pairs of one seed.

    Each pair has its own random stream. A run can therefore stop between pairs, and a run of some pairs gives the same
    results for them as a run of all pairs. A run that reaches its time limit during a pair repeats this pair.

    Additional curves: `pair` (its number), `trained_epochs`, `t_squared`, `control` (T^2 of the control), and with
    values 1 or 0: `distinguished`, `unchecked` (distinguished if the control is ignored), `reliable` (control not
    significant).

    Raises:
        RecipeError: the recipe has no `brec` section or an odd number of graphs per batch, or the dataset does not
            contain its pairs.
    """

    stops_between_epochs = False

    def __post_init__(self) -> None:
        super().__post_init__()
        recipe = self.recipe
        if recipe.brec is None:
            problem, remedy = "the task brec requires this section in the recipe", "{} is the reference protocol"
            raise RecipeError(problem, place="brec", remedy=remedy)
        if recipe.batch.graphs is None or recipe.batch.graphs % 2:
            count, remedy = recipe.batch.graphs, "a batch of BREC contains both graphs of its pairs: use an even number"
            raise RecipeError(f"is {count}", place="batch.graphs", value=count, remedy=remedy)
        self.protocol = recipe.brec
        self.graphs = _graphs_of_pairs(self.loader.packed)
        self.pairs = [pair for pair in recipe.brec.numbers() if pair in self.graphs]
        if not self.pairs:
            raise RecipeError("the dataset contains none of these pairs", place="brec.pairs", value=recipe.brec.pairs)
        self.outcome.curves |= {name: [] for name in CURVES}

    @staticmethod
    def seconds(recipe: "Recipe", durations: Mapping[str, Sequence[float]]) -> float:
        """Estimates the duration of a run; see `Task.runner`.

        Args:
            recipe: the recipe.
            durations: of pairs with two epochs each. "train" has three entries per pair: preparation, and two epochs.
                The first pair is a warm-up. Sizes of pairs differ widely, so there should be many.
        """
        train = durations["train"][3:]
        prepared, trained = train[::3], [t for i, t in enumerate(train) if i % 3]
        per_pair = fmean(prepared) + recipe.total_epochs * fmean(trained) + fmean(durations["eval"][1:])
        assert recipe.brec is not None  # a run without it is not created
        return recipe.brec.parts * per_pair

    def _train(self) -> None:
        torch.manual_seed(seed_of("init", self.seed))
        self.outcome.parameters = sum(p.numel() for p in self.build().parameters())
        self._resume()
        total = len(self.pairs)
        while self.epoch < total:
            pair = self.pairs[self.epoch]
            self._report(self._train_pair(pair, *self.graphs[pair]))
            self._save()
            if self.epoch < total:
                self._check_time()

    def _check_time(self) -> None:
        if self._over_time():
            raise TimedOut(
                f"{self.epoch} of {len(self.pairs)} pairs took longer than the limit of {self.time_limit:.0f} s"
            )

    def _train_pair(self, pair: int, graphs: Tensor, control: Tensor) -> dict[str, float | None]:
        """Trains and tests one pair. Returns the values of its entry in the curves."""
        # deviates: the reference seeds once, and a pair's weights then depend on all pairs before it
        torch.manual_seed(seed_of("pair", self.seed, pair))
        with self.meter.timing("train"):
            model = with_plain_state(self.build()).to(self.device, self.loader.dtype)
            batches = self._batches(graphs)
        epochs, lr, loss = self._fit(model, batches)
        with self.meter.timing("eval"):
            t_squared = self._t_squared(model, batches)
            reference = self._t_squared(model, self._batches(control))
        verdict = judge(t_squared, reference, self.protocol.threshold)
        finite = {"train_loss": loss, "t_squared": t_squared, "control": reference}
        return {
            "epoch": self.epoch + 1,
            "lr": lr,
            "val_loss": None,
            "val": None,
            "pair": pair,
            "trained_epochs": epochs,
            "distinguished": int(verdict.distinguished),
            "unchecked": int(verdict.unchecked),
            "reliable": int(verdict.reliable),
            **{name: value if math.isfinite(value) else None for name, value in finite.items()},
        }

    def _batches(self, graphs: Tensor) -> list[GraphBatch]:
        """Loads the 64 graphs of a pair in stored order, in which the two sides alternate."""
        return [self.loader.load(part) for part in graphs.split(self.recipe.batch.graphs)]

    def _fit(self, model: nn.Module, batches: Sequence[GraphBatch]) -> tuple[int, float, float]:
        """Trains on one pair. Returns the number of epochs, the last learning rate and the last mean loss."""
        section, schedule, total = self.recipe.optimizer, self.recipe.schedule, self.recipe.total_epochs
        optimizer = create_optimizer(section, model.parameters())
        plateau = None
        if schedule.name == "plateau":  # the reference monitors the training loss
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, factor=schedule.factor, patience=schedule.patience
            )
        steps = len(batches) if schedule.unit == "step" else 1
        best, best_weights = math.inf, None
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
            if not math.isfinite(mean):  # only this pair fails
                return epoch + 1, lr, mean
            if self.recipe.select == "best" and mean < best:
                best, best_weights = mean, copy.deepcopy(model.state_dict())
            if mean < self.protocol.stop_below:
                break
            if plateau is not None:
                plateau.step(mean)
            if epoch + 1 < total:
                self._check_time()
        if best_weights is not None:
            model.load_state_dict(best_weights)
        return epoch + 1, lr, mean

    def _embed(self, model: nn.Module, batch: GraphBatch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            output = model(batch)
        if output.dim() != 2 or len(output) != batch.num_graphs:
            raise WrongOutput(
                f"model {type(model).__name__} ({type(model).__module__}): its output has shape {list(output.shape)}, "
                f"but brec requires one embedding per graph: [{batch.num_graphs}, any]"
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
            self.checkpoint.write({"curves": self.outcome.curves} | self._measured(), {})

    def _restore(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        curves = {name: list(header["curves"][name]) for name in self.outcome.curves}
        if len({len(curve) for curve in curves.values()}) != 1:
            raise ValueError("its curves differ in length")
        self._restore_measured(header)
        self.outcome.curves = curves


class PairVerdict(NamedTuple):
    """Decision on a pair.

    Attributes:
        distinguished: T^2 is significant and differs from that of the control, and the pair is reliable.
        unchecked: T^2 is significant and differs from that of the control.
        reliable: the control is not significant.
    """

    distinguished: bool
    unchecked: bool
    reliable: bool


def judge(t_squared: float, control: float, threshold: float) -> PairVerdict:
    """Decides whether a pair is distinguished, from the T^2 of the pair and of its control."""
    same = abs(t_squared - control) <= SAME + 1e-5 * abs(control)
    unchecked = t_squared > threshold and not same
    reliable = control < threshold  # False for NaN
    # deviates: the reference subtracts every unreliable pair from the count, PPGT's authors none; here such a pair is
    # not distinguished
    return PairVerdict(unchecked and reliable, unchecked, reliable)


def contrast(first: Tensor, second: Tensor, margin: float) -> Tensor:
    """Returns the mean of max(0, cos(x, y) - margin) over pairs of rows x, y of [n, d]."""
    return F.cosine_embedding_loss(first, second, first.new_full((len(first),), -1.0), margin=margin)


def hotelling(first: Tensor, second: Tensor) -> float:
    """Computes T^2 = m^T S^+ m of the differences of rows.

    m is the mean of the differences, S their covariance, and S^+ its pseudo-inverse. The factor n of the textbook is
    omitted, because the threshold of the reference belongs to this form. Outputs that do not vary give 0.

    Args:
        first: embeddings of one side, [n, d].
        second: embeddings of the other side, [n, d].

    Returns:
        T^2, or NaN if an output is not finite.
    """
    difference = (first - second).double()  # [n, d]
    if not bool(difference.isfinite().all()):
        return math.nan
    mean, covariance = difference.mean(0), torch.cov(difference.T)  # [d], [d, d]
    # deviates: in float64; the rank is still determined as in the reference's float32 (singular values above d eps of
    # the largest)
    inverse = torch.linalg.pinv(covariance, rtol=difference.size(1) * torch.finfo(first.dtype).eps)
    return float(mean @ inverse @ mean)


def scores(curves: dict[str, list[Any]]) -> dict[str, float]:
    """Counts distinguished pairs: all, by category, and by family. Families without a trained pair are left out."""
    starts = [*FAMILIES.values(), PAIRS]
    families = {name: range(a, b) for name, a, b in zip(FAMILIES, starts[:-1], starts[1:], strict=True)}
    distinguished = dict(zip(curves["pair"], curves["distinguished"], strict=True))
    count = {name: sum(distinguished[p] for p in members if p in distinguished) for name, members in families.items()}
    run = {name: sum(p in distinguished for p in members) for name, members in families.items()}
    count["regular"], run["regular"] = sum(count[f] for f in REGULAR), sum(run[f] for f in REGULAR)
    return {
        "pairs-distinguished": sum(distinguished.values()),
        "accuracy": sum(distinguished.values()) / len(distinguished),
        **{name: count[name] for name in count if run[name]},
        "pairs": len(distinguished),
        # the count of PPGT's authors
        "pairs-distinguished-unchecked": sum(curves["unchecked"]),
        "unreliable-pairs": curves["reliable"].count(0),
    }


def _graphs_of_pairs(packed: Packed) -> dict[int, tuple[Tensor, Tensor]]:
    """Returns {pair: (ids of its graphs, ids of the graphs of its control)}. The two sides alternate in each."""
    pair, control, side = (packed.array(name).long() for name in ("pair", "control", "side"))
    graphs = {}
    for number in pair.unique().tolist():
        mine = pair == number
        parts = tuple((mine & (control == which)).nonzero().squeeze(1) for which in (0, 1))
        if any(len(part) < 4 or not torch.equal(side[part], torch.arange(len(part)) % 2) for part in parts):
            raise ValueError(f"brec: the sides of the graphs of pair {number} do not alternate; pack the dataset again")
        graphs[number] = parts
    return graphs


class Brec(Task):
    """The number of distinguished pairs. `BrecRun` implements the protocol, which has no validation."""

    default_loss = "cosine-embedding"
    losses: Mapping[str, Any] = {"cosine-embedding": contrast}
    directions: Mapping[str, str] = {"pairs-distinguished": "max"}
    runner = BrecRun
