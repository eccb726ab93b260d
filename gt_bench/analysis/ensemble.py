"""Ensembles of the trials of a search: greedy selection on validation predictions (Caruana et al., 2004).

As in TabArena (Erickson et al., 2025): starting from nothing, the candidate whose addition gives the best validation
metric is added, with replacement, `ROUNDS` times. The ensemble is the best one on the way, and the smallest of equal
ones. Predictions are averaged as probabilities for classes and labels, as outputs otherwise. The test part is read
once, when the weights are fixed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gt_bench.analysis.score import outputs_of, shares_of
from gt_bench.config.schema import RecipeError
from gt_bench.store.predictions import Predictions

ROUNDS = 40


@dataclass(frozen=True)
class Ensemble:
    """An ensemble for one seed.

    Attributes:
        weights: {name of a candidate: its weight}; weights are positive and add up to 1.
        validation: metric of the ensemble on validation.
        test: metric of the ensemble on test.
    """

    weights: Mapping[str, float]
    validation: float
    test: float


def select(candidates: Mapping[str, Predictions]) -> Ensemble:
    """Chooses the weights of candidates on validation, and evaluates the ensemble on test.

    Args:
        candidates: {name: predictions of a run}, all with the same seed and split. Among equal additions the first one
            is chosen.

    Raises:
        RecipeError: the runs have different examples, or the metric is undefined on validation.
    """
    names, runs = list(candidates), list(candidates.values())
    run = runs[0].record["deterministic"]
    task, metric = runs[0].create_task(run["metric"]), run["metric"]
    sign = 1.0 if run["direction"] == "max" else -1.0

    def score(part: str, shares: Tensor, counts: Sequence[int]) -> float:
        """Returns the metric of the mean of `shares`, [M, N, ...], weighted by `counts`, [M]."""
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        mean = outputs_of(runs[0].task, torch.tensordot(weights, shares, dims=1))
        return task.evaluate([mean], [runs[0].parts[part].labels])[metric]

    shares = {}
    for part in ("val", "test"):
        if (of_part := shares_of(runs, part)) is None:
            raise RecipeError(f"an ensemble needs runs with the same {part} examples; these differ: retrain the cell")
        shares[part] = of_part
    counts, best, best_counts = [0] * len(runs), -math.inf, [0] * len(runs)
    for _ in range(ROUNDS):
        scored = []
        for i in range(len(runs)):
            more = [count + (i == j) for j, count in enumerate(counts)]
            try:
                value = sign * score("val", shares["val"], more)
            except ValueError as error:
                raise RecipeError(f"an ensemble cannot be chosen: {metric} on validation: {error}") from None
            scored.append((-math.inf if math.isnan(value) else value, -i, more))
        value, _, counts = max(scored)
        if value > best:
            best, best_counts = value, counts
    if best == -math.inf:
        raise RecipeError(f"an ensemble cannot be chosen: {metric} is not a number on validation for any candidate")
    weights = {name: count / sum(best_counts) for name, count in zip(names, best_counts, strict=True) if count}
    return Ensemble(weights, sign * best, score("test", shares["test"], best_counts))
